//! `powerfail fuzz`: its commands, and the flags of those besides the campaign itself.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use powerfail_config::{FuzzArgs, Input, parse_duration};

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
pub(crate) struct FuzzCommand {
    #[command(subcommand)]
    pub(crate) command: Option<FuzzSubcommand>,
    #[command(flatten)]
    pub(crate) options: Box<FuzzArgs>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FuzzSubcommand {
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
    pub(crate) input: Option<Input>,
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
