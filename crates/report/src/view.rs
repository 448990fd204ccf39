//! A browser for the terminal: findings, and the trace event by event, with lines that open and become durable.
//!
//! [`Browser`] is what is shown and what keys do; it draws into a frame of ratatui and knows no terminal. `events.rs` has the
//! trace: the state of the model at any event, from checkpoints, so that moving back costs no pass over the whole trace.

mod events;
mod file_state;

use std::path::Path;

use powerfail_finding::{Finding, Report, Severity};
use powerfail_model::Rules;
use powerfail_trace::{Trace, TraceError};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use crate::files::file_system_of;
use crate::findings::{TextOptions, finding, outcome_sentence};
use crate::text::{big_plural, count, plural, printable};
use events::Events;

const BAD: Style = Style::new().fg(Color::Red);
const OPENED: Style = Style::new().fg(Color::Yellow);
const DURABLE: Style = Style::new().fg(Color::Green);
const FAINT: Style = Style::new().fg(Color::DarkGray);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// One up or down.
    Up,
    /// The same.
    Down,
    /// A screen up or down.
    PageUp,
    /// The same.
    PageDown,
    /// To the first or the last.
    First,
    /// The same.
    Last,
    /// Between findings and trace.
    Switch,
    /// From a finding to its failure in the trace.
    Enter,
    /// To the next failure point.
    NextFailurePoint,
    /// To the failure point before.
    PreviousFailurePoint,
    /// To the next event at which a finding has its failure.
    NextFinding,
    /// Back to the findings.
    Back,
}

/// Which of the two is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Screen {
    Findings,
    Trace,
}

/// The browser.
pub struct Browser<'a> {
    report: &'a Report,
    base: &'a Path,
    out: &'a Path,
    screen: Screen,
    selected: usize,
    /// Lines by which the text of a finding is moved.
    scroll: u16,
    events: Events<'a>,
    message: String,
}

impl<'a> Browser<'a> {
    /// A browser of a run. `base` is the directory against which paths are shown, `out` the output directory.
    pub fn new(
        report: &'a Report,
        trace: &'a Trace,
        rules: Rules,
        base: &'a Path,
        out: &'a Path,
    ) -> Self {
        Self {
            report,
            base,
            out,
            screen: if report.findings.is_empty() {
                Screen::Trace
            } else {
                Screen::Findings
            },
            selected: 0,
            scroll: 0,
            events: Events::new(trace, rules, file_system_of(report, rules, trace)),
            message: String::new(),
        }
    }

