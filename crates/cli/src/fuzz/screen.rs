//! What is shown while a campaign runs: a panel at the bottom of a terminal, with findings above it as they come;
//! plain lines where there is no terminal.
//!
//! Nothing about the terminal is changed that would have to be restored: the panel is text that is drawn over
//! itself, so however the process ends, the terminal works.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use powerfail_finding::Finding;
use powerfail_fuzz::{Observer, Stats};

use super::history::History;
use super::panel;
use crate::interrupt;

/// How often there is a plain line, in seconds.
const LINE_EVERY_S: f64 = 5.0;
/// How often the panel is drawn while nobody has news, so that it stays whole when the terminal is resized.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// See the module header.
pub(super) struct Screen {
    target: String,
    bar: Option<ProgressBar>,
    state: Mutex<State>,
    /// Which findings end the campaign.
    ends_with: fn(&Finding) -> bool,
    has_ended: AtomicBool,
}

#[derive(Default)]
struct State {
    history: History,
    /// When the last plain line was, in seconds of the campaign.
    last_line_s: Option<f64>,
    is_ending: bool,
}

impl Screen {
    /// The screen of a campaign with this target, which some findings end.
    pub(super) fn new(target: String, ends_with: fn(&Finding) -> bool) -> Self {
        Self {
            target,
            ends_with,
            has_ended: AtomicBool::new(false),
            bar: std::io::stderr().is_terminal().then(bar),
            state: Mutex::default(),
        }
    }

    /// Takes the panel away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line that stays.
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| write_line(line)),
            None => write_line(line),
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(DRAW_EVERY);
    bar
}

fn write_line(line: &str) {
    // If nobody reads standard error, so be it.
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// The panel as standard error can show it.
fn styled(lines: &[String]) -> String {
    let text = lines.join("\n");
    match anstream::AutoStream::choice(&std::io::stderr()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
        _ => text,
    }
}

impl Observer for Screen {
    fn stats(&self, stats: &Stats) {
        let mut kept = self.state();
        kept.history.add(stats.pm_paths);
        if let Some(bar) = &self.bar {
            let width = terminal_size::terminal_size_of(std::io::stderr());
            // The last column stays free: some terminals begin a new line there.
            let width = width
                .map_or(80, |(width, _)| usize::from(width.0))
                .saturating_sub(1);
            let mut lines = panel::panel(&self.target, stats, &kept.history, width);
            lines.push(String::new());
            if interrupt::is_interrupted() {
                lines.push("stopping; interrupt again to stop at once".into());
            } else {
                lines.push("Ctrl-C stops".into());
            }
            bar.set_message(styled(&lines));
            return;
        }
        let is_due = kept
            .last_line_s
            .is_none_or(|last| stats.time_s - last >= LINE_EVERY_S);
        if is_due {
            kept.last_line_s = Some(stats.time_s);
            write_line(&panel::line(stats));
        }
    }

    fn finding(&self, finding: &Finding, _directory: &Path) {
        self.say(&panel::finding(finding));
        if (self.ends_with)(finding) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
    }

    fn warning(&self, sentence: &str) {
        self.say(&format!("warning: {sentence}"));
    }

    fn is_interrupted(&self) -> bool {
        let is_interrupted = interrupt::is_interrupted();
        if is_interrupted && self.bar.is_none() {
            let mut state = self.state();
            if !state.is_ending {
                state.is_ending = true;
                write_line("stopping; interrupt again to stop at once");
            }
        }
        is_interrupted || self.has_ended.load(Ordering::Relaxed)
    }
}
