//! Shows a finding again from its evidence: the crash image alone, recovery on it, or recovery in a debugger.
//!
//! The caller reads the output directory and opens the trace; nothing is printed here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_finding::{Code, Evidence, Finding, RecoveryOutcome, Role, TreeCrash, UnsafeRead};
use powerfail_image::{CursorOptions, ImageCursor, Layout, Patch, write_image};
use powerfail_model::{
    CrashState, EventIndex, LineId, LineIndex, Place, PoolIndex, PoolOffset, Rules,
};
use powerfail_oracle::{PoolMapping, Substitution, Verdict};
use powerfail_trace::{Pool, Trace};

use crate::checker::{Checker, Instruments};
use crate::content::shown_content;
use crate::error::CheckError;
use crate::event::Observer;
use crate::fresh_name::FreshName;
use crate::output_directory;
use crate::persistent::Persistent;
use crate::recovery::Recovery;
use crate::runner::{Survival, Trial};
use crate::symptom::symptom_of;
use crate::tree::{TreeRecording, TreeReplay};

/// The name of the trace that shows a finding, in the output directory. `None` if the finding needs no crash to be
/// seen: the lint alone has found it.
pub fn trace_name(finding: &Finding) -> Option<&str> {
    let named = match (&finding.evidence, &finding.read) {
        (Some(evidence), _) => evidence.trace.as_deref(),
        (None, Some(read)) => read.trace.as_deref(),
        (None, None) => return None,
    };
    Some(named.unwrap_or(output_directory::TRACE))
}

/// What shows a finding again.
#[derive(Clone, Copy, Debug)]
enum Basis<'a> {
    /// Recovery fails on a crash image.
    Crash(&'a Evidence),
    /// Recovery reads something that is not safe to read.
    Read(&'a UnsafeRead),
}

/// The crash of a finding.
#[derive(Debug)]
pub struct Replay<'a> {
    trace: &'a Trace,
    recovery: &'a Recovery,
    finding: &'a Finding,
    basis: Basis<'a>,
    at: EventIndex,
    state: CrashState,
    /// What recovery had written when the power failed again.
    overlay: Vec<Patch>,
}

/// How recovery is run on a crash image without powerfail.
#[derive(Clone, Debug)]
pub struct ImageCommands {
    /// The commands with what each is for, recovery first.
    pub commands: Vec<(&'static str, Vec<OsString>)>,
    /// Variables of their environment.
    pub variables: Vec<(OsString, OsString)>,
    /// They need the runtime, because the persistent memory is no file.
    pub needs_runtime: bool,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// Recovery failed in the same way.
    Failed,
    /// Recovery read the same bytes.
    Read {
        /// The command that read them.
        command: String,
        /// The bytes, as hexadecimal digits.
        bytes: String,
    },
    /// Recovery behaved differently on the same image.
    Different {
        /// What it did, if that is a failure as well.
        failure: Option<RecoveryOutcome>,
    },
    /// Recovery did not read the bytes.
    NotRead,
}

impl Replayed {
    fn of(is_same: bool, failure: Option<RecoveryOutcome>) -> Self {
        if is_same {
            Self::Failed
        } else {
            Self::Different { failure }
        }
    }
}

impl<'a> Replay<'a> {
    /// The crash of a finding in its trace ([`trace_name`]). `None` if the finding needs no crash to be seen.
    pub fn new(
        trace: &'a Trace,
        recovery: &'a Recovery,
        finding: &'a Finding,
    ) -> Result<Option<Self>, CheckError> {
        let (basis, at, state, overlay) = match (&finding.evidence, &finding.read) {
            (Some(evidence), _) => (
                Basis::Crash(evidence),
                evidence.failure.event,
                state_of(evidence, recovery.rules()),
                overlay_of(evidence)?,
            ),
            (None, Some(read)) => (
                Basis::Read(read),
                read.event,
                CrashState::default(),
                Vec::new(),
            ),
            (None, None) => return Ok(None),
        };
        Ok(Some(Self {
            trace,
            recovery,
            finding,
            basis,
            at: EventIndex(at),
            state,
            overlay,
        }))
    }

    /// The trees of the trace and the crash, if the finding is about ordinary files.
    fn tree(&self) -> Result<Option<(TreeRecording, &'a Evidence, &'a TreeCrash)>, CheckError> {
        let (Some(crash), Some(evidence)) = (&self.finding.tree, &self.finding.evidence) else {
            return Ok(None);
        };
        let recording = TreeRecording::of(self.trace, &mut |_| ())?;
        let recording = recording.ok_or(CheckError::DamagedReport)?;
        Ok(Some((recording, evidence, crash)))
    }

