//! `powerfail fuzz repair`: makes images again that a campaign has lost.

use anyhow::Context;
use powerfail_fuzz::repair;

use super::options::enter;
use super::refusal;
use crate::args::FuzzRepairArgs;
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::output::print;
use crate::runtime::runtime;

pub(crate) fn campaign(args: &FuzzRepairArgs) -> anyhow::Result<Exit> {
    interrupt::watch();
    let out = std::path::absolute(&args.out).with_context(|| args.out.display().to_string())?;
    enter(&out, args.consent.yes)?;
    let repaired = repair(&out, &runtime().into(), &mut super::warn);
    let repaired = match repaired {
        Ok(repaired) => repaired,
        Err(error) => return refusal(error),
    };
    let sentences = repaired.sentences();
    print(|to| {
        if sentences.is_empty() {
            writeln!(to, "{}: nothing is damaged", args.out.display())?;
        }
        for sentence in &sentences {
            writeln!(to, "{sentence}")?;
        }
        Ok(())
    })?;
    if repaired.is_complete() {
        return Ok(Exit::Clean);
    }
    complain("some images are lost; everything else can be used, also by --resume");
    Ok(Exit::Setup)
}
