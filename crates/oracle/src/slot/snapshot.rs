//! Runs forked from snapshots, if that makes no difference: on the first images recovery is run both ways.

use crate::backup::Backup;
use crate::error::OracleError;
use crate::message::{Patience, RunOptions, RunReply, RunResult, StartMode};
use crate::slot::Slot;
use crate::verdict::Verdict;

/// The number of images on which recovery is run with and without snapshots.
const COMPARED_IMAGES: u32 = 3;
const FORKED: RunOptions = RunOptions {
    start: StartMode::ForkFromSnapshot,
    with_outputs: false,
    patience: Patience::Full,
};

/// Whether recovery is forked from snapshots.
#[derive(Debug)]
pub(super) enum Snapshots {
    /// It is, and on `to_compare` more images it is compared with execution.
    On {
        to_compare: u32,
        note: Option<String>,
    },
    /// It is not; the reason, if it was requested.
    Off(Option<String>),
}

impl Snapshots {
    pub(super) fn new(wanted: bool) -> Self {
        if wanted {
            Self::On {
                to_compare: COMPARED_IMAGES,
                note: None,
            }
        } else {
            Self::Off(None)
        }
    }
}

impl Slot {
    /// Why some or all commands are not forked from snapshots although the settings ask for it.
    pub fn snapshot_note(&self) -> Option<&str> {
        match &self.snapshots {
            Snapshots::On { note, .. } => note.as_deref(),
            Snapshots::Off(reason) => reason.as_deref(),
        }
    }

    /// Whether runs are forked from snapshots, as far as is known.
    pub fn uses_snapshots(&self) -> bool {
        matches!(self.snapshots, Snapshots::On { .. })
    }

    /// Executes the plan and judges it, as `run_plain` does, on pools that no crash leaves. A command that takes several
    /// times as long as on other pools has failed. Returns also what each command printed, except the content that a
    /// dump prints.
    pub fn run_on_changed_pools(&mut self) -> Result<(Verdict, Vec<String>), OracleError> {
        let ran = self.request_run(RunOptions {
            patience: Patience::Short,
            ..RunOptions::default().with_outputs()
        })?;
        Ok((self.verdict_of(ran.reply)?, ran.outputs))
    }

    /// Runs the plan on the private files and judges it. Commands are forked from snapshots if the settings allow
    /// it and it works.
    ///
    /// Files that an earlier recovery left in a private directory that held only pools are removed before, and
    /// when the slot is dropped.
    pub fn run(&mut self) -> Result<Verdict, OracleError> {
        let Snapshots::On { to_compare, .. } = self.snapshots else {
            return self.run_plain();
        };
        if to_compare > 0 {
            return self.run_both_ways();
        }
        let ran = self.request_run(FORKED)?;
        self.take_note(&ran);
        self.verdict_of(ran.reply)
    }

    /// Runs the plan as [`run`](Self::run) does, but executes every command.
    pub fn run_plain(&mut self) -> Result<Verdict, OracleError> {
        let ran = self.request_run(RunOptions::default())?;
        self.verdict_of(ran.reply)
    }

    /// Runs the plan from snapshots and then by execution, and compares.
    fn run_both_ways(&mut self) -> Result<Verdict, OracleError> {
        let privates = self.mappings.iter().map(|it| &it.private);
        let backup = match Backup::of(privates) {
            Ok(backup) => backup,
            Err(error) => {
                let reason = format!("cannot copy an image to compare runs on it: {error}");
                self.snapshots = Snapshots::Off(Some(reason));
                return self.run_plain();
            }
        };
        let restore = |slot: &Self| {
            slot.remove_leftovers(&slot.placeholders)?;
            backup
                .restore()
                .map_err(OracleError::system("restore an image"))
        };
        let forked = self.request_run(FORKED.with_outputs())?;
        self.take_note(&forked);
        restore(self)?;
        let plain = self.request_run(RunOptions::default().with_outputs())?;
        if !forked.from_snapshot {
            return self.verdict_of(plain.reply);
        }
        if !is_same(&forked, &plain) {
            // Recovery may differ from run to run.
            restore(self)?;
            let again = self.request_run(RunOptions::default().with_outputs())?;
            let steady = is_same(&plain, &again);
            if steady || !is_alike(&forked.reply, &plain.reply) {
                let reason = difference(&forked, &plain);
                self.snapshots = Snapshots::Off(Some(reason));
            }
        }
        if let Snapshots::On { to_compare, .. } = &mut self.snapshots {
            *to_compare -= 1;
        }
        self.verdict_of(plain.reply)
    }

    /// Keeps the note of a run about snapshots.
    fn take_note(&mut self, ran: &RunResult) {
        let Snapshots::On { note, .. } = &mut self.snapshots else {
            return;
        };
        note.clone_from(&ran.snapshot_note);
        if !ran.from_snapshot && ran.reply.is_verdict() {
            let reason = ran.snapshot_note.clone();
            self.snapshots = Snapshots::Off(reason);
        }
    }
}

/// Whether two runs have the same outcome and output. Where a hang was does not count.
fn is_same(one: &RunResult, other: &RunResult) -> bool {
    let dump = |ran: &RunResult| match &ran.reply {
        RunReply::Success { dump } => dump.clone(),
        _ => None,
    };
    is_alike(&one.reply, &other.reply) && one.outputs == other.outputs && dump(one) == dump(other)
}

/// Whether two runs have the same outcome, whatever they wrote.
fn is_alike(one: &RunReply, other: &RunReply) -> bool {
    match (one, other) {
        (
            RunReply::Failure { stage, kind, .. },
            RunReply::Failure {
                stage: other_stage,
                kind: other_kind,
                ..
            },
        ) => stage == other_stage && kind == other_kind,
        (RunReply::Success { .. }, RunReply::Success { .. }) => true,
        _ => false,
    }
}

/// The difference between two runs, as a reason.
fn difference(forked: &RunResult, plain: &RunResult) -> String {
    let what = if !is_alike(&forked.reply, &plain.reply) {
        "has a different outcome"
    } else if forked.outputs != plain.outputs {
        "has a different output"
    } else {
        "has a different dump"
    };
    format!("recovery {what} when it is forked from a snapshot")
}
