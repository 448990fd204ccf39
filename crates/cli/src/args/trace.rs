//! `powerfail trace`: its commands and their flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use powerfail_config::parse_size;

use super::values::{KindFilter, parse_kind, parse_range};
use super::{FailurePointsArg, RulesArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Print counts and ratios: events by kind, pools, bytes per event
    Info(TraceFileArgs),
    /// Print the events, as text or JSON lines
    Events(TraceEventsArgs),
    /// Print open lines and the number of crash states at a position
    States(TraceStatesArgs),
    /// Verify every checksum, and that the stores give the final image
    ///
    /// The last line is the verdict: sound, or NOT sound with the reasons. A trace that is damaged, incomplete or
    /// contradicts its final image is a finding (exit code 1). A file that is not a trace, is empty or cannot be read
    /// is an error (exit code 2).
    Check(TraceCheckArgs),
    /// Convert a litmus trace, or a store log of pmemcheck, to a trace
    Import(TraceImportArgs),
    /// Convert a trace to a store log as pmemcheck writes it, or for Perfetto
    ///
    /// A log of pmemcheck is for pmreorder. Call stacks and threads are lost. Non-temporal stores become stores with
    /// flushes. With --perfetto, the file shows the events of each thread, each line from the store that opens it to the
    /// event that makes it durable, and the number of crash states; open it at ui.perfetto.dev.
    Export(TraceExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TraceFileArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TraceCheckArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much memory a command may use for the content of pools.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Memory limit for the content of pools: bytes, or with K, M, G or T
    #[arg(long, default_value = "4G", value_parser = parse_size, value_name = "SIZE")]
    pub(crate) memory_limit: u64,
}

#[derive(Debug, Args)]
pub(crate) struct TraceEventsArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only these kinds: names such as store or clwb, or stores, flushes, fences, syncs, marks,
    /// lifecycle
    #[arg(long, value_delimiter = ',', value_parser = parse_kind, value_name = "KINDS")]
    pub(crate) kind: Vec<KindFilter>,
    /// Only this thread
    #[arg(long, value_name = "N")]
    pub(crate) thread: Option<u32>,
    /// Only this pool
    #[arg(long, value_name = "N")]
    pub(crate) pool: Option<u32>,
    /// Only events that touch these pool offsets, as in 0x1000..0x2000
    #[arg(long, value_parser = parse_range, value_name = "A..B")]
    pub(crate) range: Option<(u64, u64)>,
    /// Start at this event
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) from: u64,
    /// Stop before this event
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<u64>,
    /// Stop after this many events
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Do not look for function, file and line of the events
    #[arg(long)]
    pub(crate) no_source: bool,
    /// Print whole call stacks, not only the innermost frame
    #[arg(long)]
    pub(crate) stacks: bool,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TraceStatesArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Crash just before this event [default: after the last one]
    #[arg(long, value_name = "N")]
    pub(crate) at: Option<u64>,
    /// List failure points instead, with the number of crash states at each
    #[arg(long, value_enum, value_name = "WHICH", conflicts_with = "at")]
    pub(crate) failure_points: Option<FailurePointsArg>,
    /// Open lines to print in full; JSON always has all of them
    #[arg(
        long,
        default_value_t = 20,
        value_name = "N",
        conflicts_with_all = ["failure_points", "json"]
    )]
    pub(crate) lines: usize,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TraceImportArgs {
    /// A litmus trace, or a log of valgrind --tool=pmemcheck --log-stores=yes
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What the file of a pmemcheck log held before the run [default: zeros]
    #[arg(long, value_name = "FILE")]
    pub(crate) initial: Option<PathBuf>,
    /// The trace to write; replaced if it exists, and only when the new one is complete
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TraceExportArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Write JSON for Perfetto, with the number of an event as its time
    #[arg(long)]
    pub(crate) perfetto: bool,
    /// The file to write; replaced if it exists, and only when the new one is complete
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}
