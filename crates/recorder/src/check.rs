//! The self-check: replaying the trace must give the final pools.

use std::path::Path;

use powerfail_trace::Trace;
use powerfail_trace::recording::RecordingSummary;
use powerfail_trace::replay::replay;

use crate::error::{RecordError, SelfCheckFailure};
use crate::pool::Pools;
use crate::replica::Replica;

/// Replays the trace and compares it with the pools. Returns the summary if they are equal.
pub(crate) fn self_check(
    trace: &Path,
    pools: &Pools,
    summary: RecordingSummary,
) -> Result<RecordingSummary, RecordError> {
    let trace = Trace::open(trace)?;
    for result in replay(&trace)? {
        let Some(pool) = pools
            .get(result.pool)
            .filter(|_| result.matches() == Some(false))
        else {
            continue;
        };
        let failed = |error| RecordError::system("read the pool", error);
        let replica = Replica::of(&trace, result.pool)?;
        return Err(RecordError::SelfCheck(Box::new(SelfCheckFailure {
            path: pool.path.clone(),
            replayed_len_bytes: replica.len_bytes(),
            actual_len_bytes: pool.file.len_bytes().map_err(failed)?,
            first_difference: replica.first_difference(&pool.file).map_err(failed)?,
            summary,
        })));
    }
    Ok(summary)
}
