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

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use powerfail_finding::Code;
use powerfail_model::{Atomicity, Domain, FailurePoints, Rules};

use crate::exit::exit_codes;

pub(crate) use fuzz::*;
pub(crate) use trace::*;
pub(crate) use values::parse_size;
use values::{parse_code, parse_segments};

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

/// How many priorities matter if nobody says: two changes of the order of threads.
pub(crate) const DEFAULT_SCHEDULE_DEPTH: u32 = 3;

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
    Lint(LintArgs),
    /// Let the power fail in a recorded run, and run recovery on what is left
    Crash(Box<CrashArgs>),
    /// Report reads of recovery that are not safe, even where recovery happens to survive them
    ///
    /// At each point where the workload orders what it stores, the power fails, recovery runs once with every
    /// store before it in place, and what it reads is watched. A read of bytes that may not be durable, and
    /// that are not the same in all that a crash can leave, is a race: the report has who reads and who wrote,
    /// each pair once. Then recovery runs again with the other value. If it fails, and fails again in a plain run,
    /// the race is an error with that evidence; otherwise it is a warning, which counts as a bug only with
    /// --deny warnings. With annotations (include/powerfail.h) reads of what is not committed, or stale, are found
    /// as well; with PMDK reads of memory that was allocated and never written.
    Races(Box<RacesArgs>),
    /// Show a finding again: rebuild its crash image and run recovery on it
    Replay(ReplayArgs),
    /// Find the inputs and images that reach the bugs: fuzz a program, and check what is new
    ///
    /// Executes the target thousands of times a second, on inputs and pools that lead to new sequences of operations
    /// on persistent memory. Pools are what the target left at its end, and what a crash would have left, so recovery
    /// is fuzzed as well. Whatever reaches something new goes through the checks of powerfail check, in the
    /// background; findings come with the shortest input and way to their pool that show them.
    Fuzz(FuzzArgs),
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
    Record(RecordArgs),
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
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) recovery: RecoveryArgs,
    #[command(flatten)]
    pub(crate) lazy: LazyArgs,
    /// Do not explore lost and reordered lines; all stores before a failure survive
    #[arg(long, conflicts_with_all = ["exhaustive", "depth", "max_executions", "no_fork"])]
    pub(crate) no_lazy: bool,
    /// Also report reads of recovery that are not safe, even where it survives them: see powerfail races
    #[arg(long)]
    pub(crate) races: bool,
    /// With --races: also reads of bytes that may not be durable and are the same in all that a crash can leave
    #[arg(long, requires = "races")]
    pub(crate) strict: bool,
    /// With --races: look for commit variables that nobody has named; see powerfail races
    #[arg(long, requires = "races", value_enum, value_name = "HOW")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "propose")]
    pub(crate) infer: Option<InferArg>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// Which files are pools: a path or a pattern such as '/mnt/pmem/*.pool'; can be repeated
    #[arg(long, value_name = "PATH|GLOB")]
    pub(crate) pool: Vec<PathBuf>,
    /// Where the pool for {pool} is made [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) pm_dir: Option<PathBuf>,
    /// Let what the workload allocates, with malloc or operator new, be persistent memory
    ///
    /// The memory lies at the same address in recovery, which finds it again by powerfail_root() of
    /// include/powerfail.h. SIZE is how much there is of it: 512M, 2G [default: 256M]. What the C library
    /// and other libraries of the system allocate for themselves stays volatile.
    #[arg(
        long,
        value_name = "SIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "256M",
        value_parser = crate::persistent::parse_len
    )]
    pub(crate) heap: Option<u64>,
    /// Record the workload so many times, with other orders of its threads, and check each that is
    /// different [default: 1]
    ///
    /// The first time the threads run as they like; then which of them goes on at its operations on
    /// persistent memory is drawn at random. The workload must use {pool}, so that each time begins with
    /// the same content.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) schedules: Option<u64>,
    /// How often the order of threads changes in each, and once more
    #[arg(
        long,
        default_value_t = DEFAULT_SCHEDULE_DEPTH,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=32),
        requires = "schedules"
    )]
    pub(crate) schedule_depth: u32,
    /// Tell a workload that asks that it runs under Valgrind's pmemcheck, so that PMDK and others say
    /// what they do by client requests
    #[arg(long)]
    pub(crate) valgrind_requests: bool,
    /// For a workload that is a server: the command that talks to it while it is recorded
    #[arg(long, value_name = "CMD")]
    pub(crate) client: Option<String>,
    /// The workload: a command and its arguments
    ///
    /// {pool} in an argument is replaced by the path of a fresh pool, {port} by a free port.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct CrashArgs {
    /// The trace
    pub(crate) trace: PathBuf,
    /// What is tried of what a crash can leave [default: prefix]
    #[arg(long, value_enum, value_name = "STRATEGY")]
    pub(crate) strategy: Option<StrategyArg>,
    #[command(flatten)]
    pub(crate) eager: EagerArgs,
    #[command(flatten)]
    pub(crate) recovery: RecoveryArgs,
    #[command(flatten)]
    pub(crate) lazy: LazyArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

