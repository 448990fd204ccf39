//! The progress of a running campaign: a panel for terminals, and single lines for logs.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use powerfail_finding::{Class, Finding, Severity};
use powerfail_fuzz_store::Stats;

use super::history::History;
use crate::{count, plural};

const FAINT: Style = Style::new().dimmed();
const STRONG: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();

/// Columns of the name of a number.
const NAME: usize = 12;
/// Columns of the left half.
const HALF: usize = 40;
/// In a narrower panel, numbers are not placed side by side.
const WIDE: usize = 2 * HALF;

/// The panel, in lines of at most `width` columns.
pub fn panel(target: &str, stats: &Stats, history: &History, width: usize) -> Vec<String> {
    let width = width.clamp(30, 100);
    let mut panel = Panel {
        lines: Vec::new(),
        width,
    };
    panel.head(target, stats.time_s);
    let speed = format!("{}/s", count(rounded(stats.execs_per_s)));
    panel.pair(("executions", &count(stats.execs)), ("speed", &speed));
    let mut reached = plural(stats.pm_locations, "location");
    if stats.branches > 0 {
        let branches = plural_of(stats.branches, "branch", "branches");
        let _ = write!(reached, ", {branches}");
    }
    panel.pair(("PM paths", &count(stats.pm_paths)), ("reached", &reached));
    let corpus = plural(stats.corpus, "test case");
    panel.pair(("corpus", &corpus), ("last new", &last_new(stats)));
    let (all, crashed) = (count(stats.images), count(stats.crash_images));
    let images = format!("{all}, {crashed} from crashes");
    panel.pair(("images", &images), ("stability", &stability(stats)));
    let (waiting, done) = (count(stats.checks_waiting), count(stats.checks_done));
    let checks = format!("{waiting} waiting, {done} done");
    panel.pair(("checks", &checks), ("ends", &ends(stats)));
    panel.one("findings", &findings(stats), style_of(stats));
    panel.one("", &history.blocks(width - NAME - 1), GOOD);
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

    /// A number on its own line.
    fn one(&mut self, name: &str, value: &str, style: Style) {
        let name = format!("{name:<NAME$}");
        let value = shortened(value, self.width - NAME - 1);
        self.lines
            .push(format!("{FAINT}{name}{FAINT:#} {style}{value}{style:#}"));
    }

    /// Two numbers, side by side if the panel is wide enough.
    fn pair(&mut self, left: (&str, &str), right: (&str, &str)) {
        if self.width < WIDE {
            self.one(left.0, left.1, Style::new());
            self.one(right.0, right.1, Style::new());
            return;
        }
        let value = shortened(left.1, HALF - NAME - 2);
        let value = format!("{value:<room$}", room = HALF - NAME - 1);
        let last = shortened(right.1, self.width - HALF - NAME - 1);
        let (left, right) = (left.0, right.0);
        self.lines.push(format!(
            "{FAINT}{left:<NAME$}{FAINT:#} {value}{FAINT}{right:<NAME$}{FAINT:#} {last}"
        ));
    }
}

fn plural_of(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

fn rounded(number: f64) -> u64 {
    #[expect(
        clippy::cast_sign_loss,
        reason = "negative numbers saturate, and there are none"
    )]
    let whole = number.round() as u64;
    whole
}

/// Cuts a text to `room` columns, and replaces control characters.
fn shortened(text: &str, room: usize) -> String {
    let text: String = text
        .chars()
        .map(|it| if it.is_control() { '?' } else { it })
        .collect();
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

/// A duration for people.
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
    format!(
        "{} ago",
        duration((stats.time_s - stats.last_new_s).max(0.0))
    )
}

/// Rounded down: 100% means that every location is stable.
pub(super) fn stability(stats: &Stats) -> String {
    let percent = (stats.stability * 1000.0).floor() / 10.0;
    format!("{percent:.1}%")
}

fn ends(stats: &Stats) -> String {
    let crashes = stats.crashes.saturating_sub(stats.timeouts);
    format!(
        "{}, {}",
        plural_of(crashes, "crash", "crashes"),
        plural(stats.timeouts, "timeout")
    )
}

