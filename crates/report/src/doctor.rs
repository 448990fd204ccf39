//! What `powerfail doctor` has found, as text and as JSON.

use std::io::{self, Write};

use anstyle::Style;
use powerfail_finding::{Diagnosis, Health};
use serde_json::{Value, json};

use crate::text::{BAD, GOOD, STRONG, WARNING, plural, printable};

/// One line for each probe, with what to do below it, and a summary.
pub fn text(out: &mut dyn Write, diagnoses: &[Diagnosis]) -> io::Result<()> {
    let widest = diagnoses.iter().map(|it| it.subject.len()).max();
    let width = widest.unwrap_or_default();
    for diagnosis in diagnoses {
        let (style, word) = shown(diagnosis.health);
        let (subject, fact) = (diagnosis.subject, printable(&diagnosis.fact));
        writeln!(out, "{style}{word:>7}{style:#}  {subject:width$}  {fact}")?;
        if let Some(remedy) = &diagnosis.remedy {
            let indent = " ".repeat(9 + width + 2);
            writeln!(out, "{indent}{STRONG}help:{STRONG:#} {}", printable(remedy))?;
        }
    }
    writeln!(out)?;
    let count = |health: Health| diagnoses.iter().filter(|it| it.health == health).count() as u64;
    match (count(Health::Missing), count(Health::Limited)) {
        (0, 0) => writeln!(out, "powerfail can do everything here"),
        (0, limited) => writeln!(
            out,
            "powerfail works here, with {}",
            plural(limited, "limitation")
        ),
        (missing, _) => writeln!(
            out,
            "powerfail cannot check programs here: {} missing",
            plural(missing, "requirement")
        ),
    }
}

/// The same for machines.
pub fn json(diagnoses: &[Diagnosis]) -> serde_json::Result<Value> {
    let worst = diagnoses.iter().map(|it| it.health).max();
    let health = serde_json::to_value(worst.unwrap_or(Health::Good))?;
    let probes = serde_json::to_value(diagnoses)?;
    Ok(json!({ "health": health, "probes": probes }))
}

const fn shown(health: Health) -> (Style, &'static str) {
    match health {
        Health::Good => (GOOD, "ok"),
        Health::Limited => (WARNING, "limited"),
        Health::Missing => (BAD, "missing"),
    }
}