// What chooses other failure points is refused with a sentence of its own.
#[derive(Debug, Args)]
#[command(mut_arg("failure_points", |arg| arg.hide(true)))]
#[command(mut_arg("per_stack", |arg| arg.hide(true)))]
pub(crate) struct RacesArgs {
    /// The trace
    pub(crate) trace: PathBuf,
    /// Also report reads of bytes that may not be durable and are the same in all that a crash can leave
    ///
    /// That is the rule of XFDetector. Such a read is harmless today, and depends on values that happen to be
    /// equal.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Look for commit variables that nobody has named: words that decide what else recovery reads
    ///
    /// They are proposed, with what speaks for them. With --infer=use reads of them are no races.
    #[arg(long, value_enum, value_name = "HOW")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "propose")]
    pub(crate) infer: Option<InferArg>,
    #[command(flatten)]
    pub(crate) recovery: RecoveryArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// What becomes of commit variables that nobody has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InferArg {
    /// They are proposed
    Propose,
    /// They are proposed, and reads of them are no races
    Use,
}

#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// The trace
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// What is tried of what a crash can leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyArg {
    /// All stores before a failure survive
    #[default]
    Prefix,
    /// Every combination of stores that may survive: all of a segment up to --threshold, then a sample
    Eager,
    /// Everything that recovery can observe: lost and reordered lines are chosen where it reads them
    Lazy,
}

/// Which combinations of stores eager exploration tries. A segment is what happens between two moments
/// at which stores become surely durable.
#[derive(Debug, Args)]
pub(crate) struct EagerArgs {
    /// Eager: up to this many combinations of a segment all are tried, of more a sample [default: 250]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) threshold: Option<u64>,
    /// Eager: how many combinations of a larger segment are tried [default: as --threshold]
    ///
    /// They are chosen at random, by --seed, and none twice. Nothing lost, everything lost, and each
    /// single line lost or kept come first.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sample: Option<u64>,
    /// Eager: adjacent stores to one line, with no flush or fence between them, are one
    ///
    /// A string that is copied byte by byte is then there as a whole or not at all. That is not what
    /// hardware promises, so bugs may be missed.
    #[arg(long)]
    pub(crate) coalesce: bool,
    /// Eager: only these segments, numbered from 0 and without the last: 10..20, ..5, 7..
    #[arg(long, value_name = "A..B", value_parser = parse_segments)]
    pub(crate) segments: Option<(usize, Option<usize>)>,
    /// Eager: start recovery anew for each crash state
    ///
    /// Where it works, recovery is started once, stopped before it first touches the pool, and forked there
    /// for each state. The first states are also run without that, and compared.
    #[arg(long)]
    pub(crate) no_snapshot: bool,
}

/// How far lost and reordered lines are explored.
#[derive(Debug, Args)]
pub(crate) struct LazyArgs {
    /// How often the power fails, at most: 2 is once more while recovery runs [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depth: Option<u32>,
    /// Explore lost and reordered lines with at most this many executions of recovery
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_executions: Option<u64>,
    /// Explore without limits: neither time nor executions at a failure point are bounded
    #[arg(long, conflicts_with = "max_executions")]
    pub(crate) exhaustive: bool,
    /// Execute recovery again for each value that it can observe, instead of forking it
    #[arg(long)]
    pub(crate) no_fork: bool,
}

