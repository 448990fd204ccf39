//! What all trampolines of a process have in common.

use powerfail_protocol::PoolWindow;

/// What all trampolines of a process have in common.
#[derive(Clone, Copy, Debug)]
pub struct EmitterSettings {
    /// Where pools are.
    pub window: PoolWindow,
    /// Whether `rdfsbase` can be executed (`AT_HWCAP2`, bit 1).
    pub has_fsgsbase: bool,
    /// Which locked operations on volatile memory are recorded.
    pub locked_fences: LockedFences,
    /// Whether flushes of volatile memory are recorded.
    pub volatile_flushes: VolatileFlushes,
    /// Whether flushes of pools are executed, or only recorded.
    pub executes_flushes: bool,
    /// Whether records name the call stack instead of the site.
    pub names_stacks: bool,
    /// Whether threads ask for their turn.
    pub turns: Turns,
}

impl EmitterSettings {
    /// The usual choices for a window.
    pub fn new(window: PoolWindow) -> Self {
        Self {
            window,
            has_fsgsbase: true,
            locked_fences: LockedFences::WhenPending,
            volatile_flushes: VolatileFlushes::Ignored,
            executes_flushes: true,
            names_stacks: false,
            turns: Turns::NotAskedFor,
        }
    }
}

/// Which locked operations on volatile memory are recorded as fences, other than those that leave their memory as it
/// is, which are recorded unless none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockedFences {
    /// All.
    Always,
    /// Those that complete a flush or a non-temporal store of their thread.
    WhenPending,
    /// None.
    Never,
}

/// Whether the runtime is asked before each operation whether it is the turn of this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// Threads run as they like.
    NotAskedFor,
    /// By the way that a full chunk goes.
    AskedFor,
}

/// Whether flushes of volatile memory are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolatileFlushes {
    /// They are executed and that is all.
    Ignored,
    /// They are recorded like those of a pool.
    Recorded,
}
