//! What a campaign looks like while it runs: lines of text, made of numbers and nothing else.

use std::fmt::Write;

use clap::builder::styling::{AnsiColor, Style};
use powerfail_campaign::Stats;
use powerfail_finding::{Finding, Severity};
use powerfail_report::{count, plural};

use super::history::History;

const FAINT: Style = Style::new().dimmed();
const STRONG: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();

/// Columns of the name of a number, and of the number itself on the left half.
const NAME: usize = 12;
const HALF: usize = 40;
/// Narrower than this nothing is arranged side by side.
const WIDE: usize = 2 * HALF;

/// The panel, in lines that are at most so wide.
pub(super) fn panel(target: &str, stats: &Stats, history: &History, width: usize) -> Vec<String> {
    let width = width.clamp(30, 100);
    let mut panel = Panel {
        lines: Vec::new(),
        width,
    };
    panel.head(target, stats.time_s);
    panel.pair(
        ("executions", count(stats.execs)),
        ("speed", format!("{}/s", count(rounded(stats.execs_per_s)))),
    );
    let mut reached = plural(stats.pm_locations, "location");
    if stats.branches > 0 {
        let _ = write!(reached, ", {}", plural_of(stats.branches, "branch", "branches"));
    }
    panel.pair(("PM paths", count(stats.pm_paths)), ("reached", reached));
    panel.pair(
        ("corpus", plural(stats.corpus, "test case")),
        ("last new", last_new(stats)),
    );
    panel.pair(
        (
            "images",
            format!("{}, {} of crashes", count(stats.images), count(stats.crash_images)),
        ),
        ("stability", stability(stats)),
    );
    let checks = format!(
        "{} waiting, {} done",
        count(stats.checks_waiting),
        count(stats.checks_done)
    );
    panel.pair(("checks", checks), ("ends", ends(stats)));
    panel.one("findings", &findings(stats));
    let blocks = history.blocks(width - NAME - 1);
    panel.one("", &format!("{GOOD}{blocks}{GOOD:#}"));
    panel.lines
}

struct Panel {
    lines: Vec<String>,
    width: usize,
}

impl Panel {
    fn head(&mut self, target: &str, time_s: f64) {
        let clock = clock(time_s);
        let room = self.width.saturating_sub(clock.len() + 2);
        let target = shortened(target, room);
        let gap = self.width - target.chars().count() - clock.len();
        let gap = " ".repeat(gap);
        self.lines
            .push(format!("{STRONG}{target}{STRONG:#}{gap}{clock}"));
        let rule = "─".repeat(self.width);
        self.lines.push(format!("{FAINT}{rule}{FAINT:#}"));
    }

    /// A number.
    fn one(&mut self, name: &str, value: &str) {
        let name = format!("{name:<NAME$}");
        self.lines.push(format!("{FAINT}{name}{FAINT:#} {value}"));
    }

    /// Two numbers, side by side if there is room.
    fn pair(&mut self, left: (&str, String), right: (&str, String)) {
        if self.width < WIDE {
            self.one(left.0, &left.1);
            self.one(right.0, &right.1);
            return;
        }
        let value = format!("{:<room$}", left.1, room = HALF - NAME - 1);
        let (left, right_name) = (left.0, right.0);
        self.lines.push(format!(
            "{FAINT}{left:<NAME$}{FAINT:#} {value}{FAINT}{right_name:<NAME$}{FAINT:#} {}",
            right.1
        ));
    }
}

fn plural_of(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

fn rounded(number: f64) -> u64 {
    #[expect(
        clippy::cast_sign_loss,
        reason = "what is below zero saturates, and there is nothing such"
    )]
    let whole = number.round() as u64;
    whole
}

/// Cut where there is no more room.
fn shortened(text: &str, room: usize) -> String {
    let text: String = text.chars().map(|it| if it.is_control() { '?' } else { it }).collect();
    if text.chars().count() <= room {
        return text;
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}…")
}

fn clock(time_s: f64) -> String {
    let seconds = rounded(time_s.floor());
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours}:{minutes:02}:{seconds:02}")
}

/// A length of time as people say it.
pub(super) fn duration(seconds: f64) -> String {
    let whole = rounded(seconds);
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

fn last_new(stats: &Stats) -> String {
    if stats.corpus == 0 {
        return "nothing yet".into();
    }
    format!("{} ago", duration((stats.time_s - stats.last_new_s).max(0.0)))
}

/// Rounded down, because 100% is a promise.
pub(super) fn stability(stats: &Stats) -> String {
    let percent = (stats.stability * 1000.0).floor() / 10.0;
    format!("{percent:.1}%")
}

fn ends(stats: &Stats) -> String {
    let crashes = stats.crashes.saturating_sub(stats.timeouts);
    format!("{}, {}", plural_of(crashes, "crash", "crashes"), plural(stats.timeouts, "timeout"))
}

fn findings(stats: &Stats) -> String {
    if stats.findings == 0 {
        return "none yet".into();
    }
    let classes = by_class(stats);
    format!("{BAD}{}{BAD:#}  {classes}", count(stats.findings))
}

/// How many there are of each class.
pub(super) fn by_class(stats: &Stats) -> String {
    let classes = stats.findings_by_class.iter();
    let classes: Vec<_> = classes
        .map(|(class, number)| format!("{} {}", class.as_str(), count(*number)))
        .collect();
    classes.join(", ")
}

/// One line about now, where there is no terminal.
pub(super) fn line(stats: &Stats) -> String {
    format!(
        "[{}] {}, {}/s; {}; {}; {}; stability {}; last new {}; {}",
        clock(stats.time_s),
        plural(stats.execs, "execution"),
        count(rounded(stats.execs_per_s)),
        plural(stats.pm_paths, "PM path"),
        plural(stats.corpus, "test case"),
        plural(stats.images, "image"),
        stability(stats),
        last_new(stats),
        plural(stats.findings, "finding"),
    )
}

/// One line about a finding.
pub(super) fn finding(finding: &Finding) -> String {
    let (style, word) = match finding.severity {
        Severity::Warning => (WARNING, "warning"),
        Severity::Performance => (WARNING, "performance"),
        Severity::Error => (BAD, "error"),
    };
    let code = finding.code.as_str();
    let message = shortened(&finding.message, usize::MAX);
    let mut line = format!("{style}{word}[{code}]{style:#} {} {message}", finding.id);
    let place = finding.places.first();
    if let Some((file, number)) = place.and_then(|it| Some((it.file.as_ref()?, it.line?))) {
        let _ = write!(line, " {FAINT}({}:{number}){FAINT:#}", shortened(file, usize::MAX));
    }
    line
}
