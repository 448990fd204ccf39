//! `powerfail fuzz cmin` and `tmin`: retires redundant test cases, and shortens single ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use powerfail_fuzz::{minimise_case, minimise_corpus, resumed_options};
use powerfail_fuzz_store::{Campaign, CaseNumber, Entry, Retirement, TestCase, read_cases};
use powerfail_report::plural;

use super::options::enter_working_directory;
use super::refusal;
use crate::args::{FuzzCminArgs, FuzzTminArgs};
use crate::exit::Exit;
use crate::interrupt;
use crate::output::print;
use crate::record::RUNTIME;

pub(crate) fn corpus(args: &FuzzCminArgs) -> anyhow::Result<Exit> {
    let (out, runtime) = prepare(&args.out)?;
    let kept = match minimise_corpus(&out, &runtime) {
        Ok(kept) => kept,
        Err(error) => return refusal(error),
    };
    let (before, after) = (kept.before as u64, kept.after as u64);
    print(|to| {
        let (all, few) = (plural(before, "test case"), plural(after, "test case"));
        Ok(writeln!(
            to,
            "{few} of {all} reach everything; {} retired",
            before - after
        )?)
    })?;
    Ok(Exit::Clean)
}

pub(crate) fn case(args: &FuzzTminArgs) -> anyhow::Result<Exit> {
    let (out, runtime) = prepare(&args.out)?;
    let number = CaseNumber(args.number);
    let cases = read_cases(&out)?;
    let queued = cases.iter().find(|case| case.number == number);
    let queued = queued.with_context(|| {
        format!(
            "no test case {number} in {}, which has {}",
            args.out.display(),
            cases.len()
        )
    })?;
    // Loading it verifies its input.
    let case = Campaign::resume(&out)?.queue.load(number)?;
    let minimised = match minimise_case(&out, &runtime, &case) {
        Ok(minimised) => minimised,
        Err(error) => return refusal(error),
    };
    let (before, after) = (case.input.len() as u64, minimised.case.input.len() as u64);
    let new = (after < before)
        .then(|| replace(&out, number, &queued.entry, &minimised.case))
        .transpose()?;
    print(|to| {
        let tries = plural(minimised.executions, "execution");
        match new {
            Some(new) => writeln!(
                to,
                "test case {new}: shortened {number} from {} to {after}, in {tries}",
                plural(before, "byte"),
            )?,
            None => writeln!(to, "test case {number} cannot be shortened, after {tries}")?,
        }
        Ok(())
    })?;
    Ok(Exit::Clean)
}

/// Enters the working directory of a campaign; returns its absolute path and the runtime.
fn prepare(out: &Path) -> anyhow::Result<(PathBuf, Arc<[u8]>)> {
    interrupt::watch();
    let out = std::path::absolute(out).with_context(|| out.display().to_string())?;
    enter_working_directory(&resumed_options(&out)?)?;
    Ok((out, RUNTIME.into()))
}

/// Adds a shorter test case, and retires the longer one.
fn replace(
    out: &Path,
    number: CaseNumber,
    entry: &Entry,
    shorter: &TestCase,
) -> anyhow::Result<CaseNumber> {
    let campaign = Campaign::resume(out)?;
    let entry = Entry {
        found_by: "tmin".into(),
        minimised_from: Some(number),
        ..entry.clone()
    };
    let (new, _) = campaign.queue.append(shorter, &entry)?;
    campaign
        .queue
        .retire(number, Retirement::Shortened { to: new })?;
    Ok(new)
}
