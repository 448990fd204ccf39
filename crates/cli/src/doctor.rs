//! `powerfail doctor`: what this machine offers to powerfail.

use powerfail_finding::Health;
use powerfail_report::doctor as report;

use crate::args::DoctorArgs;
use crate::exit::Exit;
use crate::output::{print, print_json};

pub(crate) fn doctor(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let diagnoses = powerfail_check::diagnose(args.program.as_deref());
    if args.json {
        print_json(&report::json(&diagnoses)?)?;
    } else {
        print(|out| Ok(report::text(out, &diagnoses)?))?;
    }
    let is_missing = diagnoses.iter().any(|it| it.health == Health::Missing);
    Ok(if is_missing {
        Exit::Unsupported
    } else {
        Exit::Clean
    })
}
