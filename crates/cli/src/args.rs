//! The command line: the one place for each flag's name, help and default. Parsing does nothing.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are help texts, and a terminal shows backticks as they are"
)]
#![expect(
    clippy::struct_excessive_bools,
    reason = "a switch of the command line is a bool"
)]

mod fuzz;
mod trace;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use powerfail_config::{
    CheckArgs, CrashArgs, LintArgs, RacesArgs, RecordArgs, atomicities, domains,
};
use powerfail_finding::Code;
use powerfail_model::{Atomicity, Domain, FailurePoints, Rules};

use crate::exit::exit_codes;

pub(crate) use fuzz::*;
pub(crate) use trace::*;
use values::parse_code;

const EXAMPLES: &str = "\
Examples:
  powerfail demo
      see it work on a small store with planted bugs
  powerfail check -- ./my-program '{pool}'
      find the bugs; recovery is the same command again
  powerfail check --recover './my-program --check {pool}' -- ./my-program '{pool}'
      with a recovery command of its own
  powerfail races run.trace --recover './my-program --check {pool}'
      which reads of recovery depend on what may not be durable
  powerfail fuzz --time 10m -- ./my-shell '{pool}'
      let powerfail write the workloads, and check what is new
  powerfail replay 712ae318
      show a finding again
  powerfail record -o run.trace -- ./my-program /mnt/pmem/pool
      run a program and record what it does to persistent memory
  powerfail model show flag.json
      every memory content that a crash of a small program can leave
  powerfail model check tests/litmus
      compare the model with all litmus files in a directory
  powerfail trace info run.trace
      what a recorded run did: stores, flushes, fences, pools
  powerfail trace events run.trace --kind flushes,fences --range 0x1000..0x2000
      who flushed this part of the pool, and when
  powerfail trace states run.trace --at 1200
      what would be lost if the power failed just before event 1200
  powerfail trace check run.trace
      is the file sound, and do its stores give the final image?
  powerfail header > powerfail.h
      annotations for a program in C or C++
  powerfail explain PF0101
      what this finding means, and what to do about it";

/// Finds the bugs that a power failure would.
///
/// powerfail works out what a crash can leave behind of a program's persistent memory: which
/// stores are surely durable, which may be lost, and in which combinations.
#[derive(Debug, Parser)]
#[command(
    name = "powerfail",
    version,
    after_help = exit_codes(),
    after_long_help = format!("{EXAMPLES}\n\n{}", exit_codes()),
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// When to use colour; auto also follows `NO_COLOR` and `CLICOLOR_FORCE`
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: ColorArg,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ColorArg {
    #[default]
    Auto,
    Always,
    Never,
}

