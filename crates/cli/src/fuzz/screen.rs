//! Shows a running campaign: a panel at the bottom of the terminal, with findings above it as they are made, or plain
//! lines if standard error is not a terminal.
//!
//! The state of the terminal is not changed, so nothing has to be restored if the process is killed: the panel is text
//! that is drawn over itself.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use powerfail_finding::Finding;
use powerfail_fuzz::{CampaignObserver, Stats};
use powerfail_report::fuzz::{History, finding_line, panel, status_line};

use crate::interrupt;

/// How often a plain line is written, in seconds.
const LINE_EVERY_S: f64 = 5.0;
/// How often the panel is drawn without news, so that it stays intact when the terminal is resized.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// The screen of a campaign.
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
    /// When the last plain line was written, in seconds of the campaign.
    last_line_s: Option<f64>,
    is_ending: bool,
}

impl Screen {
    /// The screen of a campaign on a target. Findings for which `ends_with` is true end the campaign.
    pub(super) fn new(target: String, ends_with: fn(&Finding) -> bool) -> Self {
        Self {
            target,
            ends_with,
            has_ended: AtomicBool::new(false),
            bar: std::io::stderr().is_terminal().then(bar),
            state: Mutex::default(),
        }
    }

    /// Removes the panel.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line above the panel.
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
    // A closed standard error is not a reason to stop.
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// The panel, with styles if standard error shows them.
fn styled(lines: &[String]) -> String {
    let text = lines.join("\n");
    match anstream::AutoStream::choice(&std::io::stderr()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
        _ => text,
    }
}

impl CampaignObserver for Screen {
    fn stats(&self, stats: &Stats) {
        let mut kept = self.state();
        kept.history.add(stats.pm_paths);
        if let Some(bar) = &self.bar {
            let width = terminal_size::terminal_size_of(std::io::stderr());
            // The last column stays free, because some terminals wrap there.
            let width = width
                .map_or(80, |(width, _)| usize::from(width.0))
                .saturating_sub(1);
            let mut lines = panel(&self.target, stats, &kept.history, width);
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
            write_line(&status_line(stats));
        }
    }

    fn finding(&self, finding: &Finding, _directory: &Path) {
        self.say(&finding_line(finding));
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
