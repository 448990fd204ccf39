//! Requests lazy executions from a zygote, and translates their records to the numbers of the caller's table.

use std::path::PathBuf;

use powerfail_protocol::explore::{RefusalKind, flag};
use powerfail_protocol::mark;

use crate::error::OracleError;
use crate::lazy::{
    Branch, Choice, ExploreRequest, LazyExecution, LazyExecutions, Note, Orders, Unfit, choices_of,
    log_of, notes_of, read_masks, write_table,
};
use crate::message::{ExploreOptions, ExploreReply, LazyReply, Refusal, Request, RunReply};
use crate::plan::PoolMapping;
use crate::slot::{ENDED_SUPERVISOR, Slot};

impl Slot {
    /// Explores what recovery can observe on the private files, which must hold the newest content of
    /// everything. With forks they stay as they are; with [`Branch::Never`] they do, too, unless the plan has
    /// more than a recovery or recovery does something that needs the files ([`LazyExecutions::kept`] says so);
    /// else the one execution changes them.
    ///
    /// Fails with [`OracleError::NotExplorable`] if that is not possible with this recovery, and with
    /// [`OracleError::NotForkable`] if it is possible only without forking.
    pub fn explore(&mut self, request: &ExploreRequest<'_>) -> Result<LazyExecutions, OracleError> {
        let wants_private = match request.branch {
            Branch::Fork => true,
            Branch::Repeat => false,
            Branch::Never => !self.needs_files,
        };
        let private = wants_private && self.only_recovery;
        match self.explore_once(request, private) {
            Err(OracleError::NotForkable { .. }) if request.branch == Branch::Never => {
                // Nothing has changed. What needs the files once will need them again.
                self.needs_files = true;
                self.explore_once(request, false)
            }
            explored => explored,
        }
    }

    fn explore_once(
        &mut self,
        request: &ExploreRequest<'_>,
        private: bool,
    ) -> Result<LazyExecutions, OracleError> {
        let fork = private && request.branch == Branch::Fork;
        let notes = request.branch == Branch::Never || !request.watches.is_empty();
        let Some(file) = &self.file else {
            return Err(OracleError::NotExplorable {
                reason: "there is no runtime".into(),
            });
        };
        let mut flags = flag::LAZY;
        for (is_wanted, bit) in [
            (fork, flag::FORK),
            (private, flag::PRIVATE),
            (request.log, flag::LOG),
            (notes, flag::NOTES),
            (request.observations, flag::OBSERVATIONS),
        ] {
            if is_wanted {
                flags |= bit;
            }
        }
        let places = self.places_of(&request.table.pools)?;
        let orders = Orders {
            prefix: request.prefix,
            watches: request.watches,
            flags,
        };
        let lines = match write_table(file, request.table, &places, orders, &mut self.watches) {
            Ok(lines) => lines,
            Err(Unfit::Table(reason)) => return Err(OracleError::NotExplorable { reason }),
            Err(Unfit::System(error)) => {
                return Err(OracleError::system("describe a crash")(error));
            }
        };
        let options = ExploreOptions {
            private,
            with_log: request.log,
            with_notes: notes,
            max_executions: request.max_executions,
        };
        let explored = match self.exchange_explore(options, &lines, &places) {
            Err(OracleError::ZygoteDied) if self.revive() => {
                Err(refusal(private, ENDED_SUPERVISOR))
            }
            explored => explored,
        };
        let mut explored = LazyExecutions {
            forked: fork,
            kept: private,
            ..explored?
        };
        if let Some(file) = &self.file {
            let failed = OracleError::system("read the shared file");
            explored.read = read_masks(file, &places).map_err(&failed)?;
            explored.traps = file.traps().map_err(&failed)?;
            explored.steps = file.steps().map_err(&failed)?;
        }
        Ok(explored)
    }

    /// Requests executions and receives all of them.
    fn exchange_explore(
        &mut self,
        options: ExploreOptions,
        lines: &[u32],
        places: &[u32],
    ) -> Result<LazyExecutions, OracleError> {
        self.remove_leftovers(&self.placeholders)?;
        self.tell_hangs()?;
        self.zygote.send(&Request::Explore(options))?;
        let mut explored = LazyExecutions::default();
        loop {
            match self.zygote.receive()? {
                ExploreReply::Executions(executions) => {
                    for execution in executions {
                        let execution = self.execution_of(execution, lines, places)?;
                        explored.executions.push(execution);
                    }
                }
                ExploreReply::Done {
                    stopped,
                    warnings,
                    shown,
                } => {
                    self.hangs.add(shown);
                    explored.stopped = stopped;
                    explored.warnings = warnings;
                    return Ok(explored);
                }
                ExploreReply::Refused(Refusal { kind, reason }) => {
                    return Err(match kind {
                        RefusalKind::NotForkable if options.private => {
                            OracleError::NotForkable { reason }
                        }
                        _ => OracleError::NotExplorable { reason },
                    });
                }
                // Executions that change no file can be repeated without the snapshot.
                ExploreReply::NoVerdict(RunReply::SnapshotLost { reason }) if options.private => {
                    return Err(OracleError::NotForkable { reason });
                }
                ExploreReply::NoVerdict(reply) => return Err(self.error_of(reply)),
            }
        }
    }

    /// At which places of the slot the pools of a table are.
    fn places_of(&self, pools: &[PathBuf]) -> Result<Vec<u32>, OracleError> {
        let place_of = |pool: &PathBuf| {
            let is_it = |it: &PoolMapping| it.original == *pool || it.private == *pool;
            match self.mappings.iter().position(is_it) {
                Some(place) => Ok(place as u32),
                None => Err(OracleError::NotExplorable {
                    reason: format!("{} is not a pool of this slot", pool.display()),
                }),
            }
        };
        pools.iter().map(place_of).collect()
    }

    fn execution_of(
        &self,
        reply: LazyReply,
        lines: &[u32],
        places: &[u32],
    ) -> Result<LazyExecution, OracleError> {
        let mut choices = choices_of(&reply.choices.0);
        for choice in &mut choices {
            choice.line = lines.get(choice.line as usize).copied().unwrap_or(u32::MAX);
        }
        let pool_at = |place: u32| {
            let pool = places.iter().position(|it| *it == place);
            pool.map_or(u32::MAX, |it| it as u32)
        };
        let mut log = log_of(&reply.log.0);
        for event in &mut log {
            event.pool = pool_at(event.pool);
        }
        let mut notes = notes_of(&reply.notes.0);
        for note in &mut notes {
            note.pool = pool_at(note.pool);
            note.second[0] = pool_at(note.second[0] as u32).into();
        }
        skip_before_region(&mut choices, &mut notes);
        Ok(LazyExecution {
            verdict: self.verdict_of(reply.reply)?,
            choices,
            stages: reply.stages,
            log,
            notes,
            modules: None,
        })
    }
}

/// Why there is no exploration: it is possible without forking, or not at all.
fn refusal(private: bool, reason: &str) -> OracleError {
    let reason = reason.to_owned();
    if private {
        OracleError::NotForkable { reason }
    } else {
        OracleError::NotExplorable { reason }
    }
}

/// A process cannot know that it will come to a region of interest: what was read before the first one is skipped.
fn skip_before_region(choices: &mut [Choice], notes: &mut [Note]) {
    let is_begin = |note: &Note| note.code == mark::INTEREST_BEGIN;
    let Some(first) = notes.iter().position(is_begin) else {
        return;
    };
    for note in &mut notes[..first] {
        note.skipped = 1;
    }
    for choice in choices {
        if choice.notes as usize <= first {
            choice.skipped = 1;
        }
    }
}
