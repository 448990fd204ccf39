//! `powerfail fuzz`: its commands and their flags.
//!
//! What a campaign remembers has no default here: `--resume` takes what no flag says from the campaign.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use powerfail_config::parse_duration;
use powerfail_fuzz::Checks;

use super::{AtomicityArg, DomainArg};

const EXAMPLES: &str = "\
Examples:
  powerfail fuzz --time 10m -- ./kv '{pool}'
      commands on standard input, ten minutes, all processors
  powerfail fuzz --seeds inputs/ --dict kv.dict --out kv-out -- ./kv '{pool}'
      with inputs to begin with, and words that the program knows
  powerfail fuzz --input file -- ./load '{pool}' '{input}'
      the input is a file
  powerfail fuzz --desock -- ./server --pool '{pool}'
      the input is what clients send
  powerfail fuzz --resume --out kv-out
      go on where it was stopped or killed
  powerfail replay 712ae318 --out kv-out
      show a finding again
  powerfail fuzz plot kv-out -o kv.svg
      PM paths over time
  powerfail fuzz --out team --name a -- ./kv '{pool}'
      one of several instances, which share what they find";

// The command line of a campaign and those of the subcommands are alternatives.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_long_help = EXAMPLES
)]
pub(crate) struct FuzzArgs {
    #[command(subcommand)]
    pub(crate) command: Option<FuzzCommand>,
    #[command(flatten)]
    pub(crate) campaign: Box<FuzzCampaignArgs>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FuzzCommand {
    /// Draw how campaigns went on, as SVG: PM paths over time
    Plot(FuzzPlotArgs),
    /// Show what a campaign has found: test cases, images, findings
    Show(FuzzShowArgs),
    /// Keep only the test cases that it takes to reach everything that the campaign has reached
    ///
    /// The others are retired: they stay on disk, and --resume does not use them any more. Images stay, because
    /// others were made from them.
    Cmin(FuzzCminArgs),
    /// Make a test case as short as it can be while it reaches the same
    ///
    /// The new one has a number of its own, and the old one is retired.
    Tmin(FuzzTminArgs),
    /// Be the target of afl-fuzz: run a program for it, with PM paths as coverage
    ///
    /// afl-fuzz starts this command as its target. It speaks the protocol of AFL++'s fork server, runs each
    /// input from a fork of the program that has opened its pool already, and gives PM paths, and branches if
    /// the program counts them, as the coverage of the input:
    ///
    ///   afl-fuzz -i seeds -o out -- powerfail fuzz afl -- ./kv '{pool}'
    ///
    /// The program needs no instrumentation. docs/guide/fuzzing.md has the whole recipe.
    Afl(FuzzAflArgs),
}

/// How the target gets its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputArg {
    /// On standard input
    Stdin,
    /// In a file: {input} is its path
    File,
    /// As arguments: the words of the input, in the place of {input}
    Args,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzCampaignArgs {
    /// Inputs to begin with: each file of this directory is one [default: an empty line]
    #[arg(long, value_name = "DIR", help_heading = "What is run")]
    pub(crate) seeds: Option<PathBuf>,
    /// Images to begin with: each entry of this directory is a pool, or a directory with the files of one
    ///
    /// Without them the target starts where there is no pool, and creates it.
    #[arg(long, value_name = "DIR", help_heading = "What is run")]
    pub(crate) images: Option<PathBuf>,
    /// How the target gets its input [default: file if the command has {input}, else stdin]
    #[arg(long, value_enum, value_name = "WAY", help_heading = "What is run")]
    pub(crate) input: Option<InputArg>,
    /// The target is a server: what it accepts and receives comes from the input, and what it sends goes nowhere
    #[arg(long, help_heading = "What is run")]
    pub(crate) desock: bool,
    /// Words that the target understands, in AFL's format: a quoted string on each line
    #[arg(long, value_name = "FILE", help_heading = "What is run")]
    pub(crate) dict: Option<PathBuf>,
    /// A grammar of inputs
    #[arg(long, value_name = "FILE", help_heading = "What is run")]
    pub(crate) grammar: Option<PathBuf>,
    /// How long an execution may take [default: 150ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "What is run")]
    pub(crate) timeout: Option<Duration>,
    /// Tell operations on persistent memory apart by their whole call stacks
    ///
    /// Otherwise an operation is its instruction: one helper that flushes for everybody is one operation.
    #[arg(long, help_heading = "What is run")]
    pub(crate) stacks: bool,
    /// Do not fix addresses, time, random numbers and process numbers for the target
    #[arg(long, help_heading = "What is run")]
    pub(crate) no_derandomise: bool,
    /// How many crash images at random points are made of each new test case, on average, besides those at
    /// ordering points that are new [default: 1]
    #[arg(long, value_name = "RATE", value_parser = parse_rate, help_heading = "What is run")]
    pub(crate) crash_rate: Option<f64>,
    /// Decides what is chosen at random [default: 0]
    #[arg(long, value_name = "N", help_heading = "What is run")]
    pub(crate) seed: Option<u64>,

    /// Where everything is kept [default: powerfail-fuzz]
    #[arg(long, value_name = "DIR", help_heading = "How long, and where")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the campaign in --out, however it ended
    ///
    /// The command and whatever no flag says are those of the campaign. Flags that are given stay, but for those that
    /// say how long.
    #[arg(long, help_heading = "How long, and where")]
    pub(crate) resume: bool,
    /// Stop after this time [default: when interrupted]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "How long, and where")]
    pub(crate) time: Option<Duration>,
    /// Stop after so many executions, not counting those before --resume
    #[arg(long, value_name = "N", help_heading = "How long, and where")]
    pub(crate) execs: Option<u64>,
    /// Stop at the first finding that is a bug
    #[arg(long, help_heading = "How long, and where")]
    pub(crate) until_found: bool,
    /// How many processors are used, for fuzzing and checking together [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024),
        help_heading = "How long, and where")]
    pub(crate) jobs: Option<u64>,
    /// Print what came of it as one JSON object
    #[arg(long, help_heading = "How long, and where")]
    pub(crate) json: bool,

    /// What becomes of each new test case: some of lint, prefix, lazy and races, or none [default: all four]
    ///
    /// lint looks for patterns of misuse; prefix lets the power fail with all earlier stores durable; lazy loses
    /// and reorders lines as far as recovery can tell; races watches what recovery reads.
    #[arg(long, value_name = "CHECKS", value_parser = parse_checks, help_heading = "How it is checked")]
    pub(crate) check_with: Option<Checks>,
    #[command(flatten)]
    pub(crate) recovery: FuzzRecoveryArgs,

    /// Import test cases of other campaigns, now and then: a directory of one, or of several; can be repeated
    #[arg(long, value_name = "DIR", help_heading = "Several instances")]
    pub(crate) sync: Vec<PathBuf>,
    /// The name of this instance: it keeps everything in a directory of this name in --out, and imports from the
    /// others that are there
    #[arg(long, value_name = "NAME", help_heading = "Several instances")]
    pub(crate) name: Option<String>,
    /// Let instances on other machines join at this port
    #[arg(long, value_name = "PORT", value_parser = parse_port, help_heading = "Several instances")]
    pub(crate) broker: Option<u16>,
    /// Join the instance with --broker at this address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address, conflicts_with = "broker",
        help_heading = "Several instances")]
    pub(crate) join: Option<String>,

    /// The target: a command and its arguments
    ///
    /// {pool} in an argument is replaced by the path of its pool, {input} by that of its input, or with --input args
    /// by the words of the input.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) target: Vec<OsString>,
}

