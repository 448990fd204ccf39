//! The lists of `powerfail fuzz show`: test cases and images.

use std::io::{self, Write};

use powerfail_fuzz_store::{ImageId, ImageNode, Priority, QueuedCase, Retirement};
use serde_json::{Value, json};

use crate::{count, plural};

/// Writes a line for each test case.
pub fn write_cases(to: &mut dyn Write, cases: &[QueuedCase]) -> io::Result<()> {
    writeln!(to, "{}:", plural(cases.len() as u64, "test case"))?;
    for case in cases {
        let entry = &case.entry;
        write!(
            to,
            "  {}  {:>6} bytes on image {}  {} priority, {} new, after {:.0} s, {}",
            case.number,
            count(case.input_len_bytes),
            short(case.image),
            priority(entry.priority),
            plural(entry.new_locations, "location"),
            entry.time_s,
            entry.found_by,
        )?;
        match &case.retired {
            Some(because) => writeln!(to, "; retired: {}", retirement(because))?,
            None => writeln!(to)?,
        }
    }
    Ok(())
}

/// Writes a line for each image.
pub fn write_images(to: &mut dyn Write, nodes: &[ImageNode]) -> io::Result<()> {
    writeln!(to, "{}:", plural(nodes.len() as u64, "image"))?;
    for node in nodes {
        write!(to, "  {}", short(node.id))?;
        match (node.parent, node.failure_point, &node.name) {
            (None, _, Some(name)) => writeln!(to, "  given as {name}")?,
            (None, _, None) => writeln!(to, "  no pool")?,
            (Some(parent), point, _) => {
                let bytes = plural(node.input_len_bytes, "byte");
                write!(to, "  from {} with an input of {bytes}", short(parent))?;
                match point {
                    Some(event) => writeln!(to, ", power failed before event {}", count(event))?,
                    None => writeln!(to, ", run to its end")?,
                }
            }
        }
    }
    Ok(())
}

const fn priority(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "low",
        Priority::Medium => "medium",
        Priority::High => "high",
    }
}

fn retirement(because: &Retirement) -> String {
    match because {
        Retirement::Hangs => "hangs".to_owned(),
        Retirement::Crashes { signal: None } => "crashes".to_owned(),
        Retirement::Crashes {
            signal: Some(signal),
        } => format!("crashes with signal {signal}"),
        Retirement::Redundant => "redundant".to_owned(),
        Retirement::Shortened { to } => format!("shortened to {to}"),
        Retirement::Other(text) => text.clone(),
    }
}

/// The first digits of an image's hash.
fn short(image: ImageId) -> String {
    let mut text = image.to_string();
    text.truncate(12);
    text
}

/// A test case as JSON.
pub fn case_json(case: &QueuedCase) -> Value {
    json!({
        "number": case.number,
        "image": case.image.to_string(),
        "input_len_bytes": case.input_len_bytes,
        "entry": case.entry,
        "retired": case.retired,
    })
}

/// An image as JSON.
pub fn image_json(node: &ImageNode) -> Value {
    json!({
        "id": node.id.to_string(),
        "parent": node.parent.map(|parent| parent.to_string()),
        "name": node.name,
        "failure_point": node.failure_point,
        "input_len_bytes": node.input_len_bytes,
    })
}

#[cfg(test)]
mod tests {
    use powerfail_fuzz_store::{CaseNumber, Retirement};

    use super::retirement;

    #[test]
    fn reasons_are_worded() {
        let cases = [
            (Retirement::Hangs, "hangs"),
            (
                Retirement::Crashes { signal: Some(6) },
                "crashes with signal 6",
            ),
            (Retirement::Crashes { signal: None }, "crashes"),
            (Retirement::Redundant, "redundant"),
            (
                Retirement::Shortened { to: CaseNumber(7) },
                "shortened to 000007",
            ),
            (Retirement::Other("why not".into()), "why not"),
        ];
        for (because, text) in cases {
            assert_eq!(retirement(&because), text);
        }
    }
}
