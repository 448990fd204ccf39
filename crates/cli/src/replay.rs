//! `powerfail replay`: a finding, once more.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use powerfail_check::{Persistent, Recovery, output_directory};
use powerfail_check::{Runner, RunnerOptions, Trial, TrialState, symptom_of};
use powerfail_finding::{Code, Evidence, Finding, RecoveryOutcome, UnsafeRead};
use powerfail_image::{CursorOptions, ImageCursor, Layout, Patch, write_image};
use powerfail_model::{CrashState, EventIndex, LineId, LineIndex, Place, PoolIndex, PoolOffset};
use powerfail_oracle::{Oracle, Settings, Verdict};
use powerfail_report::findings;
use powerfail_trace::Trace;

use crate::args::ReplayArgs;
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::output::{print, width};
use crate::progress::open_trace;
use crate::races;
use crate::record::RUNTIME;

pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let args = &ReplayArgs {
        out: output_directory::locate(&args.out, &args.id),
        ..args.clone()
    };
    let (report, recovery) =
        output_directory::load(&args.out).context("there is no evidence to replay")?;
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
        output_directory::export(&args.out, to)?;
        return Ok(Exit::Clean);
    }
    let Some(shown) = &finding.evidence else {
        return match &finding.read {
            Some(read) => again_by_watching(finding, read, &recovery, args),
            None => again_by_lint(finding, args),
        };
    };
    let name = shown.trace.as_deref().unwrap_or(output_directory::TRACE);
    let trace = open_trace(&args.out.join(name))?;
    let crash = Crash {
        trace: &trace,
        recovery: &recovery,
        at: EventIndex(shown.failure.event),
        state: state_of(shown, &recovery),
        overlay: overlay_of(shown)?,
    };
    if let Some(path) = &args.image {
        crash.write(path)?;
        return Ok(Exit::Clean);
    }
    if args.gdb {
        return crash.debug();
    }
    crash.run(finding, shown, args)
}

/// The crash that a finding is about.
struct Crash<'a> {
    trace: &'a Trace,
    recovery: &'a Recovery,
    at: EventIndex,
    state: CrashState,
    /// What a recovery had written when the power failed again.
    overlay: Vec<Patch>,
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

/// A finding about a read that recovery survives, or that no run has to confirm: recovery is watched again.
fn again_by_watching(
    finding: &Finding,
    read: &UnsafeRead,
    recovery: &Recovery,
    args: &ReplayArgs,
) -> anyhow::Result<Exit> {
    let trace = open_trace(
        &args
            .out
            .join(read.trace.as_deref().unwrap_or(output_directory::TRACE)),
    )?;
    let at = EventIndex(read.event);
    let crash = Crash {
        trace: &trace,
        recovery,
        at,
        state: CrashState::default(),
        overlay: Vec::new(),
    };
    if let Some(path) = &args.image {
        crash.write(path)?;
        return Ok(Exit::Clean);
    }
    if args.gdb {
        return crash.debug();
    }
    interrupt::watch();
    let seen = races::at_one_point(&trace, recovery, at, read.strict)?;
    show(finding, args)?;
    if let Some(again) = seen.iter().find(|seen| races::is_same(seen, finding)) {
        let bytes = again.read.as_ref().map_or("", |read| read.bytes.as_str());
        print(|to| {
            Ok(writeln!(
                to,
                "the same again: {} read {bytes} where it is shown above",
                read.command
            )?)
        })?;
        return Ok(Exit::Findings);
    }
    complain("recovery did not read it this time: it depends on more than the pool");
    Ok(Exit::Clean)
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

fn overlay_of(evidence: &Evidence) -> anyhow::Result<Vec<Patch>> {
    let again = evidence.failure.again.iter();
    again
        .flat_map(|again| &again.written)
        .chain(&evidence.failure.filled)
        .map(|written| {
            Ok(Patch {
                pool: PoolIndex(written.pool),
                offset: written.pool_offset,
                bytes: bytes_of(&written.bytes).context("the report is damaged: no bytes")?,
            })
        })
        .collect()
}

/// Reads hexadecimal digits.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits?;
    let (pairs, []) = pairs.as_chunks::<2>() else {
        return None;
    };
    pairs
        .iter()
        .map(|[high, low]| u8::try_from(high << 4 | low).ok())
        .collect()
}