/// How recovery is run, and when the power fails.
#[derive(Debug, Args)]
pub(crate) struct RecoveryArgs {
    /// The command that recovers after a crash [default: the workload again]
    ///
    /// {pool} is replaced by the path of the pool, {port} by a free port. Words are split as a shell
    /// does; a line with operators of the shell is given to one.
    #[arg(long, value_name = "CMD")]
    pub(crate) recover: Option<String>,
    /// A command that judges what recovery made of the pool, by its exit status
    #[arg(long, value_name = "CMD")]
    pub(crate) checker: Option<String>,
    /// A command that prints the logical content after recovery, to find silent loss
    #[arg(long, value_name = "CMD")]
    pub(crate) dump: Option<String>,
    /// What in the workload's output acknowledges an operation; a group in it must be a line of the
    /// dump from then on
    #[arg(long, value_name = "REGEX")]
    pub(crate) ack: Option<String>,
    /// Recovery is a server: the command that talks to it and is judged
    #[arg(long, value_name = "CMD")]
    pub(crate) client_recover: Option<String>,
    /// When a server is ready: port, port:N, unix:PATH or output:REGEX
    #[arg(long, value_name = "CHECK")]
    pub(crate) ready: Option<String>,
    /// The command that stops a server [default: SIGTERM]
    #[arg(long, value_name = "CMD")]
    pub(crate) stop: Option<String>,
    /// How long each command may take; longer is a hang, and a bug [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = powerfail_config::parse_duration)]
    pub(crate) timeout: Option<std::time::Duration>,
    /// How many recoveries run at a time [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) jobs: Option<u64>,
    /// How long all recoveries together may take, about; the most valuable come first
    #[arg(long, value_name = "TIME", value_parser = powerfail_config::parse_duration)]
    pub(crate) budget: Option<std::time::Duration>,
    /// Decides what is chosen at random [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Before which events the power fails [default: before each flush and fence]
    #[arg(long, value_name = "WHICH", value_parser = ["flush", "fence", "store", "all"])]
    pub(crate) failure_points: Option<String>,
    /// How many failure points of each call stack: 1 the first, 2 also the last, more at random; 0 all
    /// [default: 3]
    #[arg(long, value_name = "K")]
    pub(crate) per_stack: Option<u64>,
    /// Also fail while PMDK creates a pool, which is not failure-atomic by design
    #[arg(long)]
    pub(crate) include_create: bool,
    /// What bytes of a fresh pool hold that were never written, instead of zeros: 0xff, 165
    #[arg(long, value_name = "BYTE")]
    pub(crate) fill: Option<String>,
    /// What becomes durable in one piece [default: store]
    #[arg(long, value_enum, value_name = "UNIT")]
    pub(crate) atomicity: Option<AtomicityArg>,
    /// Exit codes of recovery that are a success besides 0
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    pub(crate) ok_exit: Vec<u8>,
    /// A line of recovery's output that matches is a failure; can be repeated
    #[arg(long, value_name = "REGEX")]
    pub(crate) fail_pattern: Vec<String>,
    /// Limits the address space of recovery, in MiB
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_limit: Option<u64>,
    /// Limits the length of files that recovery writes, in MiB
    #[arg(long, value_name = "MIB")]
    pub(crate) file_limit: Option<u64>,
}

