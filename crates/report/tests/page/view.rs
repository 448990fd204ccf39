//! The browser for the terminal, on a terminal in memory.

use std::path::Path;

use powerfail_model::Rules;
use powerfail_report::view::{Browser, Command};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::sample::Sample;

struct Screen<'a> {
    browser: Browser<'a>,
    terminal: Terminal<TestBackend>,
}

impl<'a> Screen<'a> {
    fn of(sample: &'a Sample) -> Self {
        let (base, out) = (Path::new("/src"), Path::new("powerfail-out"));
        let browser = Browser::new(&sample.report, &sample.trace, Rules::default(), base, out);
        let terminal = Terminal::new(TestBackend::new(110, 30)).expect("memory");
        Self { browser, terminal }
    }

    /// What the terminal shows after these keys.
    fn after(&mut self, commands: &[Command]) -> String {
        for command in commands {
            self.browser.act(*command).expect("a trace");
        }
        let browser = &mut self.browser;
        let drawn = self
            .terminal
            .draw(|frame| browser.draw(frame).expect("a trace"));
        drawn.expect("memory");
        self.terminal.backend().to_string()
    }
}

#[track_caller]
fn assert_shows(screen: &str, words: &[&str]) {
    for word in words {
        assert!(screen.contains(word), "no `{word}` in:\n{screen}");
    }
}

#[test]
fn findings_lead_to_their_failure_in_the_trace() {
    let sample = Sample::new(3);
    let mut screen = Screen::of(&sample);
    let shown = screen.after(&[]);
    assert_shows(
        &shown,
        &["PF0301", "PF0501", "1 of 3 findings", "unique-0", "Enter"],
    );
    assert_shows(
        &shown,
        &[
            "recovery: exited with status 1",
            "powerfail replay 00000000",
        ],
    );
    let shown = screen.after(&[Command::Down]);
    assert_shows(&shown, &["2 of 3 findings"]);
    let shown = screen.after(&[Command::Up, Command::Enter]);
    assert_shows(
        &shown,
        &["before event 6", "2 open lines, 4 crash states", "✗ PF0301"],
    );
    assert_shows(&shown, &["0:0x80", "durable by the event", "0:0x40"]);
    let shown = screen.after(&[Command::Down]);
    assert_shows(&shown, &["before event 7", "1 open line, 2 crash states"]);
    let shown = screen.after(&[Command::Back]);
    assert_shows(&shown, &["1 of 3 findings"]);
}

/// Of files the operations are shown that a crash can take.
#[test]
fn operations_on_files_open_and_become_durable() {
    let sample = Sample::files();
    let mut screen = Screen::of(&sample);
    let shown = screen.after(&[Command::Enter]);
    assert_shows(
        &shown,
        &["before event 3", "3 operations not surely durable"],
    );
    assert_shows(&shown, &["1 write        settings.new at 0 +8"]);
    // The sync does that to the data and to the names of the file.
    assert_shows(&shown, &["durable by the event"]);
    let shown = screen.after(&[Command::First]);
    assert_shows(&shown, &["0 operations not surely durable", ", opened"]);
    let shown = screen.after(&[Command::NextFailurePoint]);
    assert_shows(&shown, &["before event 3 "]);
}

#[test]
fn the_trace_is_walked_by_failure_points() {
    let sample = Sample::new(1);
    let mut screen = Screen::of(&sample);
    screen.after(&[Command::Switch]);
    // Nothing is stored after event 6, so the states before event 8 are covered.
    for event in [2, 6] {
        let shown = screen.after(&[Command::NextFailurePoint]);
        assert_shows(&shown, &[&format!("before event {event}\u{20}")]);
    }
    let shown = screen.after(&[Command::NextFailurePoint]);
    assert_shows(&shown, &["there is no later failure point"]);
    let shown = screen.after(&[Command::PreviousFailurePoint]);
    assert_shows(&shown, &["before event 2 "]);
    let shown = screen.after(&[Command::PreviousFailurePoint]);
    assert_shows(&shown, &["there is no earlier failure point"]);
    // The ends hold.
    let shown = screen.after(&[Command::First, Command::Up, Command::PageUp]);
    assert_shows(&shown, &["before event 0 ", "0 open lines, 1 crash state"]);
    let shown = screen.after(&[Command::Last, Command::Down, Command::PageDown]);
    assert_shows(&shown, &["before event 8 "]);
}
