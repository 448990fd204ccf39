//! What a user sees while a check runs.

use std::io::{IsTerminal, Write};

use powerfail_check::{CheckEvent, CheckStep, ForeignTrace, Observer};
use powerfail_report::findings;

use crate::consent;
use crate::interrupt;
use crate::progress::{Items, Progress, READING};

/// Shows the events of a check on standard error: one bar, with the step that it is about.
#[derive(Default)]
pub(crate) struct Watcher {
    progress: Option<Progress>,
    /// Whether commands of traces of others run without a question.
    yes: bool,
}

/// What is done in a step, and what is counted.
const fn label(step: CheckStep) -> (&'static str, Items) {
    match step {
        CheckStep::Read => (READING, Items::Bytes),
        CheckStep::Schedules => ("recording other orders of threads", Items::Equal),
        CheckStep::Lint => ("linting the trace", Items::Equal),
        CheckStep::Points => ("finding failure points", Items::Equal),
        CheckStep::Undisturbed => ("recovering without a crash", Items::Equal),
        CheckStep::Crashes => ("crashing", Items::Equal),
        CheckStep::Lazy => ("losing and reordering lines", Items::Unequal),
        CheckStep::LazyAgain => ("losing and reordering more lines", Items::Unequal),
        CheckStep::Second => ("crashing again during recovery", Items::Unequal),
        CheckStep::Races => ("watching reads of recovery", Items::Equal),
        CheckStep::Infer => ("looking for commit variables", Items::Unequal),
        CheckStep::Reasons => ("explaining failures", Items::Unequal),
        CheckStep::OracleTest => ("testing whether recovery can fail", Items::Equal),
    }
}

impl Watcher {
    /// With `yes`, commands of traces of others run without a question.
    pub(crate) fn new(yes: bool) -> Self {
        let progress = None;
        Self { progress, yes }
    }

    fn advance(&mut self, step: CheckStep, done: u64, of: u64) {
        let progress = self.progress.get_or_insert_with(Progress::steps);
        let (label, items) = label(step);
        progress.show(label, items, done, of);
    }

    /// Writes a line above the progress bar.
    fn line(&self, text: &str) {
        self.above(|| {
            let _ = writeln!(anstream::stderr(), "{text}");
        });
    }

    fn above(&self, write: impl FnOnce()) {
        match &self.progress {
            Some(progress) => progress.line(write),
            None => write(),
        }
    }
}

impl Observer for Watcher {
    fn allow(&mut self, foreign: &ForeignTrace<'_>) -> Result<(), String> {
        if self.yes {
            return Ok(());
        }
        self.progress = None;
        consent::ask_for_trace(foreign).map_err(|error| error.to_string())
    }

    fn event(&mut self, event: CheckEvent<'_>) {
        match event {
            CheckEvent::Progress { step, done, of } => self.advance(step, done, of),
            CheckEvent::Plan {
                runs,
                points,
                estimate,
                budget,
            } => self.line(&findings::plan_sentence(runs, points, estimate, budget)),
            CheckEvent::Combinations {
                eager,
                states,
                estimate,
            } => {
                self.above(|| {
                    let stderr = &mut anstream::stderr();
                    let _ = findings::combinations(stderr, eager, states, estimate);
                });
            }
            CheckEvent::Recorded(summary) => {
                self.progress = None;
                let _ = powerfail_report::record::choice_of_pools(&mut anstream::stderr(), summary);
            }
            CheckEvent::Note(sentence) => self.line(&format!("note: {sentence}")),
            CheckEvent::Warning(sentence) => self.line(&format!("warning: {sentence}")),
            CheckEvent::Schedules {
                recordings,
                distinct,
            } => self.line(&findings::schedules_sentence(recordings, distinct)),
            // The report follows; a notice is for a user who waits at a terminal.
            CheckEvent::Failing { code, at } if std::io::stderr().is_terminal() => {
                self.line(&findings::failing_notice(code, at.0));
            }
            CheckEvent::Finding(finding) if std::io::stderr().is_terminal() => {
                self.line(&findings::notice(finding));
            }
            _ => {}
        }
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_interrupted()
    }
}