/// What is reported, and how.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Where the trace and the evidence go [default: powerfail-out]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Text for people, or JSON on standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: FormatArg,
    /// Only these classes or codes: durability,PF0501
    #[arg(long, value_name = "CLASSES", value_delimiter = ',')]
    pub(crate) only: Vec<powerfail_config::Only>,
    /// Also report warnings: several stores under one flush, unordered flushes under one fence
    #[arg(long)]
    pub(crate) warnings: bool,
    /// Count warnings as bugs
    #[arg(long, value_name = "WHAT", value_parser = ["warnings"])]
    pub(crate) deny: Option<String>,
    /// Report only what is not in this report (of --format json)
    #[arg(long, value_name = "JSON")]
    pub(crate) baseline: Option<PathBuf>,
    /// Trust this module too: what it does by itself is not reported; can be repeated
    #[arg(long, value_name = "MODULE")]
    pub(crate) trust: Vec<String>,
    /// Do not trust this module; can be repeated
    #[arg(long, value_name = "MODULE")]
    pub(crate) no_trust: Vec<String>,
    /// What survives a crash without any instruction [default: that of the trace, or adr]
    #[arg(long, value_enum, value_name = "DOMAIN")]
    pub(crate) domain: Option<DomainArg>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    #[default]
    Text,
    Json,
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

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Where the trace goes; replaced if it exists
    #[arg(short, long, default_value = "powerfail.trace", value_name = "TRACE")]
    pub(crate) output: PathBuf,
    /// Which files are pools: a path or a pattern such as '/mnt/pmem/*.pool'; can be repeated
    ///
    /// Without it every regular file and every DAX device that the target maps shared and writable
    /// is a pool, and the summary says which were taken.
    #[arg(long, value_name = "PATH|GLOB")]
    pub(crate) pool: Vec<PathBuf>,
    /// Where the pool for {pool} is made [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) pm_dir: Option<PathBuf>,
    /// How stores are caught
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub(crate) mode: ModeArg,
    /// What is recorded of the calls that led to an event
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub(crate) stacks: StacksArg,
    /// Let what the target allocates, with malloc or operator new, be persistent memory
    ///
    /// The memory lies at the same address in recovery, which finds it again by powerfail_root() of
    /// include/powerfail.h. SIZE is how much there is of it: 512M, 2G [default: 256M]. What the C library
    /// and other libraries of the system allocate for themselves stays volatile.
    #[arg(
        long,
        value_name = "SIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "256M",
        value_parser = crate::persistent::parse_len
    )]
    pub(crate) heap: Option<u64>,
    /// Schedule the threads of the target: which one goes on at its operations is drawn at random,
    /// and this number decides it
    #[arg(long, value_name = "N")]
    pub(crate) schedule_seed: Option<u64>,
    /// How often the order of threads changes, and once more
    #[arg(
        long,
        default_value_t = DEFAULT_SCHEDULE_DEPTH,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=32),
        requires = "schedule_seed"
    )]
    pub(crate) schedule_depth: u32,
    /// Among how many operations it changes [default: no idea; small numbers are as likely as large]
    #[arg(long, value_name = "N", requires = "schedule_seed")]
    pub(crate) schedule_length: Option<u64>,
    /// Tell a target that asks that it runs under Valgrind's pmemcheck, so that PMDK and others say
    /// what they do by client requests
    #[arg(long)]
    pub(crate) valgrind_requests: bool,
    /// What survives a crash without any instruction; noted in the trace for later commands
    #[arg(long, value_enum, value_name = "DOMAIN")]
    pub(crate) domain: Option<DomainArg>,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The workload: a command and its arguments
    ///
    /// {pool} in an argument is replaced by the path of a fresh pool, which is removed afterwards.
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ModeArg {
    /// An instruction is patched after its first fault: nearly native speed
    #[default]
    Patch,
    /// Every store faults: slow, and independent of patching
    Trap,
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
    #[arg(long, value_enum, default_value_t, value_name = "DOMAIN")]
    domain: DomainArg,
    /// What becomes durable in one piece
    #[arg(long, value_enum, default_value_t, value_name = "UNIT")]
    atomicity: AtomicityArg,
}

impl From<RulesArgs> for Rules {
    fn from(args: RulesArgs) -> Self {
        let domain = args.domain.into();
        let atomicity = args.atomicity.into();
        Self { domain, atomicity }
    }
}

impl From<AtomicityArg> for Atomicity {
    fn from(arg: AtomicityArg) -> Self {
        match arg {
            AtomicityArg::Store => Self::Store,
            AtomicityArg::Word => Self::Word,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum StacksArg {
    /// The whole call stack
    #[default]
    Full,
    /// The instruction only: a little faster
    Sites,
    /// Nothing
    None,
}

impl From<DomainArg> for Domain {
    fn from(arg: DomainArg) -> Self {
        match arg {
            DomainArg::Adr => Self::Adr,
            DomainArg::Eadr => Self::Eadr,
            DomainArg::Pagecache => Self::PageCache,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum DomainArg {
    /// Memory only; caches are lost
    #[default]
    Adr,
    /// Memory and caches
    Eadr,
    /// An ordinary mmap'ed file: only msync and fsync make it durable
    Pagecache,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum AtomicityArg {
    /// A store, as far as it lies in one line
    #[default]
    Store,
    /// Aligned words of 8 bytes
    #[value(name = "8")]
    Word,
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
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