fn findings(stats: &Stats) -> String {
    if stats.findings == 0 {
        return "none yet".into();
    }
    format!("{}  {}", count(stats.findings), by_class(stats))
}

fn style_of(stats: &Stats) -> Style {
    if stats.findings == 0 {
        Style::new()
    } else {
        BAD
    }
}

/// The name of a class, as in JSON.
fn class_name(class: Class) -> String {
    let name = serde_json::to_value(class).ok();
    let name = name.and_then(|name| name.as_str().map(str::to_owned));
    name.unwrap_or_default()
}

/// The number of findings of each class.
fn by_class(stats: &Stats) -> String {
    let classes = stats.findings_by_class.iter();
    let classes: Vec<_> = classes
        .map(|(class, number)| format!("{} {}", class_name(*class), count(*number)))
        .collect();
    classes.join(", ")
}

/// One line about the state of a campaign, for output that is not a terminal.
pub fn status_line(stats: &Stats) -> String {
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
pub fn finding_line(finding: &Finding) -> String {
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
        let _ = write!(
            line,
            " {FAINT}({}:{number}){FAINT:#}",
            shortened(file, usize::MAX)
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> Stats {
        Stats {
            time_s: 3725.4,
            execs: 1_234_567,
            execs_per_s: 4512.3,
            pm_paths: 2345,
            pm_locations: 812,
            corpus: 300,
            images: 41,
            crash_images: 30,
            stability: 0.999_99,
            last_new_s: 3600.0,
            findings: 3,
            findings_by_class: [(Class::RedundantFlush, 1), (Class::Ordering, 2)].into(),
            checks_waiting: 4,
            checks_done: 1000,
            crashes: 3,
            timeouts: 2,
            ..Stats::default()
        }
    }

    fn plain(lines: &[String]) -> Vec<String> {
        let plain = |line: &String| anstream::adapter::strip_str(line).to_string();
        lines.iter().map(plain).collect()
    }

    fn history() -> History {
        let mut history = History::default();
        (0..200).for_each(|value| history.add(value));
        history
    }

    #[test]
    fn the_panel_has_every_number_of_the_campaign() {
        let lines = plain(&panel("./kv {pool}", &stats(), &history(), 80));
        let expected = [
            "./kv {pool}                                                              1:02:05",
            "────────────────────────────────────────────────────────────────────────────────",
            "executions   1,234,567                  speed        4,512/s",
            "PM paths     2,345                      reached      812 locations",
            "corpus       300 test cases             last new     2 min 05 s ago",
            "images       41, 30 from crashes        stability    99.9%",
            "checks       4 waiting, 1,000 done      ends         1 crash, 2 timeouts",
            "findings     3  ordering 2, redundant-flush 1",
        ];
        assert_eq!(lines[..8], expected);
        assert!(lines[8].trim_end().ends_with('█'), "{}", lines[8]);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let target =
            "./a-program-with-a-very-long-name --and --many --arguments {pool} {input} and more";
        for width in 30..120 {
            for line in plain(&panel(target, &stats(), &history(), width)) {
                let len = line.chars().count();
                assert!(len <= width, "{len} of {width}: {line}");
            }
        }
    }

    #[test]
    fn nothing_yet_is_said() {
        let lines = plain(&panel("./kv", &Stats::default(), &History::default(), 80));
        assert!(
            lines.iter().any(|line| line.ends_with("nothing yet")),
            "{lines:#?}"
        );
        assert!(
            lines.iter().any(|line| line.ends_with("none yet")),
            "{lines:#?}"
        );
    }

    #[test]
    fn a_line_for_files() {
        assert_eq!(
            status_line(&stats()),
            "[1:02:05] 1,234,567 executions, 4,512/s; 2,345 PM paths; 300 test cases; 41 images; \
             stability 99.9%; last new 2 min 05 s ago; 3 findings"
        );
    }

    #[test]
    fn control_characters_cannot_move_the_cursor() {
        let lines = panel("./kv \u{1b}[2J\n", &stats(), &history(), 80);
        assert!(plain(&lines)[0].starts_with("./kv ?[2J?"), "{}", lines[0]);
    }
}
