//! Variables that probably decide which other data is valid: proposals, with their evidence.

use std::io::{self, Write};

use powerfail_finding::{InferredCommitVariable, ReadWith, SourcePlace};

use crate::text::{STRONG, plural, printable};

/// How many are shown; JSON has all.
const SHOWN: usize = 12;
/// How many ranges of each are shown.
const RANGES_SHOWN: usize = 3;

/// All proposals, highest confidence first; nothing if there are none.
pub(super) fn commits(out: &mut dyn Write, variables: &[InferredCommitVariable]) -> io::Result<()> {
    if variables.is_empty() {
        return Ok(());
    }
    let word = if variables[0].used {
        "used as"
    } else {
        "proposed as"
    };
    writeln!(
        out,
        "{STRONG}{word} commit variables{STRONG:#}: they decide what else recovery reads"
    )?;
    for variable in variables.iter().take(SHOWN) {
        one(out, variable)?;
    }
    let left = variables.len().saturating_sub(SHOWN) as u64;
    if left > 0 {
        writeln!(
            out,
            "  and {}; --format json has all",
            plural(left, "other")
        )?;
    }
    writeln!(out)
}

fn one(out: &mut dyn Write, variable: &InferredCommitVariable) -> io::Result<()> {
    let name = variable.pool.rsplit('/').next().unwrap_or(&variable.pool);
    writeln!(
        out,
        "  {:#x}..{:#x} of {}, confidence {}%",
        variable.offset,
        variable.offset + variable.len_bytes,
        printable(name),
        variable.confidence,
    )?;
    let stores: Vec<String> = variable.stores.iter().map(place).collect();
    if !stores.is_empty() {
        writeln!(out, "    stored at {}", stores.join(", "))?;
    }
    if let Some(reader) = &variable.reader {
        writeln!(out, "    read at {}", place(reader))?;
    }
    let ranges: Vec<String> = variable
        .decides
        .iter()
        .take(RANGES_SHOWN)
        .map(|range| {
            let end = range.offset + range.len_bytes;
            let with = match range.read_with {
                ReadWith::New => "new",
                ReadWith::Old => "old",
            };
            format!("{:#x}..{end:#x} (with the {with} value)", range.offset)
        })
        .collect();
    let left = variable.decides.len().saturating_sub(RANGES_SHOWN) as u64;
    let more = match left {
        0 => String::new(),
        left => format!(" and {}", plural(left, "other range")),
    };
    writeln!(out, "    decides {}{more}", ranges.join(", "))?;
    for sentence in &variable.evidence {
        writeln!(out, "    - {}", printable(sentence))?;
    }
    Ok(())
}

fn place(place: &SourcePlace) -> String {
    let function = place.function.as_deref().unwrap_or("an unknown function");
    match (&place.file, place.line) {
        (Some(file), Some(line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("{}:{line} in {}", printable(file), printable(function))
        }
        _ => printable(function).into_owned(),
    }
}
