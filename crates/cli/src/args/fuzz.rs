//! `powerfail fuzz`: its commands, and the flags of those besides the campaign itself.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use powerfail_config::{FuzzArgs, Input, parse_duration};

const EXAMPLES: &str = "\
Examples:
  powerfail fuzz --time 10m -- ./kv '{pool}'
      inputs on standard input, ten minutes, all processors
  powerfail fuzz --seeds inputs/ --dict kv.dict --out kv-out -- ./kv '{pool}'
      with initial inputs and a dictionary
  powerfail fuzz --input file -- ./load '{pool}' '{input}'
      the input is a file
  powerfail fuzz --desock -- ./server --pool '{pool}'
      the input is what clients send
  powerfail fuzz --resume --out kv-out
      continue a campaign that was stopped or killed
  powerfail replay 712ae318 --out kv-out
      reproduce a finding
  powerfail fuzz plot kv-out -o kv.svg
      PM paths over time
  powerfail fuzz --out team --name a -- ./kv '{pool}'
      one of several instances, which share their test cases";

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
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Consent {
    /// Do not ask before the commands of a campaign run that this user did not start on this machine
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FuzzSubcommand {
    /// Plot the progress of campaigns over time, as SVG
    Plot(FuzzPlotArgs),
    /// Show the test cases, images and findings of a campaign
    Show(FuzzShowArgs),
    /// Minimise the corpus: keep only the test cases that are needed to reach what the campaign has reached
    ///
    /// The others are retired: they stay on disk, and --resume does not use them. Images stay, because other images
    /// were made from them.
    Cmin(FuzzCminArgs),
    /// Minimise a test case, or the test case of a finding
    ///
    /// Commands (lines) are left out first, then arguments (words); numbers become small and words short. A test case
    /// keeps all locations that it reaches and the way it ends; the new one gets a new number, and the old one is
    /// retired. A finding keeps its code and its first line of code; its input is in findings/ID/minimised.input.
    /// Interrupted, or at the end of --time, the smallest one so far is kept, and the same command continues.
    Tmin(FuzzTminArgs),
    /// Recreate images that a campaign has lost because images.pack is missing, cut off or damaged
    ///
    /// Each image was made by a run of the target on another image, so the target runs again. What is made again has the
    /// same bytes as before, or it is reported as lost. --resume does the same before it continues.
    Repair(FuzzRepairArgs),
    /// Act as the target of afl-fuzz: run a program for it, with PM paths as coverage
    ///
    /// afl-fuzz starts this command as its target. The command speaks the protocol of AFL++'s fork server, runs each
    /// input in a fork of the program that has already opened its pool, and reports PM paths, and branches if the
    /// program counts them, as the coverage of the input:
    ///
    ///   afl-fuzz -i seeds -o out -- powerfail fuzz afl -- ./kv '{pool}'
    ///
    /// The program needs no instrumentation. docs/guide/fuzzing.md has the whole recipe.
    Afl(FuzzAflArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FuzzPlotArgs {
    /// Output directories of campaigns, one line in the plot for each
    #[arg(required = true, value_name = "OUT")]
    pub(crate) out: Vec<PathBuf>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE.svg")]
    pub(crate) output: Option<PathBuf>,
    /// Field of stats.jsonl to plot, such as pm_paths, pm_locations, execs, execs_per_s, corpus, images, stability or
    /// findings
    #[arg(long, default_value = "pm_paths", value_name = "FIELD")]
    pub(crate) of: String,
    /// Use a logarithmic scale for values
    #[arg(long)]
    pub(crate) log: bool,
    /// Use a logarithmic scale for time
    #[arg(long)]
    pub(crate) log_time: bool,
    /// Title of the plot
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzShowArgs {
    /// Output directory of the campaign, which may be running
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// List the test cases
    #[arg(long)]
    pub(crate) cases: bool,
    /// List the images: their origin, and where the power failed
    #[arg(long)]
    pub(crate) images: bool,
    /// Write an image to the new directory --to; a prefix of its name is enough
    #[arg(long, value_name = "ID", requires = "to", conflicts_with_all = ["cases", "images", "json"])]
    pub(crate) image: Option<String>,
    /// Directory to write the image to
    #[arg(long, value_name = "DIR", requires = "image")]
    pub(crate) to: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzCminArgs {
    /// Output directory of a campaign that is not running
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzTminArgs {
    /// Output directory of a campaign that is not running
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Number of a test case, as in OUT/queue, or id of a finding
    #[arg(value_name = "NUMBER|ID")]
    pub(crate) which: String,
    /// How long to minimise
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) time: Duration,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzRepairArgs {
    /// Output directory of a campaign that is not running
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
pub(crate) struct FuzzAflArgs {
    /// Initial image: a pool, or a directory with the files of one [default: none, so that the target creates its
    /// pool]
    #[arg(long, value_name = "PATH")]
    pub(crate) image: Option<PathBuf>,
    /// How the target gets its input [default: file if the command has {input}, else stdin]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) input: Option<Input>,
    /// Time limit for an execution, independent of -t of afl-fuzz
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Distinguish operations on persistent memory by their whole call stacks
    #[arg(long)]
    pub(crate) stacks: bool,
    /// Do not fix addresses, time, random numbers and process numbers for the target
    #[arg(long)]
    pub(crate) no_derandomise: bool,
    /// The target is a server: feed its connections from the input
    #[arg(long)]
    pub(crate) desock: bool,
    /// Program and its arguments, one of them with {pool}
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) target: Vec<OsString>,
}
