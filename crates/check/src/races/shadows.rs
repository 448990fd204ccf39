//! The shadow of persistent memory at each failure point: a pass over the trace for each worker.

use powerfail_explore::lazy::Remarks;
use powerfail_model::{EventIndex, LineId, LineIndex};
use powerfail_oracle::Watch;
use powerfail_races::{ByteWatch, CommitError, Shadow, ShadowOptions};
use powerfail_trace::{Record, RecordCursor, Trace};
use rustc_hash::FxHashMap;

use crate::error::CheckError;
use crate::lazy::executor::Pools;

/// A shadow that moves forward.
pub(super) struct ShadowPass<'t> {
    shadow: Shadow,
    records: RecordCursor<'t>,
    /// The event that comes next.
    next: u64,
}

impl<'t> ShadowPass<'t> {
    pub(super) fn new(trace: &'t Trace, options: &ShadowOptions) -> Result<Self, CheckError> {
        Ok(Self {
            shadow: Shadow::new(trace, options)?,
            records: trace.records_from(EventIndex(0)),
            next: 0,
        })
    }

    /// The shadow just before an event, which is not before the present one.
    pub(super) fn at(&mut self, at: EventIndex) -> Result<&Shadow, CheckError> {
        while self.next < at.0 {
            let Some(record) = self.records.next_record()? else {
                break;
            };
            self.shadow.apply(&record)?;
            self.next = record.index.0 + 1;
        }
        Ok(&self.shadow)
    }
}

/// Bytes to watch, as the oracle names them: those of pools that recovery sees.
pub(super) fn watches(shadow: &Shadow, pools: &Pools) -> Vec<Watch> {
    let watches = shadow.watches().into_iter();
    watches
        .filter_map(|watch| {
            Some(Watch {
                pool: pools.number(watch.pool)?,
                reserved: 0,
                offset: watch.offset.0,
                bytes: watch.bytes,
            })
        })
        .collect()
}

/// Follows which bytes are watched from failure point to failure point: a read of other bytes than at another
/// point has to be watched again, even if all contents are the same.
pub(super) struct WatchChanges {
    shadow: Shadow,
    line_bytes: u64,
    known: FxHashMap<LineId, u128>,
    /// What went wrong.
    error: Option<CommitError>,
}

impl WatchChanges {
    pub(super) fn new(trace: &Trace, options: &ShadowOptions) -> Result<Self, CheckError> {
        Ok(Self {
            shadow: Shadow::new(trace, options)?,
            line_bytes: options.rules.domain.line_bytes() as u64,
            known: FxHashMap::default(),
            error: None,
        })
    }

    /// Fails if the trace has annotations that contradict each other.
    pub(super) fn finish(self) -> Result<(), CheckError> {
        self.error.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Remarks for WatchChanges {
    fn record(&mut self, record: &Record<'_>) {
        if self.error.is_none()
            && let Err(error) = self.shadow.apply(record)
        {
            self.error = Some(error);
        }
    }

    fn at_point(&mut self, tell: &mut dyn FnMut(LineId, u128)) {
        let mut now: FxHashMap<LineId, u128> = FxHashMap::default();
        for watch in self.shadow.watches() {
            let line = LineId {
                pool: watch.pool,
                line: LineIndex(watch.offset.0 / self.line_bytes),
            };
            let sum = now.entry(line).or_default();
            *sum = sum.wrapping_add(digest(&watch));
        }
        for line in self.known.keys().filter(|line| !now.contains_key(line)) {
            tell(*line, 0);
        }
        for (line, digest) in &now {
            if self.known.get(line) != Some(digest) {
                tell(*line, *digest);
            }
        }
        self.known = now;
    }
}

/// Tells sets of bytes of a line apart; never zero.
fn digest(watch: &ByteWatch) -> u128 {
    // Odd numbers without any other meaning.
    const FIRST: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    const SECOND: u128 = 0xc2b2_ae3d_27d4_eb4f_1656_67b1_9e37_79f9;
    let bytes = u128::from(watch.bytes).wrapping_mul(FIRST);
    let place = u128::from(watch.offset.0).wrapping_mul(SECOND);
    let mixed = bytes ^ bytes.rotate_left(61) ^ place;
    mixed.wrapping_mul(FIRST) | 1
}
