//! Runs by snapshots, if they make no difference: on the first images recovery is run both ways.

use crate::backup::Backup;
use crate::error::OracleError;
use crate::message::{Ran, RunReply};
use crate::slot::Slot;
use crate::verdict::Verdict;

/// On so many images recovery is run with and without snapshots.
const COMPARED_IMAGES: u32 = 3;

/// Whether recovery is forked from snapshots.
#[derive(Debug)]
pub(super) enum Snapshots {
    /// It is, and on so many more images it is compared with plain execution.
    On {
        to_compare: u32,
        note: Option<String>,
    },
    /// It is not, and why, if it was to be.
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
    /// Why some or all commands are not forked from snapshots although that was asked for.
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

    /// Runs the plan on what the private files hold now, and judges it: forked from snapshots if the settings
    /// allow it and it works.
    ///
    /// What an earlier recovery left in a private directory that held only pools is removed before, and
    /// when the slot is dropped.
    pub fn run(&mut self) -> Result<Verdict, OracleError> {
        let Snapshots::On { to_compare, .. } = self.snapshots else {
            return self.run_plain();
        };
        if to_compare > 0 {
            return self.run_both_ways();
        }
        let ran = self.ask(false, true, false)?;
        self.take_note(&ran);
        self.verdict_of(ran.reply)
    }

    /// Runs the plan as [`run`](Self::run) does, but executes every command.
    pub fn run_plain(&mut self) -> Result<Verdict, OracleError> {
        let ran = self.ask(false, false, false)?;
        self.verdict_of(ran.reply)
    }

    /// Runs it by snapshots and then plainly, and sees whether that makes a difference.
    fn run_both_ways(&mut self) -> Result<Verdict, OracleError> {
        let privates = self.mappings.iter().map(|it| &it.private);
        let backup = match Backup::of(privates) {
            Ok(backup) => backup,
            Err(error) => {
                let reason = format!("an image cannot be copied, to compare: {error}");
                self.snapshots = Snapshots::Off(Some(reason));
                return self.run_plain();
            }
        };
        let restore = |slot: &Self| {
            let failed = |error| OracleError::system("restore an image", &error);
            slot.remove_leftovers(&slot.placeholders)?;
            backup.restore().map_err(failed)
        };
        let forked = self.ask(false, true, true)?;
        self.take_note(&forked);
        restore(self)?;
        let plain = self.ask(false, false, true)?;
        if !forked.by_snapshot {
            return self.verdict_of(plain.reply);
        }
        if !is_same(&forked, &plain) {
            // It may be different each time.
            restore(self)?;
            let again = self.ask(false, false, true)?;
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

    /// Takes note of what a run says about snapshots.
    fn take_note(&mut self, ran: &Ran) {
        let Snapshots::On { note, .. } = &mut self.snapshots else {
            return;
        };
        note.clone_from(&ran.note);
        if !ran.by_snapshot && is_verdict(&ran.reply) {
            let reason = ran.note.clone();
            self.snapshots = Snapshots::Off(reason);
        }
    }
}

fn is_verdict(reply: &RunReply) -> bool {
    matches!(reply, RunReply::Success { .. } | RunReply::Failure { .. })
}

/// Whether two runs did the same, as far as can be seen. Where a hang was does not count.
fn is_same(one: &Ran, other: &Ran) -> bool {
    let dump = |ran: &Ran| match &ran.reply {
        RunReply::Success { dump } => dump.clone(),
        _ => None,
    };
    is_alike(&one.reply, &other.reply) && one.texts == other.texts && dump(one) == dump(other)
}

/// Whether two runs ended the same way, whatever they wrote.
fn is_alike(one: &RunReply, other: &RunReply) -> bool {
    match (one, other) {
        (
            RunReply::Failure { stage, end, .. },
            RunReply::Failure {
                stage: other_stage,
                end: other_end,
                ..
            },
        ) => stage == other_stage && end == other_end,
        (RunReply::Success { .. }, RunReply::Success { .. }) => true,
        _ => false,
    }
}

/// In words.
fn difference(forked: &Ran, plain: &Ran) -> String {
    let what = if !is_alike(&forked.reply, &plain.reply) {
        "ends differently"
    } else if forked.texts != plain.texts {
        "writes something else"
    } else {
        "has another dump"
    };
    format!("recovery {what} when it is forked from a snapshot")
}
