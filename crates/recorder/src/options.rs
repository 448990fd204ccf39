//! The options of a recording.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use powerfail_image::DirectoryContents;
use powerfail_model::Domain;
use powerfail_protocol::shared::{Mode, Schedule, Stacks};

use crate::backend::Backend;
use crate::fresh_pool::FreshPath;
use crate::input::Input;
use crate::stop::StopHandle;

/// Trees that the target sees at other paths than this process does, in a mount namespace of its own.
#[derive(Clone, Debug)]
pub struct PrivateTrees {
    /// The path that the target uses, and the directory that stands for it.
    pub trees: Vec<(PathBuf, PathBuf)>,
    /// What the target may write to besides its trees. `None` is everything.
    pub writable: Option<Vec<PathBuf>>,
}

/// The options of a recording.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct RecordOptions {
    /// The workload: program and arguments. `{pool}` in an argument stands for the path of a pool in a
    /// directory of its own, which is removed afterwards, and `{dir}` for that directory. The pool does not exist yet, unless
    /// [`contents`](Self::contents) has it.
    pub command: Vec<OsString>,
    /// The path of the trace. An existing file is replaced.
    pub trace: PathBuf,
    /// Which files are pools: paths, or patterns with `*`, `?`, `[...]` and `**`. Empty: every file
    /// with a name and every DAX device that is mapped shared and writable, except for those that are known to
    /// hold no data ([`NoData`](powerfail_trace::recording::NoData)).
    pub pools: Vec<PathBuf>,
    /// Which files are not pools, in the same form.
    pub not_pools: Vec<PathBuf>,
    /// Directories whose files are recorded, with everything below them. The directory that `{dir}` stands for is always one
    /// of them.
    pub trees: Vec<PathBuf>,
    /// Whether the directory of `{pool}` is one, too, and, if there is none, every directory below the current one in which
    /// the target changes something.
    pub automatic_trees: bool,
    /// Trees of which the target gets copies at their own paths. `None`: it sees what this process sees.
    pub private_trees: Option<PrivateTrees>,
    /// Files and directories that belong to no tree: what powerfail itself writes. The trace and what this process has as its
    /// standard output and standard error need not be named.
    pub not_in_trees: Vec<PathBuf>,
    /// Where the directory of `{pool}` is created. `None`: in `/dev/shm`, or in the directory for temporary files.
    pub pm_dir: Option<PathBuf>,
    /// The directory of `{pool}` and `{input}`, if their paths must be the same in several recordings: see
    /// [`pool_path`](crate::pool_path). Created if it does not exist. For one recording at a time.
    pub directory: Option<PathBuf>,
    /// The initial files in the directory of `{pool}`. `None`: no files.
    pub contents: Option<DirectoryContents>,
    /// The input of the target. `None`: it inherits the standard input of this process.
    pub input: Option<Input>,
    /// Whether time, random numbers and process ids are the same in every recording.
    pub derandomise: bool,
    /// Whether the connections of the target come from its standard input instead of the network.
    pub desock: bool,
    /// Whether the output of the target is discarded. The trace has it in any case.
    pub discard_output: bool,
    /// Whether signals that come to this process are passed on to the target. A target that is one of many, of which
    /// the user knows nothing, gets none.
    pub forward_signals: bool,
    /// Stops the target from another thread.
    pub stop: StopHandle,
    /// Learns the path of `{pool}`.
    pub fresh: FreshPath,
    /// Confines the target: no file of it gets longer, it leaves no core and has a session of its own.
    pub file_limit_bytes: Option<u64>,
    /// Which recorder the target gets.
    pub backend: Backend,
    /// The plugin of QEMU, for targets that are statically linked; without it they are refused.
    pub plugin: &'static [u8],
    /// How stores are recorded.
    pub mode: Mode,
    /// How much of the call stack of an event is recorded.
    pub stacks: Stacks,
    /// What of the machine survives a crash. It is noted in the trace, and does not affect the recording.
    pub domain: Option<Domain>,
    /// The longest part of each output of the target that the trace keeps.
    pub output_prefix_bytes: usize,
    /// How long the target may run; then it is killed, and the trace has what it did until then.
    pub time_limit: Option<Duration>,
    /// How the threads of the target are scheduled.
    pub schedule: Schedule,
    /// The size of the persistent heap from which the target allocates; `None`: its allocations are volatile.
    pub heap_bytes: Option<u64>,
    /// Whether the target sees that it runs under Valgrind's pmemcheck, so that libraries describe what they do
    /// by client requests. Requests are understood in any case.
    pub valgrind_requests: bool,
    /// The number of chunks of shared memory, of 256 KiB each, that threads fill one after the other. A thread that has none
    /// when all are in use gets one of its own.
    pub chunk_count: u32,
}

impl RecordOptions {
    /// Takes the trees of a command line: directories, `auto` or `none`. Without any, they are chosen automatically, unless
    /// the data of the target is in its persistent heap.
    pub fn choose_trees(&mut self, trees: &[PathBuf]) {
        const AUTOMATIC: &str = "auto";
        const NONE: &str = "none";
        let is = |tree: &PathBuf, word: &str| tree.as_os_str() == word;
        self.automatic_trees = match trees {
            [] => self.heap_bytes.is_none(),
            trees => trees.iter().any(|tree| is(tree, AUTOMATIC)),
        };
        let named = trees
            .iter()
            .filter(|tree| !is(tree, AUTOMATIC) && !is(tree, NONE));
        self.trees = named.cloned().collect();
    }

    /// The usual options for a command.
    pub fn new(command: Vec<OsString>, trace: impl Into<PathBuf>) -> Self {
        Self {
            command,
            trace: trace.into(),
            pools: Vec::new(),
            not_pools: Vec::new(),
            trees: Vec::new(),
            automatic_trees: false,
            private_trees: None,
            not_in_trees: Vec::new(),
            pm_dir: None,
            directory: None,
            contents: None,
            input: None,
            derandomise: false,
            desock: false,
            discard_output: false,
            forward_signals: true,
            stop: StopHandle::default(),
            fresh: FreshPath::default(),
            file_limit_bytes: None,
            backend: Backend::Auto,
            plugin: &[],
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
