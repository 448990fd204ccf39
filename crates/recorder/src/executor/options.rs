//! The options of an executor.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::input::InputChannel;

/// The options of an executor.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// Program and arguments. `{pool}` stands for the path of the pool, `{input}` for that of the input.
    pub command: Vec<OsString>,
    /// How the target receives its input.
    pub input: InputChannel,
    /// How long an execution may take.
    pub timeout: Duration,
    /// Whether an operation is identified by its whole call stack, not only by its instruction.
    pub stacks: bool,
    /// Whether time, random numbers and process ids are fixed.
    pub derandomise: bool,
    /// Whether sockets of the target are fed from its input.
    pub desock: bool,
    /// The directory for pool and input: see [`crate::pool_path`]. Created if needed, and removed then at the end. Only one
    /// executor may use it, and it should be in `/dev/shm`.
    pub directory: PathBuf,
    /// The maximum length of files that the target writes.
    pub file_limit_bytes: u64,
    /// The number of chunks of shared memory for the records of an execution, of 256 KiB each.
    pub chunk_count: u32,
    /// More environment variables of the target.
    pub variables: Vec<(OsString, OsString)>,
}

impl ExecutorOptions {
    /// The default options for a command.
    pub fn new(command: Vec<OsString>, input: InputChannel) -> Self {
        Self {
            command,
            input,
            timeout: Duration::from_millis(150),
            stacks: false,
            derandomise: true,
            desock: false,
            directory: own_directory(),
            file_limit_bytes: 1 << 30,
            chunk_count: 16,
            variables: Vec::new(),
        }
    }
}

/// A directory that no other executor uses.
fn own_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    PathBuf::from(format!("/dev/shm/powerfail-repeat-{process}-{number}"))
}
