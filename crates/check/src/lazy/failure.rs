//! A failure that lazy exploration has found at a failure point, and what is known about it.
//!
//! Only data. [`confirm`](super::confirm) makes failures of executions; `crash::lazy_findings` makes findings of them.

use powerfail_finding::Code;
use powerfail_image::Patch;
use powerfail_model::{CrashState, EventIndex, LineId};
use powerfail_oracle::Backtrace;
use powerfail_trace::StackId;

use crate::symptom::Symptom;

/// A kind of failure at a failure point, confirmed on a crash state.
#[derive(Clone, Debug)]
pub(crate) struct LazyFailure {
    pub(crate) at: EventIndex,
    /// Lines that do not have their newest content; none if the newest content fails.
    pub(crate) state: CrashState,
    /// Set if the failure takes another power failure, during recovery.
    pub(crate) recovery_crash: Option<RecoveryCrash>,
    /// The stores to each of these lines that are not surely durable.
    pub(crate) stores: Vec<(LineId, Vec<EventIndex>)>,
    pub(crate) symptom: Symptom,
    pub(crate) loads: Vec<Load>,
    pub(crate) key: FailureKey,
    /// How many executions fail in this way.
    pub(crate) count: u64,
}

/// A power failure during recovery.
#[derive(Clone, Debug)]
pub(crate) struct RecoveryCrash {
    pub(crate) failures: u32,
    pub(crate) events: u64,
    pub(crate) overlay: Vec<Patch>,
    /// Stores of the interrupted recovery that were lost; where nothing at all was lost, the first that did not happen.
    pub(crate) lost: Vec<RecoveryStore>,
}

/// A store of recovery.
#[derive(Clone, Debug)]
pub(crate) struct RecoveryStore {
    pub(crate) stack: Backtrace,
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
}

/// Failures of a failure point with equal keys are counted as one, before their reason is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FailureKey {
    pub(crate) code: Code,
    /// The signal or exit status.
    pub(crate) number: i32,
    /// The address of the decisive load.
    pub(crate) load: u64,
    /// The store that the load misses, or reads although it should not have survived.
    pub(crate) store: Option<StackId>,
    pub(crate) failures: u32,
}

/// A load that could observe several values.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) stack: Option<Backtrace>,
    /// The line; `from` and `to` bound the loaded bytes in it.
    pub(crate) line: LineId,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) sources: Vec<LoadSource>,
    pub(crate) taken: usize,
    pub(crate) decisive: bool,
}

/// One of the values that a load can observe.
#[derive(Clone, Debug)]
pub(crate) struct LoadSource {
    /// The stores to the line, beyond the durable ones, that have reached memory in this case; oldest first.
    pub(crate) stores: Vec<EventIndex>,
    /// After a crash of recovery: recovery's newest store to the line that has reached memory in this case.
    pub(crate) by_recovery: Option<RecoveryStore>,
    pub(crate) bytes: Vec<u8>,
}
