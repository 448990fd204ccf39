//! `powerfail merge`: the shares of a run become one report.
//!
//! The shares name the command that they are shares of. It is done once more, as a whole and with their outcomes.

use std::ffi::OsString;

use anyhow::Context;
use clap::Parser;
use powerfail_check::{Shares, output_directory};
use powerfail_config::{OutputSettings, ShareSettings, TestSettings};

use crate::args::{Cli, Command, MergeArgs};
use crate::check::{conclude, run_with};
use crate::configuration::configuration;
use crate::consent;
use crate::exit::Exit;
use crate::interrupt;

pub(crate) fn merge(args: &MergeArgs) -> anyhow::Result<Exit> {
    let shares = Shares::open(&args.directories)?;
    Shares::refuse(&args.directories, &args.out)?;
    let mut words = vec![OsString::from("powerfail")];
    words.extend(shares.arguments().iter().cloned());
    for directory in &args.directories {
        let (_, recovery) = output_directory::load(directory)?;
        consent::ask_for_share(directory, args.yes, &words, &recovery)?;
    }
    let command = Cli::try_parse_from(words).context("parse the command of the shares")?;
    let config = configuration()?;
    interrupt::watch();
    match command.command {
        Command::Check(check) => {
            let mut settings = check.options.settle(config.check)?;
            adapt(&mut settings.test, args);
            let result = run_with(&config.suppress, Some(shares), args.yes, |session| {
                session.check(&settings)
            });
            conclude(result, &settings.test.report, &settings.test.output)
        }
        Command::Crash(crash) => {
            let mut settings = crash.options.settle(config.crash)?;
            adapt(&mut settings.test, args);
            let result = run_with(&config.suppress, Some(shares), args.yes, |session| {
                session.crash(&crash.trace, &settings)
            });
            conclude(result, &settings.test.report, &settings.test.output)
        }
        Command::Races(races) => {
            let mut settings = races.options.settle(config.races)?;
            adapt(&mut settings.test, args);
            let result = run_with(&config.suppress, Some(shares), args.yes, |session| {
                session.races(&races.trace, &settings)
            });
            conclude(result, &settings.test.report, &settings.test.output)
        }
        _ => anyhow::bail!("the command of the shares is not check, crash or races"),
    }
}

/// The whole run instead of a share of it, with the output that was asked for.
fn adapt(test: &mut TestSettings, args: &MergeArgs) {
    test.shares = ShareSettings {
        partition: None,
        resume: false,
    };
    if let Some(jobs) = args.jobs {
        test.failures.jobs = jobs;
    }
    test.output = OutputSettings {
        out: Some(args.out.clone()),
        format: args.format.clone(),
        ..test.output.clone()
    };
}