    /// Writes the crash image to the existing directory `to`.
    pub fn write_image(&self, to: &Path) -> Result<(), CheckError> {
        if let Some((recording, evidence, crash)) = self.tree()? {
            return TreeReplay::new(&recording, evidence, crash)?.write_image(to);
        }
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

    /// Runs recovery once more.
    pub fn run(&self, runtime: &[u8], observer: &mut dyn Observer) -> Result<Replayed, CheckError> {
        let checker = Checker::new(self.trace, self.recovery, runtime.into(), 1);
        let evidence = match self.basis {
            Basis::Crash(evidence) => evidence,
            Basis::Read(read) => return self.read_again(&checker, read, observer),
        };
        self.fails_again(&checker, evidence, observer)
    }

    fn read_again(
        &self,
        checker: &Checker<'_>,
        read: &UnsafeRead,
        observer: &mut dyn Observer,
    ) -> Result<Replayed, CheckError> {
        let seen = checker.reads_at(self.at, read.strict, observer)?;
        let Some(again) = seen.iter().find(|seen| is_same_read(seen, self.finding)) else {
            return Ok(Replayed::NotRead);
        };
        Ok(Replayed::Read {
            command: read.command.clone(),
            bytes: again
                .read
                .as_ref()
                .map_or_else(String::new, |read| read.bytes.clone()),
        })
    }

    fn fails_again(
        &self,
        checker: &Checker<'_>,
        evidence: &Evidence,
        observer: &dyn Observer,
    ) -> Result<Replayed, CheckError> {
        if let Some((recording, evidence, crash)) = self.tree()? {
            let replay = TreeReplay::new(&recording, evidence, crash)?;
            let mut runner = checker.tree_runner(&recording)?;
            let verdict = replay.run(&mut runner, &|| observer.is_interrupted())?;
            return Ok(self.compare(evidence, verdict.as_ref()));
        }
        let mut runner = checker.runner(Instruments::default())?;
        let trial = Trial {
            at: self.at,
            state: Survival::Again(self.state.clone(), self.overlay.clone()),
        };
        if let (Some((place, len)), RecoveryOutcome::Content { output }) =
            (stored_by(self.finding, self.trace), &evidence.recovery)
        {
            let (_, bytes) = runner.run_and_read(&trial, place, len.min(output.len() / 2))?;
            let is_same = bytes.is_some_and(|bytes| powerfail_finding::hex(&bytes) == *output);
            return Ok(Replayed::of(is_same, None));
        }
        let is_interrupted = || observer.is_interrupted();
        let results = runner.run(&[trial], &is_interrupted, &mut |_| ())?;
        let verdict = results.into_iter().next().and_then(|result| result.verdict);
        Ok(self.compare(evidence, verdict.as_ref()))
    }

    /// Compares a verdict with what the finding shows.
    fn compare(&self, evidence: &Evidence, verdict: Option<&Verdict>) -> Replayed {
        let expected = &evidence.recovery;
        let failure = verdict.and_then(symptom_of).map(|it| it.outcome);
        let is_same = match (expected, verdict) {
            (RecoveryOutcome::Content { output }, Some(Verdict::Success { dump: Some(dump) })) => {
                FreshName::of(self.trace).hide(&shown_content(dump)) == *output
            }
            _ => failure.as_ref().is_some_and(|it| is_alike(expected, it)),
        };
        Replayed::of(is_same, failure)
    }

    /// The command that opens recovery in gdb. `directory` is an empty directory for the crash image, which has to
    /// live as long as the debugger.
    pub fn debugger(&self, runtime: &[u8], directory: &Path) -> Result<Command, CheckError> {
        let images = directory.join("image");
        let failed = |source| CheckError::File {
            path: directory.to_path_buf(),
            source,
        };
        std::fs::create_dir(&images).map_err(failed)?;
        self.write_image(&images)?;
        let ImageCommands {
            commands,
            mut variables,
            needs_runtime,
        } = self.commands_on(&images)?;
        if needs_runtime {
            let library = directory.join("runtime.so");
            std::fs::write(&library, runtime).map_err(failed)?;
            variables.push(("LD_PRELOAD".into(), library.into()));
        }
        let mut command = Command::new("gdb");
        for (name, value) in &variables {
            let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
            command.arg("-ex");
            command.arg(format!("set environment {name} {value}"));
        }
        command
            .arg("--args")
            .args(commands.iter().take(1).flat_map(|(_, words)| words))
            .current_dir(&self.recovery.working_directory)
            .env("PMEM_IS_PMEM_FORCE", "1")
            .env("PMEM2_FORCE_GRANULARITY", "CACHE_LINE");
        Ok(command)
    }

    /// The commands of recovery on a crash image that was written to a directory, recovery itself first.
    pub fn commands_on(&self, images: &Path) -> Result<ImageCommands, CheckError> {
        let tree = self.tree()?;
        let layout = Layout::of(self.trace, &[])?;
        let persistent = Persistent::of(self.trace);
        let mut variables = persistent.variables(&mut |_| ());
        let needs_runtime = !variables.is_empty();
        let mapping = |(original, relative): (&Path, &Path)| PoolMapping {
            original: original.into(),
            private: images.join(relative),
        };
        let mut mappings: Vec<PoolMapping> = layout.files().map(mapping).collect();
        let mut directory_of_tree = PathBuf::new();
        if let Some((recording, ..)) = &tree {
            let roots = recording.roots.iter().enumerate();
            let root = |(number, root): (usize, &PathBuf)| PoolMapping {
                original: root.clone(),
                private: match recording.roots.len() {
                    1 => images.to_path_buf(),
                    _ => images.join(number.to_string()),
                },
            };
            mappings = roots.map(root).collect();
            directory_of_tree = recording.roots.first().cloned().unwrap_or_default();
        }
        let pool = persistent.pool().unwrap_or_default();
        let directory = &self.recovery.working_directory;
        let directory = std::path::absolute(directory).map_err(|source| CheckError::File {
            path: directory.clone(),
            source,
        })?;
        let substitution =
            Substitution::of_paths(&pool, &mappings, &directory).with_directory(&directory_of_tree);
        for (_, value) in &mut variables {
            *value = substitution.apply(value);
        }
        variables.splice(..0, self.recovery.environment.iter().cloned());
        let commands = self.recovery.commands().map(|(name, words)| {
            let mut words = self.recovery.with_input(words);
            for word in words.iter_mut().skip(1) {
                *word = substitution.apply(word);
            }
            (name, words)
        });
        Ok(ImageCommands {
            commands: commands.collect(),
            variables,
            needs_runtime,
        })
    }
}

/// The crash state that shows a failure.
pub(crate) fn state_of(evidence: &Evidence, rules: Rules) -> CrashState {
    let line_bytes = rules.domain.line_bytes() as u64;
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

/// What lies on top of it.
pub(crate) fn overlay_of(evidence: &Evidence) -> Result<Vec<Patch>, CheckError> {
    let again = evidence.failure.again.iter();
    again
        .flat_map(|again| &again.written)
        .chain(&evidence.failure.filled)
        .map(|written| {
            Ok(Patch {
                pool: PoolIndex(written.pool),
                offset: written.pool_offset,
                bytes: powerfail_finding::from_hex(&written.bytes)
                    .ok_or(CheckError::DamagedReport)?,
            })
        })
        .collect()
}

/// The bytes that a store changed which its transaction does not roll back.
fn stored_by(finding: &Finding, trace: &Trace) -> Option<(Place, usize)> {
    if finding.code != Code::StoreNotAdded {
        return None;
    }
    let store = finding.places.first()?;
    let path = store.pool.as_deref()?;
    let name = FreshName::of(trace);
    let mut pools = (0..).zip(trace.pools());
    let is_it = |pool: &Pool| name.hide(&pool.path.display().to_string()) == path;
    let (pool, _) = pools.find(|(_, pool)| is_it(pool))?;
    let at = Place::new(PoolIndex(pool), PoolOffset(store.pool_offset?));
    Some((at, usize::try_from(store.len_bytes?).ok()?))
}

/// Whether two outcomes are of one kind, whatever the output is.
fn is_alike(one: &RecoveryOutcome, other: &RecoveryOutcome) -> bool {
    use RecoveryOutcome::{Exit, Output, Signal, Timeout};
    match (one, other) {
        (Exit { status, .. }, Exit { status: other, .. }) => status == other,
        (Signal { signal, .. }, Signal { signal: other, .. }) => signal == other,
        (Timeout { .. }, Timeout { .. }) | (Output { .. }, Output { .. }) => true,
        _ => false,
    }
}

/// Whether two findings are about the same read, by lines of code.
fn is_same_read(one: &Finding, other: &Finding) -> bool {
    let lines = |finding: &Finding| -> Vec<_> {
        let places = finding.places.iter();
        places
            .filter(|it| matches!(it.role, Role::Store | Role::Allocation | Role::Load))
            .map(|it| (it.role, it.file.clone(), it.line, it.function.clone()))
            .collect()
    };
    one.code == other.code && lines(one) == lines(other)
}