    /// The finding that is chosen, if findings are shown.
    pub fn chosen(&self) -> Option<&'a Finding> {
        let is_shown = self.screen == Screen::Findings;
        self.report.findings.get(self.selected).filter(|_| is_shown)
    }

    /// Says something in the last line, until the next key.
    pub fn say(&mut self, text: String) {
        self.message = text;
    }

    /// Does what a key means.
    pub fn act(&mut self, command: Command) -> Result<(), TraceError> {
        self.message.clear();
        match (command, self.screen) {
            (Command::Switch, Screen::Findings) => self.screen = Screen::Trace,
            (Command::Switch | Command::Back, Screen::Trace) => {
                if self.report.findings.is_empty() {
                    self.message = String::from("there are no findings");
                } else {
                    self.screen = Screen::Findings;
                }
            }
            (Command::Enter, Screen::Findings) => self.enter(),
            (Command::Up | Command::Down, Screen::Findings) => {
                let last = self.report.findings.len().saturating_sub(1);
                self.selected = match command {
                    Command::Up => self.selected.saturating_sub(1),
                    _ => (self.selected + 1).min(last),
                };
                self.scroll = 0;
            }
            (Command::First, Screen::Findings) => self.selected = 0,
            (Command::Last, Screen::Findings) => {
                self.selected = self.report.findings.len().saturating_sub(1);
            }
            (Command::PageUp, Screen::Findings) => self.scroll = self.scroll.saturating_sub(10),
            (Command::PageDown, Screen::Findings) => self.scroll = self.scroll.saturating_add(10),
            (Command::NextFinding, _) => self.next_finding(),
            (Command::NextFailurePoint | Command::PreviousFailurePoint, _) => {
                self.screen = Screen::Trace;
                let is_next = command == Command::NextFailurePoint;
                if !self.events.go_to_failure_point(is_next)? {
                    let which = if is_next { "later" } else { "earlier" };
                    self.message = format!("there is no {which} failure point");
                }
            }
            (Command::Up, Screen::Trace) => self.events.step(-1),
            (Command::Down, Screen::Trace) => self.events.step(1),
            (Command::PageUp, Screen::Trace) => self.events.page(-1),
            (Command::PageDown, Screen::Trace) => self.events.page(1),
            (Command::First, Screen::Trace) => self.events.go(0),
            (Command::Last, Screen::Trace) => self.events.go(u64::MAX),
            (Command::Enter, Screen::Trace) | (Command::Back, Screen::Findings) => {}
        }
        Ok(())
    }

    /// To the failure of the chosen finding.
    fn enter(&mut self) {
        let Some(finding) = self.report.findings.get(self.selected) else {
            return;
        };
        match event_of(finding) {
            Some((event, None)) => {
                self.events.go(event);
                self.screen = Screen::Trace;
            }
            Some((_, Some(trace))) => {
                self.message = format!(
                    "this finding is shown by {}: see powerfail trace events",
                    printable(trace)
                );
            }
            None => self.message = String::from("this finding names no event"),
        }
    }

    fn next_finding(&mut self) {
        let findings = self.report.findings.iter().filter_map(event_of);
        let events = findings.filter(|(_, trace)| trace.is_none());
        let cursor = self.events.cursor();
        let later = events.map(|(event, _)| event).filter(|it| *it > cursor);
        match later.min() {
            Some(event) => {
                self.screen = Screen::Trace;
                self.events.go(event);
            }
            None => self.message = String::from("there is no later finding"),
        }
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>) -> Result<(), TraceError> {
        let [head, body, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        match self.screen {
            Screen::Findings => self.draw_findings(frame, body),
            Screen::Trace => self.draw_trace(frame, body)?,
        }
        let foot_text = if self.message.is_empty() {
            Line::styled(self.keys(), FAINT)
        } else {
            Line::styled(self.message.clone(), OPENED)
        };
        frame.render_widget(Paragraph::new(foot_text), foot);
        Ok(())
    }

    fn head(&self) -> Line<'a> {
        let command = self.report.command.join(" ");
        let tab = |name: &'static str, screen| {
            let style = if self.screen == screen {
                CHOSEN
            } else {
                Style::new()
            };
            Span::styled(name, style)
        };
        Line::from(vec![
            tab(" findings ", Screen::Findings),
            tab(" trace ", Screen::Trace),
            Span::styled(format!("  {}", printable(&command)), FAINT),
        ])
    }

    const fn keys(&self) -> &'static str {
        match self.screen {
            Screen::Findings => {
                "↑↓ finding  PgUp PgDn text  Enter its failure  g gdb  Tab trace  q quit"
            }
            Screen::Trace => {
                "↑↓ event  PgUp PgDn Home End  n p failure point  f finding  Tab findings  q quit"
            }
        }
    }

    fn draw_findings(&self, frame: &mut Frame<'_>, area: Rect) {
        let findings = &self.report.findings;
        let height = (findings.len() as u16).min(area.height / 3).max(1) + 1;
        let [list, text] =
            Layout::vertical([Constraint::Length(height), Constraint::Min(1)]).areas(area);
        let rows = usize::from(list.height.saturating_sub(1));
        let first = self.selected.saturating_sub(rows.saturating_sub(1));
        let lines = findings.iter().enumerate().skip(first).take(rows);
        let lines: Vec<Line<'_>> = lines
            .map(|(number, finding)| {
                let style = match finding.severity {
                    Severity::Error => BAD,
                    Severity::Performance => OPENED,
                    Severity::Warning => FAINT,
                };
                let place = finding.places.first();
                let place = place.and_then(powerfail_finding::SourcePlace::file_and_line);
                let line = Line::from(vec![
                    Span::styled(format!("{} ", finding.code), style),
                    Span::raw(printable(&finding.message).into_owned()),
                    Span::styled(format!("  {}", place.unwrap_or_default()), FAINT),
                ]);
                if number == self.selected {
                    line.style(CHOSEN)
                } else {
                    line
                }
            })
            .collect();
        let title = format!(
            "{} of {}",
            count(self.selected as u64 + 1),
            plural(findings.len() as u64, "finding")
        );
        let block = Block::new().borders(Borders::BOTTOM).title_bottom(title);
        frame.render_widget(Paragraph::new(lines).block(block), list);
        let Some(chosen) = findings.get(self.selected) else {
            return;
        };
        let shown = self.text_of(chosen, text.width.into());
        frame.render_widget(
            Paragraph::new(shown)
                .wrap(Wrap { trim: false })
                .scroll((self.scroll, 0)),
            text,
        );
    }

    /// A finding as its text report has it, without styles.
    fn text_of(&self, chosen: &Finding, width: usize) -> String {
        let mut bytes = Vec::new();
        let options = TextOptions {
            width: Some(width),
            base: self.base,
            out: Some(self.out),
            warnings: true,
        };
        // Memory does not fail.
        let _ = finding(&mut bytes, chosen, &options);
        let mut text = String::new();
        let mut letters = String::from_utf8_lossy(&bytes).into_owned();
        // Styles are sequences that begin with an escape and end with a letter m.
        while let Some(start) = letters.find('\u{1b}') {
            text.push_str(&letters[..start]);
            let end = letters[start..]
                .find('m')
                .map_or(letters.len(), |end| start + end + 1);
            letters.drain(..end);
        }
        text + &letters
    }

    fn draw_trace(&mut self, frame: &mut Frame<'_>, area: Rect) -> Result<(), TraceError> {
        let side = (area.width / 3).clamp(20, 44).min(area.width);
        let [list, lines] =
            Layout::horizontal([Constraint::Min(20), Constraint::Length(side)]).areas(area);
        let window = self.events.window(list.height.into())?;
        let cursor = self.events.cursor();
        let failures = self.report.findings.iter();
        let failures: Vec<(u64, &Finding)> = failures
            .filter_map(|finding| match event_of(finding)? {
                (event, None) => Some((event, finding)),
                _ => None,
            })
            .collect();
        // Places stand below each other; a narrow window shows as much of them as it can.
        let widest = window.rows.iter().map(|row| row.text.chars().count()).max();
        let width = widest.unwrap_or_default().clamp(34, 48);
        let mut rows: Vec<Line<'_>> = Vec::new();
        for row in &window.rows {
            let fails = failures.iter().find(|(event, _)| *event == row.event);
            let mark = match (fails, row.is_failure_point) {
                (Some(_), _) => Span::styled("✗", BAD),
                (None, true) => Span::styled("·", OPENED),
                (None, false) => Span::raw(" "),
            };
            let style = match (row.opens, row.closes) {
                (_, true) => DURABLE,
                (true, false) => OPENED,
                _ => Style::new(),
            };
            let line = Line::from(vec![
                mark,
                Span::styled(format!("{:>10} {:>3}  ", row.event, row.thread), FAINT),
                Span::styled(format!("{:<width$}", row.text), style),
                Span::styled(format!(" {}", row.place), FAINT),
            ]);
            rows.push(if row.event == cursor {
                line.style(CHOSEN)
            } else {
                line
            });
        }
        frame.render_widget(Paragraph::new(rows), list);
        let mut right: Vec<Line<'_>> = vec![
            Line::from(format!("before event {cursor}")),
            Line::from(match &window.states {
                Some(states) => format!(
                    "{}, {}",
                    plural(window.open_count as u64, "open line"),
                    big_plural(states, "crash state")
                ),
                None => format!(
                    "{} not surely durable",
                    plural(window.open_count as u64, "operation")
                ),
            }),
        ];
        for (_, finding) in failures.iter().filter(|(event, _)| *event == cursor) {
            let outcome = finding.evidence.as_ref().map(outcome_sentence);
            let text = outcome.unwrap_or_else(|| finding.message.clone());
            right.push(Line::styled(
                format!("✗ {} {}", finding.code, printable(&text)),
                BAD,
            ));
        }
        right.push(Line::from(""));
        for line in &window.open {
            let style = match line.change {
                events::Change::Closes => DURABLE,
                events::Change::Opens | events::Change::Grows => OPENED,
                events::Change::None => Style::new(),
            };
            right.push(Line::styled(
                match line.stores {
                    Some(stores) => format!(
                        "{:<14} {} open{}",
                        line.name,
                        plural(stores as u64, "store"),
                        line.change.words()
                    ),
                    None => format!("{}{}", line.name, line.change.words()),
                },
                style,
            ));
        }
        let block = Block::new().borders(Borders::LEFT).border_style(FAINT);
        let right = Paragraph::new(right)
            .wrap(Wrap { trim: false })
            .block(block);
        frame.render_widget(right, lines);
        Ok(())
    }
}

/// The event before which the power fails, or that of the first place, and the trace if it is not that of the run.
fn event_of(finding: &Finding) -> Option<(u64, Option<&str>)> {
    if let Some(evidence) = &finding.evidence {
        return Some((evidence.failure.event, evidence.trace.as_deref()));
    }
    if let Some(read) = &finding.read {
        return Some((read.event, read.trace.as_deref()));
    }
    let event = finding.places.iter().find_map(|place| place.event)?;
    Some((event, None))
}
