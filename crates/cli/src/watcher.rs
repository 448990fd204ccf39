//! What a user sees while a check runs.

use std::io::{IsTerminal, Write};

use powerfail_check::{Event, Observer, Step};
use powerfail_report::findings;

use crate::interrupt;
use crate::progress::Progress;

/// Shows the events of a check on standard error.
#[derive(Default)]
pub(crate) struct Watcher {
    progress: Option<(Step, u64, Progress)>,
}

impl Watcher {
    fn advance(&mut self, step: Step, done: u64, of: u64) {
        match &mut self.progress {
            Some((current, last, progress)) if *current == step && done >= *last => {
                progress.advance(done - *last);
                *last = done;
            }
            _ => {
                // The old bar is removed before the new one is drawn.
                self.progress = None;
                let progress = Progress::items(of);
                progress.advance(done);
                self.progress = Some((step, done, progress));
            }
        }
    }

    /// Writes a line in place of the progress bar.
    fn line(&mut self, text: &str) {
        self.progress = None;
        let _ = writeln!(anstream::stderr(), "{text}");
    }
}

impl Observer for Watcher {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Progress { step, done, of } => self.advance(step, done, of),
            Event::Plan {
                runs,
                points,
                estimate,
            } => self.line(&findings::plan_sentence(runs, points, estimate)),
            Event::Combinations {
                eager,
                states,
                estimate,
            } => {
                self.progress = None;
                let _ = findings::combinations(&mut anstream::stderr(), eager, states, estimate);
            }
            Event::Recorded(summary) => {
                self.progress = None;
                let _ = powerfail_report::record::choice_of_pools(&mut anstream::stderr(), summary);
            }
            Event::Note(sentence) => self.line(&format!("note: {sentence}")),
            Event::Warning(sentence) => self.line(&format!("warning: {sentence}")),
            Event::Schedules {
                recordings,
                distinct,
            } => self.line(&findings::schedules_sentence(recordings, distinct)),
            // The report follows; a notice is for a user who waits at a terminal.
            Event::Finding(finding) if std::io::stderr().is_terminal() => {
                self.line(&findings::notice(finding));
            }
            _ => {}
        }
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_interrupted()
    }
}
