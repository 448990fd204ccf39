//! `powerfail demo`: the whole way, on a store inside of this binary.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use powerfail_check::output_directory;

use crate::args::{Cli, Command, DemoArgs};
use crate::check;
use crate::exit::Exit;

const BEFORE: &str = "\
This is a small key-value store in persistent memory, and it is built into powerfail. It has
four planted bugs: the count of entries becomes durable before the entry that it counts; an entry is
flushed twice; a fence has nothing to wait for; and one store is never flushed. The store runs once,
then the power fails wherever it matters.
";

const AFTER: &str = "
What to try next:
  powerfail check -- ./your-program '{pool}'
      the same for a program of yours; {pool} is a fresh file, or name your own pool
  powerfail check --recover './your-program --verify {pool}' -- ./your-program '{pool}'
      if recovery is another command
  powerfail explain PF0301
      what a finding means, and what to do about it
";

pub(crate) fn demo(args: &DemoArgs) -> anyhow::Result<Exit> {
    let own = std::env::current_exe().context("find this program")?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(output_directory::DEFAULT));
    let own = own.display().to_string();
    let recover = format!("'{own}' demo-store --recover {{pool}}");
    let words = [
        "powerfail".to_owned(),
        "check".into(),
        "--out".into(),
        PathBuf::from(&out).display().to_string(),
        "--recover".into(),
        recover.clone(),
        "--".into(),
        own,
        "demo-store".into(),
        "{pool}".into(),
    ];
    let mut err = anstream::stderr();
    let _ = writeln!(err, "{BEFORE}");
    let shown = "powerfail check --recover 'demo-store --recover {pool}' -- demo-store {pool}";
    let _ = writeln!(err, "$ {shown}\n");
    let Command::Check(check) = Cli::try_parse_from(words)?.command else {
        anyhow::bail!("the command line of the demo is not one of check");
    };
    let exit = check::check(&check)?;
    if exit != Exit::Findings {
        return Ok(exit);
    }
    let _ = writeln!(err, "{AFTER}");
    Ok(Exit::Clean)
}
