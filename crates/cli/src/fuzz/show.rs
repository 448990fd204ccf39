//! `powerfail fuzz show`: what a campaign has found, whether it runs or not. Nothing is changed.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use powerfail_check::output_directory;
use powerfail_fuzz::{Stats, StoredFinding};
use powerfail_fuzz_store::{ImageId, ImageNode, Images, QueuedCase, read_record, read_stats};
use powerfail_report::{count, plural};
use serde_json::{Value, json};

use super::summary;
use crate::args::FuzzShowArgs;
use crate::exit::Exit;
use crate::output::{print, print_json};

pub(crate) fn show(args: &FuzzShowArgs) -> anyhow::Result<Exit> {
    let out = &args.out;
    let record = read_record(out)?;
    let images = Images::follow(out)?;
    if let (Some(id), Some(to)) = (&args.image, &args.to) {
        return write_image(&images, id, to);
    }
    let stats = last_stats(out)?;
    let findings = findings(out)?;
    let cases = powerfail_fuzz_store::read_cases(out)?;
    if args.json {
        print_json(&json!({
            "schema": 1,
            "command": record.command,
            "stats": stats,
            "findings": findings.iter().map(summary::stored).collect::<Vec<_>>(),
            "cases": cases.iter().map(case_json).collect::<Vec<_>>(),
            "images": images.nodes().iter().map(image_json).collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Clean);
    }
    print(|to| {
        writeln!(to, "{}", record.command.join(" "))?;
        if let Some(stats) = &stats {
            summary::numbers(to, stats)?;
        }
        if !findings.is_empty() {
            summary::findings(to, out, &findings)?;
        }
        if args.cases {
            list_cases(to, &cases)?;
        }
        if args.images {
            list_images(to, &images.nodes())?;
        }
        Ok(())
    })?;
    Ok(Exit::Clean)
}

/// How far the campaign has come, if it has begun.
fn last_stats(out: &Path) -> anyhow::Result<Option<Stats>> {
    let Some(line) = read_stats(out)?.pop() else {
        return Ok(None);
    };
    let value = serde_json::to_value(line)?;
    let stats = serde_json::from_value(value);
    Ok(Some(stats.context("the statistics of the campaign")?))
}

/// All findings, in the order of their names. One that is being written is not there yet.
fn findings(out: &Path) -> anyhow::Result<Vec<StoredFinding>> {
    let directory = out.join(output_directory::FINDINGS);
    let mut found = Vec::new();
    let entries = std::fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let directory = entry?.path();
        let Ok((report, _)) = output_directory::load(&directory) else {
            continue;
        };
        found.extend(report.findings.into_iter().map(|finding| StoredFinding {
            finding,
            directory: directory.clone(),
        }));
    }
    found.sort_by(|left, right| left.directory.cmp(&right.directory));
    Ok(found)
}

fn list_cases(to: &mut dyn Write, cases: &[QueuedCase]) -> io::Result<()> {
    writeln!(to, "{}:", plural(cases.len() as u64, "test case"))?;
    for case in cases {
        let entry = &case.entry;
        write!(
            to,
            "  {}  {:>6} bytes on image {}  {:?}, {} new, after {:.0} s, {}",
            case.number,
            count(case.input_len_bytes),
            short(case.image),
            entry.priority,
            count(entry.new_locations),
            entry.time_s,
            entry.found_by,
        )?;
        match &case.retired {
            Some(reason) => writeln!(to, "; retired: {reason}")?,
            None => writeln!(to)?,
        }
    }
    Ok(())
}

fn list_images(to: &mut dyn Write, nodes: &[ImageNode]) -> io::Result<()> {
    writeln!(to, "{}:", plural(nodes.len() as u64, "image"))?;
    for node in nodes {
        write!(to, "  {}", short(node.id))?;
        match (node.parent, node.failure_point, &node.name) {
            (None, _, Some(name)) => writeln!(to, "  given as {name}")?,
            (None, _, None) => writeln!(to, "  no pool")?,
            (Some(parent), point, _) => {
                let bytes = plural(node.input_len_bytes, "byte");
                write!(to, "  from {} with {bytes}", short(parent))?;
                match point {
                    Some(event) => writeln!(to, ", power failed before event {}", count(event))?,
                    None => writeln!(to, ", to its end")?,
                }
            }
        }
    }
    Ok(())
}

/// As much of a name as people can compare.
fn short(image: ImageId) -> String {
    let mut text = image.to_string();
    text.truncate(12);
    text
}

fn case_json(case: &QueuedCase) -> Value {
    json!({
        "number": case.number,
        "image": case.image.to_string(),
        "input_len_bytes": case.input_len_bytes,
        "entry": case.entry,
        "retired": case.retired,
    })
}

fn image_json(node: &ImageNode) -> Value {
    json!({
        "id": node.id.to_string(),
        "parent": node.parent.map(|parent| parent.to_string()),
        "name": node.name,
        "failure_point": node.failure_point,
        "input_len_bytes": node.input_len_bytes,
    })
}

/// Writes the image whose name begins like this.
fn write_image(images: &Images, beginning: &str, to: &Path) -> anyhow::Result<Exit> {
    let nodes = images.nodes();
    let mut fitting = nodes
        .iter()
        .filter(|node| node.id.to_string().starts_with(beginning));
    let Some(node) = fitting.next().filter(|_| !beginning.is_empty()) else {
        bail!("there is no image {beginning} in this campaign; --images lists them");
    };
    ensure!(
        fitting.next().is_none(),
        "several images begin with {beginning}; write more of the name"
    );
    let contents = images.load(node.id)?;
    std::fs::create_dir(to).with_context(|| to.display().to_string())?;
    contents
        .write(to)
        .with_context(|| to.display().to_string())?;
    Ok(Exit::Clean)
}
