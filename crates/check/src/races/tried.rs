//! Recovery runs again with other values, at failure points that are known: the part that is the same whatever
//! is tried.

use std::collections::BTreeMap;
use std::time::Instant;

use powerfail_explore::FailurePoint;
use powerfail_model::EventIndex;

use super::points::point_at;
use super::watch::Setting;
use crate::crash::Bench;
use crate::error::CheckError;
use crate::lazy::driver::{Bounds, Progress, Round, Watch, round};
use crate::lazy::lab::{Lab, SlotLab};
use crate::lazy::reuse::{Changes, Known, Reads, Reuse};
use crate::options::Step;

/// How many other values of a read are tried.
pub(super) const CLASSES_MAX: u16 = 4;

/// What came of all that was tried at a failure point.
pub(super) struct Tried<O> {
    pub(super) at: EventIndex,
    pub(super) executions: u64,
    pub(super) outcomes: Vec<O>,
}

impl<O> Tried<O> {
    pub(super) const fn new(at: EventIndex) -> Self {
        Self {
            at,
            executions: 0,
            outcomes: Vec::new(),
        }
    }
}

impl<O> Known for Tried<O> {
    fn at(&self) -> EventIndex {
        self.at
    }

    fn executions(&self) -> u64 {
        self.executions
    }

    fn reads(&self) -> Option<&Reads> {
        None
    }
}

/// Tries what is to be tried at one failure point.
pub(super) type TryAt<'a, T, O> = &'a (
        dyn Fn(&mut dyn Lab, EventIndex, &[T], &Setting<'_>) -> Result<Tried<O>, CheckError> + Sync
    );

impl Bench<'_, '_> {
    /// Tries what there is to try, by the moment at which the power fails.
    pub(super) fn try_all<T: Sync, O: Send>(
        &mut self,
        step: Step,
        all: &BTreeMap<EventIndex, Vec<T>>,
        try_at: TryAt<'_, T, O>,
        deadline: Option<Instant>,
    ) -> Result<Progress<Tried<O>>, CheckError> {
        let points: Vec<FailurePoint> = all.keys().map(|at| point_at(*at)).collect();
        let total = points.len() as u64;
        // Nothing is known of what is read, so nothing is left out.
        let changes = Changes::none();
        let contents = &*self.contents;
        let mut progress: Progress<Tried<O>> = Progress::default();
        let mut reuse = Reuse::new(&changes, contents, progress.studied.iter());
        let kill_handles = self.runner.kill_handles();
        let labs = self.runner.labs(false)?;
        let setting = Setting {
            contents,
            benign: &[],
        };
        let observer = &mut *self.observer;
        let mut tick = |done| {
            observer.progress(step, done, total);
            !observer.is_interrupted()
        };
        let about = Round {
            points: &points,
            study: &|lab: &mut SlotLab<'_, '_>, point: &FailurePoint, _| {
                let here = all.get(&point.at).map_or(&[][..], Vec::as_slice);
                try_at(lab, point.at, here, &setting)
            },
            bounds: Bounds {
                max_executions: None,
                deadline,
            },
        };
        let mut onlooker = Watch {
            tick: &mut tick,
            end: &|| crate::runner::kill(&kill_handles),
        };
        round(labs, &about, &mut reuse, &mut progress, &mut onlooker)?;
        self.runner.runs += progress.executions;
        Ok(progress)
    }
}
