//! `powerfail replay`: a finding, once more.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use powerfail_check::{Runner, RunnerOptions, Trial, TrialState, symptom_of};
use powerfail_finding::{Evidence, Finding, RecoveryOutcome};
use powerfail_image::{CursorOptions, ImageCursor, Layout, write_image};
use powerfail_model::{CrashState, EventIndex, LineId, LineIndex, PoolIndex};
use powerfail_oracle::{Oracle, Settings, Verdict};
use powerfail_report::findings;
use powerfail_trace::Trace;

use crate::args::ReplayArgs;
use crate::evidence::{self, Recovery};
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::output::{print, width};
use crate::progress::open_trace;

pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let (report, recovery) = evidence::load(&args.out)?;
    let finding = report.findings.iter().find(|finding| finding.id == args.id);
    let Some(finding) = finding else {
        let ids: Vec<&str> = report.findings.iter().map(|it| it.id.as_str()).collect();
        anyhow::bail!(
            "there is no finding {} in {}; there are {}",
            args.id,
            args.out.display(),
            if ids.is_empty() {
                "none".into()
            } else {
                ids.join(", ")
            }
        );
    };
    if let Some(to) = &args.export {
        evidence::export(&args.out, to)?;
        return Ok(Exit::Clean);
    }
    let Some(shown) = &finding.evidence else {
        return again_by_lint(finding, args);
    };
    let name = shown.trace.as_deref().unwrap_or(evidence::TRACE);
    let trace = open_trace(&args.out.join(name))?;
    let state = state_of(shown, &recovery);
    let at = EventIndex(shown.failure.event);
    if let Some(path) = &args.image {
        write(&trace, &recovery, at, &state, path)?;
        return Ok(Exit::Clean);
    }
    if args.gdb {
        return debug(&trace, &recovery, at, &state);
    }
    run(&trace, &recovery, at, state, finding, shown, args)
}

/// A finding of the lint: the trace alone shows it.
fn again_by_lint(finding: &Finding, args: &ReplayArgs) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        args.image.is_none() && !args.gdb,
        "finding {} needs no crash to be seen, so it has no crash image",
        finding.id
    );
    show(finding, args)?;
    Ok(Exit::Findings)
}

fn show(finding: &Finding, args: &ReplayArgs) -> anyhow::Result<()> {
    let base = std::env::current_dir().unwrap_or_default();
    print(|to| {
        let options = findings::Options {
            width: width(),
            base: &base,
            out: Some(&args.out),
            warnings: true,
        };
        Ok(findings::finding(to, finding, &options)?)
    })
}

fn state_of(evidence: &Evidence, recovery: &Recovery) -> CrashState {
    let line_bytes = recovery.rules().domain.line_bytes() as u64;
    let lost = evidence.failure.lost_lines.iter().map(|line| {
        let id = LineId {
            pool: PoolIndex(line.pool),
            line: LineIndex(line.pool_offset / line_bytes),
        };
        (id, line.version)
    });
    CrashState {
        versions: lost.collect(),
    }
}

fn write(
    trace: &Trace,
    recovery: &Recovery,
    at: EventIndex,
    state: &CrashState,
    to: &Path,
) -> anyhow::Result<()> {
    std::fs::create_dir(to).with_context(|| to.display().to_string())?;
    let mut cursor = ImageCursor::new(
        trace,
        CursorOptions {
            rules: Some(recovery.rules()),
            fill: recovery.fill(),
            memory_limit_bytes: None,
        },
    )?;
    cursor.move_to(at)?;
    write_image(&cursor, state, &Layout::of(trace, &[])?, to)?;
    Ok(())
}

fn run(
    trace: &Trace,
    recovery: &Recovery,
    at: EventIndex,
    state: CrashState,
    finding: &Finding,
    shown: &Evidence,
    args: &ReplayArgs,
) -> anyhow::Result<Exit> {
    interrupt::watch();
    let oracle = Oracle::new(recovery.plan()?, Settings::default())?;
    let options = RunnerOptions {
        jobs: 1,
        rules: recovery.rules(),
        fill: recovery.fill(),
        companions: Vec::new(),
    };
    let parent = powerfail_image::default_parent();
    let mut runner = Runner::new(trace, &oracle, &parent, options)?;
    let trial = Trial {
        at,
        state: TrialState::Exactly(state),
    };
    let tried = runner.run(&[trial], &interrupt::is_interrupted, &mut |_| ())?;
    drop(runner);
    let verdict = tried.into_iter().next().and_then(|tried| tried.verdict);
    let same = match (&shown.recovery, &verdict) {
        (RecoveryOutcome::Content { output }, Some(Verdict::Success { dump: Some(dump) })) => {
            powerfail_check::shown_content(dump) == *output
        }
        (expected, Some(verdict)) => {
            symptom_of(verdict).is_some_and(|symptom| is_alike(expected, &symptom.outcome))
        }
        (_, None) => false,
    };
    show(finding, args)?;
    if same {
        print(|to| {
            Ok(writeln!(
                to,
                "the same again: recovery did what is shown above"
            )?)
        })?;
        return Ok(Exit::Findings);
    }
    complain("recovery did something else this time: it depends on more than the pool");
    Ok(Exit::Clean)
}

/// Whether two outcomes are of one kind, whatever was written meanwhile.
fn is_alike(one: &RecoveryOutcome, other: &RecoveryOutcome) -> bool {
    use RecoveryOutcome::{Exit, Output, Signal, Timeout};
    match (one, other) {
        (Exit { status, .. }, Exit { status: other, .. }) => status == other,
        (Signal { signal, .. }, Signal { signal: other, .. }) => signal == other,
        (Timeout { .. }, Timeout { .. }) | (Output { .. }, Output { .. }) => true,
        _ => false,
    }
}

/// Opens recovery in gdb, on a crash image of its own.
fn debug(
    trace: &Trace,
    recovery: &Recovery,
    at: EventIndex,
    state: &CrashState,
) -> anyhow::Result<Exit> {
    let directory = tempfile::tempdir().context("a directory for the crash image")?;
    let images = directory.path().join("image");
    write(trace, recovery, at, state, &images)?;
    let layout = Layout::of(trace, &[])?;
    let mut words: Vec<OsString> = recovery.recover.clone();
    for (number, (original, relative)) in layout.files().enumerate() {
        let private = images.join(relative).display().to_string();
        let original = original.display().to_string();
        for word in &mut words {
            if let Some(text) = word.to_str() {
                let mut text = text.replace(&original, &private);
                if number == 0 {
                    text = text.replace("{pool}", &private);
                }
                *word = text.into();
            }
        }
    }
    interrupt::leave_to_child();
    Command::new("gdb")
        .arg("--args")
        .args(&words)
        .current_dir(&recovery.working_directory)
        .env("PMEM_IS_PMEM_FORCE", "1")
        .status()
        .context("gdb cannot be started; is it installed?")?;
    Ok(Exit::Findings)
}
