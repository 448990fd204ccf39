//! Whether an unsafe read matters: recovery runs again, and the read sees the other value.

use std::collections::BTreeMap;
use std::time::Instant;

use powerfail_explore::FailurePoint;
use powerfail_explore::lazy::Seen;
use powerfail_finding::Evidence;
use powerfail_model::{CrashState, EventIndex};
use powerfail_trace::StackId;

use super::Found;
use super::pairs::{Instance, Pairs};
use super::points::point_at;
use super::watch::{Look, Setting, look};
use crate::crash::{Bench, Failed, evidence};
use crate::error::CheckError;
use crate::lazy::driver::{Bounds, Progress, Round, Watch, round};
use crate::lazy::lab::{Lab, SlotLab};
use crate::lazy::reuse::{Changes, Known, Reads, Reuse};
use crate::lazy::study::{Load, loads};
use crate::options::Step;
use crate::runner::{Trial, TrialState};
use crate::symptom::Symptom;

/// At how many failure points a pair is tried.
const INSTANCES_MAX: usize = 6;
/// How many other values of a read are tried at each.
const CLASSES_MAX: u16 = 4;

/// What is tried at a failure point: pairs by their numbers.
type Tasks = BTreeMap<EventIndex, Vec<(usize, Instance)>>;

/// What came of it.
struct Tried {
    at: EventIndex,
    executions: u64,
    confirmed: Vec<(usize, Confirmed)>,
}

/// A failure that the other value makes.
struct Confirmed {
    state: CrashState,
    symptom: Symptom,
    loads: Vec<Load>,
}

impl Known for Tried {
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

/// Of all places where a pair was seen, those that are tried: the first, the last, and some between them.
fn chosen(instances: &[Instance]) -> Vec<Instance> {
    let useful: Vec<Instance> = instances
        .iter()
        .filter(|instance| !instance.is_failing)
        .copied()
        .collect();
    if useful.len() <= INSTANCES_MAX {
        return useful;
    }
    let last = useful.len() - 1;
    let mut order: Vec<usize> = vec![0, last];
    order.extend((1..INSTANCES_MAX - 1).map(|number| number * last / (INSTANCES_MAX - 1)));
    order.into_iter().map(|number| useful[number]).collect()
}

impl Bench<'_, '_> {
    /// Tries pairs until each is confirmed or has been tried often enough.
    pub(super) fn confirm_pairs(
        &mut self,
        pairs: &mut Pairs,
        deadline: Option<Instant>,
        found: &mut Found,
    ) -> Result<(), CheckError> {
        let plans: Vec<Vec<Instance>> = pairs.all.iter().map(|it| chosen(&it.instances)).collect();
        let line_bytes = self.runner.line_bytes();
        for turn in 0..INSTANCES_MAX {
            let mut tasks = Tasks::new();
            for (number, (pair, plan)) in pairs.all.iter().zip(&plans).enumerate() {
                if let Some(instance) = plan.get(turn)
                    && pair.evidence.is_none()
                {
                    tasks
                        .entry(instance.at)
                        .or_default()
                        .push((number, *instance));
                }
            }
            if tasks.is_empty() {
                break;
            }
            let progress = self.try_tasks(&tasks, deadline)?;
            found.races.confirmations += progress.executions;
            for tried in progress.studied {
                for (number, confirmed) in tried.confirmed {
                    let failed = Failed {
                        trial: Trial {
                            at: tried.at,
                            state: TrialState::Exactly(confirmed.state.clone()),
                        },
                        state: confirmed.state,
                        stack: StackId::NONE,
                        symptom: confirmed.symptom,
                        count: 1,
                    };
                    let shown: Evidence = evidence(&failed, line_bytes);
                    pairs.all[number].loads = confirmed.loads;
                    pairs.all[number].failed = Some(failed);
                    pairs.all[number].evidence.get_or_insert(shown);
                }
            }
            if progress.is_interrupted {
                return Err(CheckError::Interrupted);
            }
            if progress.is_over {
                break;
            }
        }
        Ok(())
    }

    fn try_tasks(
        &mut self,
        tasks: &Tasks,
        deadline: Option<Instant>,
    ) -> Result<Progress<Tried>, CheckError> {
        let points: Vec<FailurePoint> = tasks.keys().map(|at| point_at(*at)).collect();
        let total = points.len() as u64;
        // Nothing is known of what is read, so nothing is left out.
        let changes = Changes::none();
        let contents = &*self.contents;
        let mut progress: Progress<Tried> = Progress::default();
        let mut reuse = Reuse::new(&changes, contents, progress.studied.iter());
        let zygotes = self.runner.zygotes();
        let labs = self.runner.labs(false)?;
        let setting = Setting { contents };
        let observer = &mut *self.observer;
        let mut tick = |done| {
            observer.progress(Step::Reasons, done, total);
            !observer.is_interrupted()
        };
        let about = Round {
            points: &points,
            study: &|lab: &mut SlotLab<'_, '_>, point: &FailurePoint, _| {
                let tasks = tasks.get(&point.at).map_or(&[][..], Vec::as_slice);
                try_at(lab, point.at, tasks, &setting)
            },
            bounds: Bounds {
                max_executions: None,
                deadline,
            },
        };
        let mut onlooker = Watch {
            tick: &mut tick,
            end: &|| crate::runner::end(&zygotes),
        };
        round(labs, about, &mut reuse, &mut progress, &mut onlooker)?;
        self.runner.runs += progress.executions;
        Ok(progress)
    }
}

fn try_at(
    lab: &mut dyn Lab,
    at: EventIndex,
    tasks: &[(usize, Instance)],
    setting: &Setting<'_>,
) -> Result<Tried, CheckError> {
    lab.move_to(at)?;
    let mut tried = Tried {
        at,
        executions: 0,
        confirmed: Vec::new(),
    };
    let table = lab.crash_table();
    let lines = lab.pools().line_table(&table);
    for (number, instance) in tasks {
        for class in 1..instance.class_count.min(1 + CLASSES_MAX) {
            let mut prefix = vec![0; instance.choice];
            prefix.push(u32::from(class));
            tried.executions += 1;
            let Look::Seen(sight) = look(lab, &lines, &[], &prefix)? else {
                break;
            };
            let execution = &sight.execution;
            let Some(symptom) = setting.contents.judge(at, &execution.verdict) else {
                continue;
            };
            let Ok(seen) = Seen::of_choices(&table, &execution.choices) else {
                continue;
            };
            let state = seen.newest_state();
            let shown = loads(lab, &table, execution, Some(instance.choice));
            let verdict = lab.run(&state, &[])?;
            tried.executions += 1;
            let again = setting.contents.judge(at, &verdict);
            if let Some(again) = again.filter(|again| again.code == symptom.code) {
                tried.confirmed.push((
                    *number,
                    Confirmed {
                        state,
                        symptom: again,
                        loads: shown,
                    },
                ));
                break;
            }
        }
    }
    Ok(tried)
}