impl Crash<'_> {
    fn write(&self, to: &Path) -> anyhow::Result<()> {
        std::fs::create_dir(to).with_context(|| to.display().to_string())?;
        let mut cursor = ImageCursor::new(
            self.trace,
            CursorOptions {
                rules: Some(self.recovery.rules()),
                fill: self.recovery.fill(),
                memory_limit_bytes: None,
            },
        )?;
        cursor.move_to(self.at)?;
        let layout = Layout::of(self.trace, &[])?;
        write_image(&cursor, &self.state, &self.overlay, &layout, to)?;
        Ok(())
    }

    fn run(self, finding: &Finding, shown: &Evidence, args: &ReplayArgs) -> anyhow::Result<Exit> {
        let Crash {
            trace,
            recovery,
            at,
            state,
            overlay,
        } = self;
        interrupt::watch();
        let settings = Settings {
            runtime: Persistent::of(trace).is_any().then(|| RUNTIME.into()),
            ..Settings::default()
        };
        let oracle = Oracle::new(recovery.plan(trace), settings)?;
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
            state: TrialState::Again(state, overlay),
        };
        if let (Some((place, len)), RecoveryOutcome::Content { output }) =
            (stored_by(finding, trace), &shown.recovery)
        {
            let (_, bytes) = runner.run_and_read(&trial, place, len.min(output.len() / 2))?;
            let same = bytes.is_some_and(|bytes| powerfail_check::shown_bytes(&bytes) == *output);
            return conclude(same, finding, args);
        }
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
        conclude(same, finding, args)
    }

    /// Opens recovery in gdb, on a crash image of its own.
    fn debug(&self) -> anyhow::Result<Exit> {
        let recovery = self.recovery;
        let directory = tempfile::tempdir().context("a directory for the crash image")?;
        let images = directory.path().join("image");
        self.write(&images)?;
        let layout = Layout::of(self.trace, &[])?;
        let mut words: Vec<OsString> = recovery.with_input(&recovery.recover);
        let persistent = Persistent::of(self.trace);
        let mut variables = persistent.variables();
        let pool = persistent.first_file();
        for (number, (original, relative)) in layout.files().enumerate() {
            let private = images.join(relative).display().to_string();
            let is_pool = pool.as_deref().map_or(number == 0, |pool| pool == original);
            let directory = images.join(relative.parent().unwrap_or(Path::new("")));
            for (_, value) in &mut variables {
                if *value == original {
                    *value = private.clone().into();
                } else if Some(value.as_ref()) == original.parent() {
                    *value = directory.clone().into();
                }
            }
            let original = original.display().to_string();
            for word in &mut words {
                if let Some(text) = word.to_str() {
                    let mut text = text.replace(&original, &private);
                    if is_pool {
                        text = text.replace("{pool}", &private);
                    }
                    *word = text.into();
                }
            }
        }
        if persistent.is_any() {
            let library = directory.path().join("runtime.so");
            std::fs::write(&library, RUNTIME).context("the runtime")?;
            variables.push(("LD_PRELOAD".into(), library.into()));
        }
        interrupt::leave_to_child();
        Command::new("gdb")
            .args(variables.iter().flat_map(|(name, value)| {
                let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
                ["-ex".into(), format!("set environment {name} {value}")]
            }))
            .arg("--args")
            .args(&words)
            .current_dir(&recovery.working_directory)
            .env("PMEM_IS_PMEM_FORCE", "1")
            .status()
            .context("gdb cannot be started; is it installed?")?;
        Ok(Exit::Findings)
    }
}

/// Shows a finding, and says whether recovery did the same again.
fn conclude(same: bool, finding: &Finding, args: &ReplayArgs) -> anyhow::Result<Exit> {
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

/// Of a store that a transaction does not roll back: which bytes it changed.
fn stored_by(finding: &Finding, trace: &Trace) -> Option<(Place, usize)> {
    if finding.code != Code::StoreNotAdded {
        return None;
    }
    let store = finding.places.first()?;
    let path = store.pool.as_deref()?;
    let mut pools = (0..).zip(trace.pools());
    let (pool, _) = pools.find(|(_, pool)| pool.path == Path::new(path))?;
    let at = Place::new(PoolIndex(pool), PoolOffset(store.pool_offset?));
    Some((at, usize::try_from(store.len_bytes?).ok()?))
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
