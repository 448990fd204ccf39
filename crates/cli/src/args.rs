//! The command line: the tree of commands, and the flags of those that powerfail.toml knows nothing about. The
//! options of check, crash, races, lint, fuzz and record are defined in `powerfail_config`. Parsing does nothing.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are help texts, and a terminal shows backticks as they are"
)]

mod fuzz;
mod trace;
mod values;
mod vm;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use powerfail_config::{
    CheckArgs, CommandText, Count, CrashArgs, LintArgs, RacesArgs, RecordArgs, ReportOutput,
    atomicities, domains, parse_duration,
};
use powerfail_finding::Code;
use powerfail_model::{Atomicity, Domain, FailurePoints, Rules};

use crate::exit::exit_codes;

pub(crate) use fuzz::*;
pub(crate) use trace::*;
use values::parse_code;
pub(crate) use vm::*;

const EXAMPLES: &str = "\
Examples:
  powerfail demo
      check a small built-in store with planted bugs
  powerfail init -- ./my-program data
      try a program, and write a powerfail.toml for powerfail check
  powerfail check -- ./my-program '{pool}'
      find crash-consistency bugs of a program with a pool; recovery is the same command again
  powerfail check -- ./my-program '{dir}'
      the same for a program that keeps files in a directory
  powerfail check --recover './my-program --check {pool}' -- ./my-program '{pool}'
      with a separate recovery command
  powerfail races run.trace --recover './my-program --check {pool}'
      report reads of recovery that depend on data that may not be durable
  powerfail fuzz --time 10m -- ./my-shell '{pool}'
      generate inputs, and check what they reach
  powerfail check --trace run.trace --partition 3/8
      the third of eight shares; powerfail merge powerfail-out.* joins them
  powerfail replay 712ae318
      reproduce a finding
  powerfail report --html report.html
      write the report of the last check as a page
  powerfail record -o run.trace -- ./my-program /mnt/pmem/pool
      run a program and record its operations on persistent memory and files
  powerfail model show flag.json
      list the contents of memory that a crash of a small program can leave
  powerfail model check tests/litmus
      compare the model with all litmus files in a directory
  powerfail trace info run.trace
      summarise a recorded run: stores, flushes, fences, pools
  powerfail trace events run.trace --kind flushes,fences --range 0x1000..0x2000
      list the flushes and fences of a part of the pool
  powerfail trace states run.trace --at 1200
      list what could be lost if the power failed just before event 1200
  powerfail trace check run.trace
      verify the file, and that its stores give the final image
  powerfail header > powerfail.h
      write the header with annotations for C and C++
  powerfail explain PF0101
      explain a finding and how to fix it";

