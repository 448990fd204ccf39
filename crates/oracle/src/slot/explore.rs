//! Asks a zygote for lazy executions.

use std::path::PathBuf;

use powerfail_abi::explore::flag;

use crate::error::OracleError;
use crate::explore::{
    Execution, ExploreRequest, Explored, Unfit, choices_of, log_of, read_masks, write_table,
};
use crate::message::{ExecutionReply, ExploreReply, Request};
use crate::plan::PoolMapping;
use crate::slot::{Slot, misunderstood};

/// With this a runtime says that recovery can be executed one by one but not forked.
const REEXECUTE: &str = "reexecute:";

impl Slot {
    /// Explores what recovery can observe on the private files, which must hold the newest content of
    /// everything. With forks they stay as they are; without, the one execution changes them.
    ///
    /// Fails with [`OracleError::NotExplorable`] if that is not possible with this recovery, and with
    /// [`OracleError::NotForkable`] if it is possible only without forking.
    pub fn explore(&mut self, request: &ExploreRequest<'_>) -> Result<Explored, OracleError> {
        let fork = request.fork && self.only_recovery;
        let Some(file) = &self.file else {
            return Err(OracleError::NotExplorable {
                reason: "there is no runtime".into(),
            });
        };
        let mut flags = flag::LAZY;
        if fork {
            flags |= flag::FORK | flag::PRIVATE;
        }
        if request.log {
            flags |= flag::LOG;
        }
        let places = self.places_of(&request.table.pools)?;
        let lines = match write_table(file, request.table, &places, request.prefix, flags) {
            Ok(lines) => lines,
            Err(Unfit::Table(reason)) => return Err(OracleError::NotExplorable { reason }),
            Err(Unfit::System(error)) => {
                return Err(OracleError::system("describe a crash", &error));
            }
        };
        self.remove_leftovers(&self.placeholders)?;
        self.say(Request::Explore {
            fork,
            log: request.log,
            max_executions: request.max_executions,
        })?;
        let mut explored = Explored::default();
        loop {
            let reply =
                ExploreReply::decode(&self.receive()?).map_err(|error| misunderstood(&error))?;
            match reply {
                ExploreReply::Executions(executions) => {
                    for execution in executions {
                        let execution = self.execution_of(execution, &lines, &places)?;
                        explored.executions.push(execution);
                    }
                }
                ExploreReply::Done {
                    stopped,
                    forked,
                    warnings,
                } => {
                    explored.stopped = stopped;
                    explored.forked = forked;
                    explored.warnings = warnings;
                    break;
                }
                ExploreReply::Refused { reason } => {
                    return Err(match reason.strip_prefix(REEXECUTE) {
                        Some(reason) if fork => OracleError::NotForkable {
                            reason: reason.trim_start().into(),
                        },
                        _ => OracleError::NotExplorable { reason },
                    });
                }
                ExploreReply::Trouble(reply) => return Err(self.error_of(reply)),
            }
        }
        if let Some(file) = &self.file {
            let failed = |error| OracleError::system("learn what was read", &error);
            explored.read = read_masks(file, &places).map_err(failed)?;
            explored.traps = file.traps().map_err(failed)?;
            explored.steps = file.steps().map_err(failed)?;
        }
        Ok(explored)
    }

    /// At which places of the slot the pools of a table are.
    fn places_of(&self, pools: &[PathBuf]) -> Result<Vec<u32>, OracleError> {
        let place_of = |pool: &PathBuf| {
            let is_it = |it: &PoolMapping| it.original == *pool || it.private == *pool;
            match self.mappings.iter().position(is_it) {
                Some(place) => Ok(place as u32),
                None => Err(OracleError::NotExplorable {
                    reason: format!("{} is no pool of this slot", pool.display()),
                }),
            }
        };
        pools.iter().map(place_of).collect()
    }

    fn execution_of(
        &self,
        reply: ExecutionReply,
        lines: &[u32],
        places: &[u32],
    ) -> Result<Execution, OracleError> {
        let mut choices = choices_of(&reply.choices);
        for choice in &mut choices {
            choice.line = lines.get(choice.line as usize).copied().unwrap_or(u32::MAX);
        }
        let mut log = log_of(&reply.log);
        for event in &mut log {
            let place = places.iter().position(|it| *it == event.pool);
            event.pool = place.map_or(u32::MAX, |it| it as u32);
        }
        Ok(Execution {
            verdict: self.verdict_of(reply.reply)?,
            choices,
            stages: reply.stages,
            log,
        })
    }
}
