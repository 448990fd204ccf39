//! What records refer to: pools, modules, threads and call stacks; and where the trace comes from.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// Where a trace comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The version of powerfail that recorded it.
    pub powerfail_version: String,
    /// The workload: program and arguments.
    pub command: Vec<OsString>,
    /// The directory in which it ran.
    pub working_directory: PathBuf,
    /// When recording began, in milliseconds since 1970 UTC; zero if unknown.
    pub started_unix_ms: u64,
    /// Anything else worth keeping, as names and values in order: kernel, CPU, recorder mode.
    pub notes: Vec<(String, String)>,
}

/// The name of the note with the persistency domain that the recording was made for.
pub const DOMAIN_NOTE: &str = "domain";
/// The name of the note with the path that `{pool}` stood for in the command.
pub const POOL_NOTE: &str = "pool";
/// The name of the note with the path that `{dir}` stood for in the command.
pub const DIRECTORY_NOTE: &str = "dir";
/// The name of the note with the path of the persistent heap.
pub const HEAP_NOTE: &str = "heap";
/// The name of the note that time, random numbers and process ids were those of every run; its value is `yes`.
pub const DERANDOMISE_NOTE: &str = "derandomise";
/// The name of the note that shows who has recorded the trace.
pub const SEAL_NOTE: &str = "seal";

impl Meta {
    /// The value of a note.
    pub fn note(&self, name: &str) -> Option<&str> {
        let mut notes = self.notes.iter();
        let (_, value) = notes.find(|(known, _)| known == name)?;
        Some(value)
    }
}

/// A pool, as it was when the target first mapped it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The file, as the target named it. Not always UTF-8.
    pub path: PathBuf,
    /// What kind of memory it is.
    pub kind: PoolKind,
    /// Its length when it was mapped.
    pub len_bytes: u64,
    /// The address of its first byte in the target (where offset zero would be, if only a later
    /// part is mapped).
    pub address: u64,
}

/// What kind of memory a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// A regular file.
    File,
    /// A regular file that was mapped with `MAP_SYNC`, as if it were on DAX. Recovery needs the runtime to map it so.
    FileAsDax,
    /// A DAX character device.
    DaxDevice,
    /// A range of anonymous memory that is treated as if it were persistent.
    AnonymousRange,
}

/// A module of the target, in the order in which the modules were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleIndex(pub u32);

impl fmt::Display for ModuleIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An executable or shared object of the target, or a function of a program that an interpreter executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its file.
    pub path: PathBuf,
    /// Its build-id; empty if it has none.
    pub build_id: Vec<u8>,
    /// The address at which it was loaded.
    pub load_address: u64,
    /// How many bytes of address space it takes.
    pub len_bytes: u64,
    /// The name of the function, if an interpreter executes it: its file is the source, and offsets in it are lines.
    pub function: Option<String>,
}

/// A thread of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// What the operating system calls it.
    pub os_id: u32,
    /// What the program calls it. Bytes: the kernel does not ask for UTF-8.
    pub name: Option<Vec<u8>>,
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Inside a module.
    Module {
        /// The module.
        module: ModuleIndex,
        /// The distance from its load address.
        offset: u64,
    },
    /// In no module: generated code, or the kernel's.
    Absolute {
        /// The address in the target.
        address: u64,
    },
}

/// A call stack: a node of the tree of all call stacks of a trace.
///
/// Its own frame is the innermost one; its caller is another node. A caller always has a smaller id
/// than its callees, so following callers ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

impl StackId {
    /// No call stack is known. As a caller: this frame is the outermost one.
    pub const NONE: Self = Self(0);

    /// Whether no call stack is known.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for StackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One node of the tree of call stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// The frame.
    pub frame: Frame,
    /// The stack that called it.
    pub caller: StackId,
}
