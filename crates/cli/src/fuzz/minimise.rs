//! `powerfail fuzz cmin` and `tmin`: retires redundant test cases, and minimises single ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use powerfail_finding::Finding;
use powerfail_fuzz::{CampaignObserver, Stats, minimise_case, minimise_corpus, minimise_finding};
use powerfail_fuzz_store::{
    Campaign, CaseNumber, Entry, MinimisedInput, MinimisedState, Retirement, TestCase, read_cases,
};
use powerfail_report::fuzz::minimised_sentence;
use powerfail_report::plural;

use super::options::enter;
use super::refusal;
use crate::args::{FuzzCminArgs, FuzzTminArgs};
use crate::exit::Exit;
use crate::interrupt;
use crate::output::print;
use crate::progress::{Items, Progress};
use crate::runtime::runtime;

pub(crate) fn corpus(args: &FuzzCminArgs) -> anyhow::Result<Exit> {
    let (out, runtime) = prepare(&args.out, args.consent.yes)?;
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

/// Shows how many bytes are gone.
struct Shown(Progress);

impl CampaignObserver for Shown {
    fn stats(&self, _stats: &Stats) {}

    fn finding(&self, _finding: &Finding, _directory: &Path) {}

    fn warning(&self, sentence: &str) {
        self.0.line(|| super::warn(sentence));
    }

    fn minimising(&self, now: &MinimisedInput) {
        let gone = now.from_bytes.saturating_sub(now.to_bytes);
        self.0
            .show("bytes left out", Items::Unequal, gone, now.from_bytes);
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_interrupted()
    }
}

pub(crate) fn one(args: &FuzzTminArgs) -> anyhow::Result<Exit> {
    let (out, runtime) = prepare(&args.out, args.consent.yes)?;
    let deadline = Instant::now().checked_add(args.time);
    if out.join("findings").join(&args.which).is_dir() {
        return finding(args, &out, &runtime, deadline);
    }
    let cases = read_cases(&out)?;
    let number = args.which.parse().ok().map(CaseNumber);
    let queued = number.and_then(|number| cases.iter().find(|case| case.number == number));
    let queued = queued.with_context(|| {
        format!(
            "no test case and no finding {} in {}, which has {}",
            args.which,
            args.out.display(),
            plural(cases.len() as u64, "test case")
        )
    })?;
    // Loading it verifies its input.
    let case = Campaign::resume(&out)?.queue.load(queued.number)?;
    let shown = Shown(Progress::steps());
    let smaller = match minimise_case(&out, &runtime, &case, deadline, &shown) {
        Ok(smaller) => smaller,
        Err(error) => return refusal(error),
    };
    drop(shown);
    let is_new = smaller.case != case;
    let new = is_new
        .then(|| replace(&out, queued.number, &queued.entry, &smaller.case))
        .transpose()?;
    let name = match new {
        Some(new) => format!("test case {new}"),
        None => format!("test case {}", queued.number),
    };
    say(&args.out, &name, &smaller.minimised, args.time)
}

fn finding(
    args: &FuzzTminArgs,
    out: &Path,
    runtime: &Arc<[u8]>,
    deadline: Option<Instant>,
) -> anyhow::Result<Exit> {
    let shown = Shown(Progress::steps());
    let minimised = match minimise_finding(out, runtime, &args.which, deadline, &shown) {
        Ok(minimised) => minimised,
        Err(error) => return refusal(error),
    };
    drop(shown);
    let name = format!("finding {}", args.which);
    say(&args.out, &name, &minimised, args.time)
}

/// Says how far something is minimised, and how to continue.
fn say(out: &Path, name: &str, minimised: &MinimisedInput, time: Duration) -> anyhow::Result<Exit> {
    print(|to| {
        writeln!(to, "{name}: {}", minimised_sentence(minimised))?;
        if minimised.state == MinimisedState::CutShort {
            let which = name.rsplit(' ').next().unwrap_or_default();
            let why = if interrupt::is_interrupted() {
                "interrupted".to_owned()
            } else {
                format!("cut short after {} s", time.as_secs())
            };
            let out = out.display();
            writeln!(
                to,
                "{why}; continue with: powerfail fuzz tmin {out} {which}"
            )?;
        }
        Ok(())
    })?;
    Ok(Exit::Clean)
}

/// Enters the working directory of a campaign; returns its absolute path and the runtime.
fn prepare(out: &Path, yes: bool) -> anyhow::Result<(PathBuf, Arc<[u8]>)> {
    interrupt::watch();
    let out = std::path::absolute(out).with_context(|| out.display().to_string())?;
    enter(&out, yes)?;
    Ok((out, runtime().into()))
}

/// Adds a smaller test case, and retires the larger one.
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
