//! Runs recovery again with other values at known failure points: what confirmation, validation and inference share.

use std::collections::BTreeMap;
use std::time::Instant;

use powerfail_explore::FailurePoint;
use powerfail_model::EventIndex;

use super::points::point_at;
use super::watch::WatchSettings;
use crate::crash::Engine;
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::lazy::driver::{Bounds, Progress, Round, RoundObserver, round};
use crate::lazy::executor::{LazyExecutor, OracleExecutor};
use crate::lazy::reuse::{Changes, ExecutedPoint, Reads, Reuse};

/// How many other values of a read are tried.
pub(super) const CLASSES_MAX: u16 = 4;

/// The outcomes of everything that was tried at one failure point.
pub(super) struct RerunPoint<O> {
    pub(super) at: EventIndex,
    pub(super) executions: u64,
    pub(super) outcomes: Vec<O>,
}

impl<O> RerunPoint<O> {
    pub(super) const fn new(at: EventIndex) -> Self {
        Self {
            at,
            executions: 0,
            outcomes: Vec::new(),
        }
    }
}

impl<O> ExecutedPoint for RerunPoint<O> {
    fn at(&self) -> EventIndex {
        self.at
    }

    fn executions(&self) -> u64 {
        self.executions
    }

    fn saved(&self) -> u64 {
        0
    }

    fn reads(&self) -> Option<&Reads> {
        None
    }
}

/// Runs the tasks of one failure point.
pub(super) type RerunAt<'a, T, O> = &'a (
        dyn Fn(
    &mut dyn LazyExecutor,
    EventIndex,
    &[T],
    &WatchSettings<'_>,
) -> Result<RerunPoint<O>, CheckError>
            + Sync
    );

impl Engine<'_, '_> {
    /// Runs all tasks, by the moment at which the power fails.
    pub(super) fn rerun_all<T: Sync, O: Send>(
        &mut self,
        step: CheckStep,
        all: &BTreeMap<EventIndex, Vec<T>>,
        rerun_at: RerunAt<'_, T, O>,
        deadline: Option<Instant>,
    ) -> Result<Progress<RerunPoint<O>>, CheckError> {
        let points: Vec<FailurePoint> = all.keys().map(|at| point_at(*at)).collect();
        let total = points.len() as u64;
        // Nothing is known of what is read, so nothing is left out.
        let changes = Changes::none();
        let contents = &*self.contents;
        let mut progress: Progress<RerunPoint<O>> = Progress::default();
        let mut reuse = Reuse::new(&changes, contents, progress.results.iter());
        let kill_handles = self.runner.kill_handles();
        let executors = self.runner.executors(false)?;
        let settings = WatchSettings {
            contents,
            benign: &[],
        };
        let observer = &mut *self.observer;
        let mut tick = |done| observer.tick(step, done, total);
        let this_round = Round {
            points: &points,
            explore: &|executor: &mut OracleExecutor<'_, '_>, point: &FailurePoint, _| {
                let here = all.get(&point.at).map_or(&[][..], Vec::as_slice);
                rerun_at(executor, point.at, here, &settings)
            },
            accept: &|_| (),
            bounds: Bounds {
                max_executions: None,
                deadline,
            },
        };
        let mut round_observer = RoundObserver {
            tick: &mut tick,
            kill: &|| crate::runner::kill(&kill_handles),
        };
        round(
            executors,
            &this_round,
            &mut reuse,
            &mut progress,
            &mut round_observer,
        )?;
        self.runner.runs += progress.executions;
        Ok(progress)
    }
}
