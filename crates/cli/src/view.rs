//! `powerfail view`: the terminal of the browser, and gdb on a finding.

use std::io::IsTerminal;

use anyhow::Context;
use powerfail_check::output_directory;
use powerfail_report::view::{Browser, Command};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::args::{ReplayArgs, ViewArgs};
use crate::exit::Exit;
use crate::progress::read_trace;
use crate::replay;

pub(crate) fn view(args: &ViewArgs) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal(),
        "view needs a terminal; powerfail report prints the same findings as text"
    );
    let out = &args.run;
    let (report, recovery) = output_directory::load(out)
        .with_context(|| format!("{} is not the output directory of a check", out.display()))?;
    let name = output_directory::TRACE;
    let trace = read_trace(output_directory::open_trace(out, name)?);
    let trace = trace.with_context(|| out.join(name).display().to_string())?;
    let base = std::env::current_dir().unwrap_or_default();
    let mut browser = Browser::new(&report, &trace, recovery.rules(), &base, out);
    // The terminal is restored however this ends, a panic included.
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let ended = run(&mut terminal, &mut browser, args);
    ratatui::restore();
    ended?;
    Ok(Exit::Clean)
}

fn run(
    terminal: &mut ratatui::DefaultTerminal,
    browser: &mut Browser<'_>,
    args: &ViewArgs,
) -> anyhow::Result<()> {
    loop {
        let mut drawn = Ok(());
        terminal.draw(|frame| drawn = browser.draw(frame))?;
        drawn?;
        let Event::Key(key) = event::read()? else {
            continue;
        };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let command = match key.code {
            KeyCode::Char('c') if is_control => return Ok(()),
            KeyCode::Char('q') => return Ok(()),
            KeyCode::Char('g') => {
                debug(terminal, browser, args)?;
                continue;
            }
            KeyCode::Up | KeyCode::Char('k') => Command::Up,
            KeyCode::Down | KeyCode::Char('j') => Command::Down,
            KeyCode::PageUp => Command::PageUp,
            KeyCode::PageDown | KeyCode::Char(' ') => Command::PageDown,
            KeyCode::Home => Command::First,
            KeyCode::End | KeyCode::Char('G') => Command::Last,
            KeyCode::Tab => Command::Switch,
            KeyCode::Enter => Command::Enter,
            KeyCode::Esc => Command::Back,
            KeyCode::Char('n') => Command::NextFailurePoint,
            KeyCode::Char('p' | 'N') => Command::PreviousFailurePoint,
            KeyCode::Char('f') => Command::NextFinding,
            _ => continue,
        };
        browser.act(command)?;
    }
}

/// Leaves the screen to gdb, and takes it back.
fn debug(
    terminal: &mut ratatui::DefaultTerminal,
    browser: &mut Browser<'_>,
    args: &ViewArgs,
) -> anyhow::Result<()> {
    let Some(finding) = browser.chosen() else {
        browser.say("choose a finding first".to_owned());
        return Ok(());
    };
    let replay = ReplayArgs {
        id: finding.id.clone(),
        out: args.run.clone(),
        image: None,
        gdb: true,
        shell: false,
        recover: None,
        export: None,
        yes: false,
    };
    ratatui::restore();
    let ended = replay::replay(&replay);
    *terminal = ratatui::try_init().context("the terminal")?;
    terminal.clear()?;
    if let Err(error) = ended {
        browser.say(format!("{error:#}"));
    }
    Ok(())
}