/// How recovery is run and judged: the flags of `check` that make sense for thousands of test cases.
#[derive(Debug, Args)]
pub(crate) struct FuzzRecoveryArgs {
    /// The command that recovers after a crash [default: the target again, with an empty input]
    ///
    /// {pool} is replaced by the path of the pool. Words are split as a shell does; a line with operators of the
    /// shell is given to one.
    #[arg(long, value_name = "CMD", help_heading = "How it is checked")]
    pub(crate) recover: Option<String>,
    /// A command that judges what recovery made of the pool, by its exit status
    #[arg(
        long,
        visible_alias = "check",
        value_name = "CMD",
        help_heading = "How it is checked"
    )]
    pub(crate) checker: Option<String>,
    /// A command that prints the logical content after recovery, to find silent loss
    #[arg(long, value_name = "CMD", help_heading = "How it is checked")]
    pub(crate) dump: Option<String>,
    /// How long each command of a recovery may take; longer is a hang, and a bug [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "How it is checked")]
    pub(crate) recover_timeout: Option<Duration>,
    /// How long the checks of one test case may take, about [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "How it is checked")]
    pub(crate) budget: Option<Duration>,
    /// Exit codes of recovery that are a success besides 0
    #[arg(
        long,
        value_name = "CODES",
        value_delimiter = ',',
        help_heading = "How it is checked"
    )]
    pub(crate) ok_exit: Vec<u8>,
    /// A line of recovery's output that matches is a failure; can be repeated
    #[arg(long, value_name = "REGEX", help_heading = "How it is checked")]
    pub(crate) fail_pattern: Vec<String>,
    /// Also fail while PMDK creates a pool, which is not failure-atomic by design
    #[arg(long, help_heading = "How it is checked")]
    pub(crate) include_create: bool,
    /// Limits the address space of recovery, in MiB
    #[arg(long, value_name = "MIB", help_heading = "How it is checked")]
    pub(crate) memory_limit: Option<u64>,
    /// Limits the length of files that the target and recovery write, in MiB [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 30),
        help_heading = "How it is checked")]
    pub(crate) file_limit: Option<u64>,
    /// What becomes durable in one piece [default: store]
    #[arg(
        long,
        value_enum,
        value_name = "UNIT",
        help_heading = "How it is checked"
    )]
    pub(crate) atomicity: Option<AtomicityArg>,
    /// What survives a crash without any instruction [default: adr]
    #[arg(
        long,
        value_enum,
        value_name = "DOMAIN",
        help_heading = "How it is checked"
    )]
    pub(crate) domain: Option<DomainArg>,
    /// Also report warnings
    #[arg(long, help_heading = "How it is checked")]
    pub(crate) warnings: bool,
    /// Count warnings as bugs
    #[arg(long, value_name = "WHAT", value_parser = ["warnings"], help_heading = "How it is checked")]
    pub(crate) deny: Option<String>,
    /// Trust this module too: what it does by itself is not reported; can be repeated
    #[arg(long, value_name = "MODULE", help_heading = "How it is checked")]
    pub(crate) trust: Vec<String>,
    /// Do not trust this module; can be repeated
    #[arg(long, value_name = "MODULE", help_heading = "How it is checked")]
    pub(crate) no_trust: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzPlotArgs {
    /// Output directories of campaigns: each is a line
    #[arg(required = true, value_name = "OUT")]
    pub(crate) out: Vec<PathBuf>,
    /// Where the picture goes [default: standard output]
    #[arg(short, long, value_name = "FILE.svg")]
    pub(crate) output: Option<PathBuf>,
    /// What is drawn: a number in stats.jsonl, such as pm_paths, pm_locations, execs, execs_per_s, corpus, images,
    /// stability or findings
    #[arg(long, default_value = "pm_paths", value_name = "FIELD")]
    pub(crate) of: String,
    /// A logarithmic scale of values
    #[arg(long)]
    pub(crate) log: bool,
    /// A logarithmic scale of time
    #[arg(long)]
    pub(crate) log_time: bool,
    /// What stands above the picture
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzShowArgs {
    /// The output directory of the campaign; it may be running
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// List the test cases
    #[arg(long)]
    pub(crate) cases: bool,
    /// List the images: what each was made from, and where the power failed
    #[arg(long)]
    pub(crate) images: bool,
    /// Write an image into the new directory --to; the beginning of its name is enough
    #[arg(long, value_name = "ID", requires = "to", conflicts_with_all = ["cases", "images", "json"])]
    pub(crate) image: Option<String>,
    /// Where it is written
    #[arg(long, value_name = "DIR", requires = "image")]
    pub(crate) to: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzCminArgs {
    /// The output directory of a campaign that does not run
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzTminArgs {
    /// The output directory of a campaign that does not run
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// The number of the test case, as in OUT/queue
    #[arg(value_name = "NUMBER")]
    pub(crate) number: u64,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzAflArgs {
    /// The image that the target starts from: a pool, or a directory with the files of one [default: none, so that
    /// the target creates its pool]
    #[arg(long, value_name = "PATH")]
    pub(crate) image: Option<PathBuf>,
    /// How the target gets its input [default: file if the command has {input}, else stdin]
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) input: Option<InputArg>,
    /// How long an execution may take, whatever afl-fuzz has been told with -t
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Tell operations on persistent memory apart by their whole call stacks
    #[arg(long)]
    pub(crate) stacks: bool,
    /// Do not fix addresses, time, random numbers and process numbers for the target
    #[arg(long)]
    pub(crate) no_derandomise: bool,
    /// The target is a server: what it accepts and receives comes from the input
    #[arg(long)]
    pub(crate) desock: bool,
    /// The program, with {pool} in its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) target: Vec<OsString>,
}

fn parse_checks(text: &str) -> Result<Checks, String> {
    if text.trim() == "none" {
        return "".parse();
    }
    let checks: Checks = text.parse()?;
    if checks == "".parse()? {
        return Err("name some of lint, prefix, lazy and races, or write none".into());
    }
    Ok(checks)
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    rate.filter(|rate| (0.0..=1000.0).contains(rate))
        .ok_or_else(|| "a rate is a number from 0 to 1000, as in 0.5".into())
}

fn parse_port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok();
    port.filter(|port| *port != 0)
        .ok_or_else(|| "a port is a number from 1 to 65535".into())
}

fn parse_address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && parse_port(port).is_ok() => Ok(text.into()),
        _ => Err("an address looks like 10.0.0.7:1337".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_can_be_none() {
        let none = parse_checks("none").unwrap();
        assert!(!none.lint && !none.prefix && !none.lazy && !none.races);
        let some = parse_checks("lint,races").unwrap();
        assert!(some.lint && some.races && !some.prefix && !some.lazy);
        assert!(parse_checks("").is_err());
        assert!(parse_checks("lint,none").is_err());
    }

    #[test]
    fn rates_ports_and_addresses() {
        assert_eq!(parse_rate("0.25"), Ok(0.25));
        for wrong in ["-1", "NaN", "inf", "much", ""] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_port("1337"), Ok(1337));
        assert!(parse_port("0").is_err() && parse_port("70000").is_err());
        assert!(parse_address("10.0.0.7:1337").is_ok() && parse_address("[::1]:1").is_ok());
        for wrong in ["1337", ":1", "host", "host:", "host:0"] {
            assert!(parse_address(wrong).is_err(), "{wrong}");
        }
    }
}