impl ColorArg {
    /// Makes it the rule for everything that is printed.
    pub(crate) fn write_global(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find the bugs that a power failure would: record, lint, crash, recover, report
    ///
    /// Runs the workload once and records it. Then, from the recording, lets the power fail at each
    /// distinct code path to a flush or fence, runs recovery on what a crash would leave, and reports
    /// each distinct bug with its source lines and a command that shows it again. Recovery must succeed
    /// without any crash first. What flags do not say is taken from powerfail.toml in this directory.
    Check(Box<CheckArgs>),
    /// Report patterns of misuse in a trace, without running anything
    Lint(LintCommand),
    /// Let the power fail in a recorded run, and run recovery on what is left
    Crash(Box<CrashCommand>),
    /// Report reads of recovery that are not safe, even where recovery happens to survive them
    ///
    /// At each point where the workload orders what it stores, the power fails, recovery runs once with every
    /// store before it in place, and what it reads is watched. A read of bytes that may not be durable, and
    /// that are not the same in all that a crash can leave, is a race: the report has who reads and who wrote,
    /// each pair once. Then recovery runs again with the other value. If it fails, and fails again in a plain run,
    /// the race is an error with that evidence; otherwise it is a warning, which counts as a bug only with
    /// --deny warnings. With annotations (include/powerfail.h) reads of what is not committed, or stale, are found
    /// as well; with PMDK reads of memory that was allocated and never written.
    Races(Box<RacesCommand>),
    /// Show a finding again: rebuild its crash image and run recovery on it
    Replay(ReplayArgs),
    /// Find the inputs and images that reach the bugs: fuzz a program, and check what is new
    ///
    /// Executes the target thousands of times a second, on inputs and pools that lead to new sequences of operations
    /// on persistent memory. Pools are what the target left at its end, and what a crash would have left, so recovery
    /// is fuzzed as well. Whatever reaches something new goes through the checks of powerfail check, in the
    /// background; findings come with the shortest input and way to their pool that show them.
    Fuzz(FuzzCommand),
    /// See it work: check a small built-in store with planted bugs
    Demo(DemoArgs),
    /// The built-in store of the demo
    #[command(hide = true)]
    DemoStore(DemoStoreArgs),
    /// Run a command and record what it does to persistent memory
    ///
    /// The target needs no change and no special build: a dynamically linked x86-64 program. Every
    /// store, flush and fence on its pools goes into the trace, in the order in which stores reach
    /// memory; so do the system calls that read into a pool, sync it or resize it, and the beginning
    /// of what the target writes to the outside. Afterwards the trace is replayed and must give the
    /// pools as they are, byte for byte.
    Record(Box<RecordArgs>),
    /// Ask the persistency model about litmus files
    #[command(subcommand)]
    Model(ModelCommand),
    /// Look into a recorded trace
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Show what the code of a finding means, and what to do about it
    ///
    /// Each page says what the bug is, shows it in C, wrong and right, and tells how powerfail decides.
    Explain(ExplainArgs),
    /// Print the header with the annotations for programs in C and C++
    ///
    /// Nothing has to be linked, and a program with annotations runs unchanged without powerfail. For Rust there
    /// is the crate powerfail-annotate.
    Header(HeaderArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the man page, or write one for each command
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CrashCommand {
    /// The trace
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) options: CrashArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RacesCommand {
    /// The trace
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) options: RacesArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LintCommand {
    /// The trace
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) options: LintArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The finding
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Where the evidence is
    #[arg(long, default_value = "powerfail-out", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Only write the crash image, into this new directory
    #[arg(long, value_name = "PATH")]
    pub(crate) image: Option<PathBuf>,
    /// Open the failing recovery in gdb
    #[arg(long, conflicts_with = "image")]
    pub(crate) gdb: bool,
    /// Only make a portable copy of the evidence, in this new directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["image", "gdb"])]
    pub(crate) export: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where the trace and the evidence go [default: powerfail-out]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoStoreArgs {
    pub(crate) pool: PathBuf,
    #[arg(long)]
    pub(crate) recover: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Compare the model with the states that litmus files list, in both directions
    ///
    /// Prints a line for each file that fails, with the states that are missing (missed bugs) and
    /// those that are extra (false alarms), then how many passed and failed.
    Check(ModelCheckArgs),
    /// Print the states that the model allows for a litmus file
    Show(ModelShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ModelCheckArgs {
    /// Litmus files, programs or traces; a directory stands for all `*.json` files below it
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ModelShowArgs {
    /// A litmus file, program or trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How non-temporal stores behave, where the manuals leave room (programs only)
    #[arg(long, value_enum, default_value_t, value_name = "READING")]
    pub(crate) non_temporal: NonTemporalArg,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum NonTemporalArg {
    /// Visible and durable in one step, may overtake older stores
    #[default]
    Weak,
    /// Never overtakes an older store or clflush
    InOrder,
    /// Surely durable only after the thread's next fence
    DurableAtFence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailurePointsArg {
    /// The fewest moments whose crash states are those of all moments
    Covering,
    /// Before every flush and fence that follows a store
    Prefix,
}

impl From<FailurePointsArg> for FailurePoints {
    fn from(arg: FailurePointsArg) -> Self {
        match arg {
            FailurePointsArg::Covering => Self::Covering,
            FailurePointsArg::Prefix => Self::Prefix,
        }
    }
}

/// The parameters of the model.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RulesArgs {
    /// What survives a crash without any instruction
    #[arg(long, default_value = "adr", value_parser = domains(), value_name = "DOMAIN")]
    domain: Domain,
    /// What becomes durable in one piece
    #[arg(long, default_value = "store", value_parser = atomicities(), value_name = "UNIT")]
    atomicity: Atomicity,
}

impl From<RulesArgs> for Rules {
    fn from(args: RulesArgs) -> Self {
        Self {
            domain: args.domain,
            atomicity: args.atomicity,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A code such as PF0101 [default: list all codes]
    #[arg(value_name = "CODE", value_parser = parse_code)]
    pub(crate) code: Option<Code>,
}

#[derive(Debug, Args)]
pub(crate) struct HeaderArgs {
    /// The header for code that is annotated for XFDetector; it needs the other one next to it
    #[arg(long)]
    pub(crate) xfdetector: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write the pages of all commands into this directory, which must exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