/// Finds crash-consistency bugs in programs that keep data in persistent memory or in files.
///
/// powerfail determines what a power failure can leave of a program's data: which stores and writes are durable, which
/// may be lost, and in which combinations. It runs the program's recovery on the result.
#[derive(Debug, Parser)]
#[command(
    name = "powerfail",
    version,
    long_version = env!("POWERFAIL_LONG_VERSION"),
    after_help = exit_codes(),
    after_long_help = format!("{EXAMPLES}\n\n{}", exit_codes()),
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// When to use colour; auto also respects NO_COLOR and CLICOLOR_FORCE
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
    /// Find crash-consistency bugs: record, lint, crash, recover, report
    ///
    /// Runs the workload once and records it. Then simulates a power failure at each distinct code path to a flush
    /// or fence, or to a change of a file, runs recovery on the memory or the files that a crash could leave, and
    /// reports each distinct bug with its source lines and a command that reproduces it. Recovery must succeed without
    /// a crash first. Options that are not given are taken from powerfail.toml in the working directory.
    Check(Box<CheckCommand>),
    /// Report misuse of persistent memory in a trace, without running anything
    Lint(LintCommand),
    /// Simulate power failures in a recorded run, and run recovery on the result
    Crash(Box<CrashCommand>),
    /// Report unsafe reads of recovery, even those that recovery happens to survive
    ///
    /// Simulates a power failure at each ordering point of the workload, runs recovery once with all earlier stores
    /// in place, and watches its reads. A read of bytes that may not be durable, and that differ between crash
    /// states, is a race: the report shows the read and the store, each pair once. Then recovery runs again with the
    /// other value. If it fails, and fails again in a plain run, the race is an error with that evidence; otherwise
    /// it is a warning, which counts as a bug only with --deny warnings. With annotations (include/powerfail.h),
    /// reads of uncommitted or stale data are found as well; with PMDK, reads of memory that was allocated and never
    /// written.
    Races(Box<RacesCommand>),
    /// Join the results of check, crash or races with --partition, as if one run had made them
    ///
    /// Fails if a share is missing, was not finished, is there twice, or is of another trace, command, seed or other
    /// option; then it names the command that runs the share. What no share could try without the others is tried now.
    /// The report is that of one run.
    Merge(MergeArgs),
    /// Reproduce a finding: rebuild its crash image and run recovery on it
    Replay(ReplayArgs),
    /// Show the report of an earlier run again, or write it as a page or in another format
    ///
    /// Nothing is run. The output directory has the report, the trace and the source files as they were.
    Report(ReportCommand),
    /// Browse the findings and the trace of an earlier run in the terminal
    ///
    /// The trace is shown event by event, with the lines that each event opens or makes durable. Keys jump between failure
    /// points and findings, and open the recovery of a finding in gdb.
    View(ViewArgs),
    /// Fuzz a program: find inputs and images that reach crash-consistency bugs
    ///
    /// Executes the target thousands of times a second, on inputs and pools that lead to new sequences of operations
    /// on persistent memory. Pools are those that the target left at its end and those that a crash would have left,
    /// so recovery is fuzzed as well. Each new test case goes through the checks of powerfail check, in the
    /// background. Findings are minimised: the shortest input and the shortest history of its pool that show them.
    Fuzz(FuzzCommand),
    /// Check a small built-in store with planted bugs
    Demo(DemoArgs),
    /// The built-in store of the demo
    #[command(hide = true)]
    DemoStore(DemoStoreArgs),
    /// Run a command and record its operations on persistent memory and files
    ///
    /// The workload is any x86-64 program; it needs no change and no special build. The trace has
    /// every store, flush and fence on its pools, in the order in which stores reach memory, the system calls that
    /// read into a pool, sync it or resize it, and the beginning of the workload's output. Afterwards the trace is
    /// replayed, and the result must equal the pools byte for byte.
    Record(Box<RecordArgs>),
    /// Query the persistency model with litmus files
    #[command(subcommand)]
    Model(ModelCommand),
    /// Inspect a recorded trace
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Check file systems of a kernel in a virtual machine
    #[command(subcommand)]
    Vm(VmCommand),
    /// Explain a finding code and how to fix the bug
    ///
    /// Each page describes the bug, shows wrong and right code in C, and explains how powerfail detects it.
    Explain(ExplainArgs),
    /// Try a program, and write a powerfail.toml so that powerfail check needs no arguments
    ///
    /// Runs the program as it is given, and sees which files it maps and writes. Where an argument names them, {pool} or
    /// {dir} takes its place, and the program runs again to see whether that works. Then runs recovery for a few seconds.
    /// The file has the command, the persistence domain, recovery and a budget, each with a comment. An existing file is
    /// never replaced without --force.
    Init(InitArgs),
    /// Say whether powerfail can run on this machine, what is missing, and what to do about it
    ///
    /// Probes the kernel, the processor, the isolation of recoveries, shared memory, limits and gdb. With a program,
    /// says also whether it can be recorded and whether reports will have its source lines. Records nothing.
    Doctor(DoctorArgs),
    /// Print the header with the annotations for programs in C and C++
    ///
    /// The header needs no library, and an annotated program runs unchanged without powerfail. The crate
    /// powerfail-annotate is for Rust.
    Header(HeaderArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the man page, or write one for each command
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckCommand {
    #[command(flatten)]
    pub(crate) options: CheckArgs,
    #[command(flatten)]
    pub(crate) consent: TraceConsent,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TraceConsent {
    /// Without --recover, do not ask before the command of a trace runs that this user did not record
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CrashCommand {
    /// The trace
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) options: CrashArgs,
    #[command(flatten)]
    pub(crate) consent: TraceConsent,
}

#[derive(Debug, Args)]
pub(crate) struct RacesCommand {
    /// The trace
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) options: RacesArgs,
    #[command(flatten)]
    pub(crate) consent: TraceConsent,
}

#[derive(Debug, Args)]
pub(crate) struct LintCommand {
    /// The trace
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) options: LintArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReportCommand {
    /// Output directory of the run
    #[arg(default_value = "powerfail-out", value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Write one HTML page, with pictures of the moments of failure
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Format of the report: text, json, sarif, junit, github or gitlab, with a file if it is not for standard output;
    /// can be repeated [default: text, unless another output is asked for]
    #[arg(long, value_name = "FORMAT[=FILE]")]
    pub(crate) format: Vec<ReportOutput>,
    /// Print one finding as a bug report in Markdown, for the maintainers of the program
    #[arg(long, value_name = "ID")]
    pub(crate) issue: Option<String>,
    /// With --issue, write the crash image to this new directory, and name the commands that show the failure on it
    #[arg(long, value_name = "DIR", requires = "issue")]
    pub(crate) image: Option<PathBuf>,
    /// Also show warnings that the report has
    #[arg(long)]
    pub(crate) warnings: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// Output directory of the run
    #[arg(default_value = "powerfail-out", value_name = "RUN")]
    pub(crate) run: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct MergeArgs {
    /// Output directories of all shares
    #[arg(required = true, value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,
    /// Directory for the trace and the evidence
    #[arg(long, default_value = "powerfail-out", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Format of the report: text, json, sarif, junit, github or gitlab, with a file if it is not for standard output; can be
    /// repeated [default: text]
    #[arg(long, value_name = "FORMAT[=FILE]")]
    pub(crate) format: Vec<ReportOutput>,
    /// Number of recoveries to run in parallel [default: number of processors]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<Count>,
    /// Do not ask before commands of shares run that this user did not make on this machine
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// ID of the finding
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Output directory of the run that reported it
    #[arg(long, default_value = "powerfail-out", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Only write the crash image to this new directory
    #[arg(long, value_name = "PATH")]
    pub(crate) image: Option<PathBuf>,
    /// Run the failing recovery in gdb
    #[arg(long, conflicts_with = "image")]
    pub(crate) gdb: bool,
    /// Open a shell in a guest that has the crash image as its persistent memory; for findings of powerfail vm check
    #[arg(long, conflicts_with_all = ["image", "gdb", "recover", "export"])]
    pub(crate) shell: bool,
    /// Run this command instead of the recovery that failed
    #[arg(long, value_name = "CMD", conflicts_with_all = ["image", "export"])]
    pub(crate) recover: Option<CommandText>,
    /// Only copy the evidence to this new directory, with programs and libraries to replay it elsewhere
    #[arg(long, value_name = "DIR", conflicts_with_all = ["image", "gdb"])]
    pub(crate) export: Option<PathBuf>,
    /// Do not ask before commands of evidence run that this user did not make on this machine
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Directory for the trace and the evidence [default: powerfail-out]
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
    /// Prints a line for each file that fails, with the missing states (missed bugs) and the extra states (false
    /// alarms), then the number of files that passed and failed.
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
    /// Behaviour of non-temporal stores where the manuals are ambiguous (programs only)
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
    /// Guaranteed to be durable only after the thread's next fence
    DurableAtFence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailurePointsArg {
    /// The fewest points whose crash states are those of all points
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
    /// Persistence domain: what survives a crash without any instruction
    #[arg(long, default_value = "adr", value_parser = domains(), value_name = "DOMAIN")]
    domain: Domain,
    /// Unit that becomes durable in one piece
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
pub(crate) struct InitArgs {
    /// Replace an existing powerfail.toml
    #[arg(long)]
    pub(crate) force: bool,
    /// Command that recovers after a crash [default: the workload again]
    #[arg(long, value_name = "CMD")]
    pub(crate) recover: Option<CommandText>,
    /// Time limit for each run of the program
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1m")]
    pub(crate) record_timeout: Duration,
    /// Workload: a command and its arguments
    ///
    /// It runs as it is, on its real files, with an empty standard input. {pool} in an argument is replaced by the path of
    /// a fresh pool, {dir} by that of a fresh directory.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A program to examine: a path, or a name to be found in PATH
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: Option<std::ffi::OsString>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HeaderArgs {
    /// Print the header for code that is annotated for XFDetector; it includes the other header
    #[arg(long)]
    pub(crate) xfdetector: bool,
    /// Write the headers, and the files by which pkg-config and CMake find them, below this directory, such as /usr/local
    #[arg(long, value_name = "PREFIX", conflicts_with = "xfdetector")]
    pub(crate) install: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write the pages of all commands to this directory, which must exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
