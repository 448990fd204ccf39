//! What recovery reads in the crash states that findings show.
//!
//! An exploration knows the loads of the execution that failed. A finding shows a state with fewer lost lines, or of an
//! earlier moment, and recovery reads other values there. So it is executed on that state once more, with its loads
//! watched; one pass over the trace is for all findings.

use powerfail_explore::lazy::CrashTable;
use powerfail_finding::Finding;
use powerfail_image::Patch;
use powerfail_model::{CrashState, EventIndex};
use powerfail_oracle::{Branch, ExploreRequest};

use super::engine::Engine;
use crate::error::CheckError;
use crate::lazy::executor::LazyExecutor;
use crate::lazy::walk::Attempt;
use crate::lazy::{Load, choices, loads};
use crate::places::Places;

/// A crash state of which it is not known what recovery reads there.
#[derive(Clone, Debug)]
pub(super) struct UnreadState {
    pub(super) at: EventIndex,
    pub(super) state: CrashState,
}

impl UnreadState {
    /// Whether a finding shows this state.
    fn is_of(&self, finding: &Finding, line_bytes: u64) -> bool {
        let Some(evidence) = &finding.evidence else {
            return false;
        };
        let failure = &evidence.failure;
        let mut lines = self.state.versions.iter().zip(&failure.lost_lines);
        evidence.choices.is_empty()
            && failure.again.is_none()
            && failure.event == self.at.0
            && failure.lost_lines.len() == self.state.versions.len()
            && lines.all(|((id, version), lost)| {
                let offset = id.line.0 * line_bytes;
                (id.pool.0, offset, *version) == (lost.pool, lost.pool_offset, lost.version)
            })
    }
}

impl Engine<'_, '_> {
    /// Adds the choices of recovery to findings that show these states.
    pub(super) fn add_choices(
        &mut self,
        mut states: Vec<UnreadState>,
        findings: &mut [Finding],
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        if self.is_stopped() {
            return Ok(());
        }
        let (trace, rules) = (self.trace, self.runner.rules());
        let line_bytes = self.runner.line_bytes();
        states.sort_by_key(|unread| unread.at);
        let mut executors = self.runner.executors(false)?;
        let Some(executor) = executors.first_mut() else {
            return Ok(());
        };
        for unread in states {
            let shown = |finding: &&mut Finding| unread.is_of(finding, line_bytes);
            let Some(evidence) = findings.iter_mut().find(shown) else {
                continue;
            };
            let Some(evidence) = &mut evidence.evidence else {
                continue;
            };
            executor.move_to(unread.at)?;
            let Some(loads) = loads_in(executor, &unread.state)? else {
                continue;
            };
            evidence.choices = choices(trace, &loads, &unread.state, rules, places)?;
        }
        Ok(())
    }
}

/// The loads of recovery that could read several values, in a run on one crash state.
fn loads_in(
    executor: &mut dyn LazyExecutor,
    state: &CrashState,
) -> Result<Option<Vec<Load>>, CheckError> {
    let mut table = executor.crash_table();
    let Some(overlay) = put_first(&mut table, state) else {
        return Ok(None);
    };
    let lines = executor.pools().line_table(&table);
    let request = ExploreRequest {
        table: &lines,
        prefix: &[],
        branch: Branch::Never,
        watches: &[],
        observations: false,
        log: false,
        max_executions: 1,
    };
    let Attempt::Explored(explored) = executor.explore(&overlay, &request)? else {
        return Ok(None);
    };
    let Some(execution) = explored.executions.first() else {
        return Ok(None);
    };
    let mut loads = loads(executor, &table, execution, None);
    for load in &mut loads {
        // The newest comes first again.
        let mut order: Vec<usize> = (0..load.sources.len()).collect();
        order.sort_by_key(|source| std::cmp::Reverse(load.sources[*source].stores.len()));
        let taken = order.iter().position(|source| *source == load.taken);
        load.taken = taken.unwrap_or(0);
        load.sources = order.iter().map(|it| load.sources[*it].clone()).collect();
    }
    Ok(Some(loads))
}

/// Makes the contents of a state the first of their lines: they are what a run reads that never branches. Returns what
/// differs from the newest contents, or nothing if the table does not have the state.
fn put_first(table: &mut CrashTable, state: &CrashState) -> Option<Vec<Patch>> {
    let line_bytes = table.line_bytes as u64;
    let mut overlay = Vec::new();
    for (id, version) in &state.versions {
        let place = table.index_of(*id)?;
        let contents = &mut table.lines[place].contents;
        let found = contents
            .iter()
            .position(|content| content.versions.contains(version))?;
        let content = contents.remove(found);
        overlay.push(Patch {
            pool: id.pool,
            offset: id.line.0 * line_bytes,
            bytes: content.bytes.clone(),
        });
        contents.insert(0, content);
    }
    Some(overlay)
}
