//! What to record, and how.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use powerfail_image::Contents;
use powerfail_model::Domain;
use powerfail_protocol::shared::{Mode, Schedule, Stacks};

use crate::input::Input;

/// What to record, and how.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Options {
    /// The workload: program and arguments. `{pool}` in an argument stands for the path of a pool
    /// that does not exist yet unless there are [`contents`](Self::contents), in a directory of its own that
    /// is removed afterwards.
    pub command: Vec<OsString>,
    /// Where the trace goes. Replaced if it exists.
    pub trace: PathBuf,
    /// Which files are pools: paths, or patterns with `*`, `?`, `[...]` and `**`. None: every file
    /// with a name and every DAX device that is mapped shared and writable.
    pub pools: Vec<PathBuf>,
    /// Where the directory of a `{pool}` is made. `None`: in `/dev/shm`, or where temporary files go.
    pub pm_dir: Option<PathBuf>,
    /// The directory in which that of `{pool}` is, and `{input}`, if paths are to be the same in several
    /// recordings: see [`pool_path`](crate::pool_path). Made if it is not there. For one recording at a time.
    pub directory: Option<PathBuf>,
    /// What is in the directory of `{pool}` when the target starts. `None`: nothing.
    pub contents: Option<Contents>,
    /// The input of the target. `None`: it has the standard input of this process.
    pub input: Option<Input>,
    /// Whether time, random numbers and numbers of processes are the same in every recording.
    pub derandomise: bool,
    /// Whether the target's connections come from its standard input instead of the network.
    pub desock: bool,
    /// Whether what the target prints goes nowhere. The trace has it in any case.
    pub discard_output: bool,
    /// No file of the target gets longer, it leaves no core and has a session of its own, and signals that
    /// come to this process are not passed on to it: it is one of many, of which the user knows nothing. `None`:
    /// it is what the user runs.
    pub file_limit_bytes: Option<u64>,
    /// How stores are caught.
    pub mode: Mode,
    /// What is recorded of the calls that led to an event.
    pub stacks: Stacks,
    /// What of the machine survives a crash: noted in the trace, for whoever reads it. Recording
    /// does not depend on it.
    pub domain: Option<Domain>,
    /// How much of each output of the target the trace keeps, at most.
    pub output_prefix_bytes: usize,
    /// How long the target may take; then it is killed, and what it did until then is the trace.
    pub time_limit: Option<Duration>,
    /// How the threads of the target are scheduled.
    pub schedule: Schedule,
    /// How many bytes of persistent memory the target allocates from; `None`: what it allocates is volatile.
    pub heap_bytes: Option<u64>,
    /// Whether a target that asks is told that it runs under Valgrind's pmemcheck, so that libraries
    /// say what they do by client requests. Requests are understood in any case.
    pub valgrind_requests: bool,
    /// How many chunks of shared memory the target has, of 256 KiB each.
    pub chunk_count: u32,
}

impl Options {
    /// The usual options for a command.
    pub fn new(command: Vec<OsString>, trace: impl Into<PathBuf>) -> Self {
        Self {
            command,
            trace: trace.into(),
            pools: Vec::new(),
            pm_dir: None,
            directory: None,
            contents: None,
            input: None,
            derandomise: false,
            desock: false,
            discard_output: false,
            file_limit_bytes: None,
            mode: Mode::Patch,
            stacks: Stacks::Full,
            domain: None,
            output_prefix_bytes: 256,
            time_limit: None,
            schedule: Schedule::default(),
            heap_bytes: None,
            valgrind_requests: false,
            chunk_count: 64,
        }
    }
}
