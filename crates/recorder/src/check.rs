//! The self-check: replaying the trace must give the final pools and trees, and stores must have found what the stores before them in
//! the trace have left.

use std::path::Path;

use powerfail_trace::Trace;
use powerfail_trace::recording::RecordingSummary;
use powerfail_trace::replay::replay_unless;
use powerfail_trace::tree_replay::replay_trees;

use crate::error::{RecordError, SelfCheckFailure, TreeCheckFailure, WrongOrder};
use crate::order_check::OrderCheck;
use crate::pool::Pools;
use crate::replica::Replica;

/// Replays the trace and compares it with the pools, then judges the order. Returns the summary if they are equal. A long
/// recording takes long, so an interruption ends it.
pub(crate) fn self_check(
    trace: &Path,
    pools: &Pools,
    order: &OrderCheck,
    summary: RecordingSummary,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<RecordingSummary, RecordError> {
    let trace = Trace::open(trace)?;
    let replayed = replay_unless(&trace, u64::MAX, is_interrupted)?;
    for result in replayed.ok_or(RecordError::Interrupted)? {
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
            wrong_order: None,
            summary,
        })));
    }
    if let Some((wrong, count)) = order.result()
        && let Some(pool) = pools.get(wrong.pool)
    {
        return Err(RecordError::SelfCheck(Box::new(SelfCheckFailure {
            path: pool.path.clone(),
            replayed_len_bytes: pool.len_bytes,
            actual_len_bytes: pool.len_bytes,
            first_difference: None,
            wrong_order: Some(WrongOrder {
                offset: wrong.offset,
                replayed: wrong.traced,
                found: wrong.found,
                count,
            }),
            summary,
        })));
    }
    for result in replay_trees(&trace)? {
        if let Some(difference) = result.difference
            && let Some(tree) = trace.trees().get(result.tree.0 as usize)
        {
            return Err(RecordError::TreeCheck(Box::new(TreeCheckFailure {
                path: tree.path.clone(),
                difference,
                summary,
            })));
        }
    }
    Ok(summary)
}
