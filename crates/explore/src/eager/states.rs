//! The crash states that eager exploration runs, in the order of the trace, none twice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use powerfail_model::{CrashState, EventIndex, Image, LineId};
use powerfail_protocol::random::{Random, mix};
use powerfail_trace::{Result, StackId, Trace};
use rustc_hash::FxHashSet;

use super::open_versions::{OpenVersions, PassOptions};
use super::pass::{Segment, SegmentPass};
use super::survey::Survey;
use super::walk::{Walk, Wheel};
use crate::digest::ImageDigest;
use crate::representatives::GroupId;

/// What eager exploration tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EagerOptions {
    /// How stores are looked at.
    pub pass: PassOptions,
    /// Segments with at most this many combinations are tried with all of them.
    pub threshold: u64,
    /// How many combinations of every other segment are tried.
    pub sample: usize,
    /// Only these segments.
    pub segments: Option<Range<usize>>,
    /// Decides what is sampled.
    pub seed: u64,
    /// Also fail while a pool is being created inside of PMDK.
    pub include_create: bool,
    /// Which lines vary: others keep their newest content. `None` is all.
    pub varied: Option<Arc<VariedLines>>,
}

/// Which lines vary in a segment, by its number: those that recovery reads there. In a segment that is not named all do.
pub type VariedLines = BTreeMap<usize, BTreeSet<LineId>>;

impl Default for EagerOptions {
    fn default() -> Self {
        Self {
            pass: PassOptions::default(),
            threshold: Self::THRESHOLD,
            sample: Self::THRESHOLD as usize,
            segments: None,
            seed: 0,
            include_create: false,
            varied: None,
        }
    }
}

impl EagerOptions {
    /// The threshold with which Yat tested PMFS.
    pub const THRESHOLD: u64 = 250;

    /// The lines that vary in a segment; `None` is all.
    pub(crate) fn varied_in(&self, segment: usize) -> Option<&BTreeSet<LineId>> {
        self.varied.as_ref()?.get(&segment)
    }

    /// Whether all combinations of a segment with so many are tried.
    pub(crate) const fn is_exhaustive(&self, combinations: u64) -> bool {
        combinations <= self.threshold || combinations <= self.sample as u64
    }

    /// How many combinations of a segment with so many are tried.
    pub(crate) const fn states_of(&self, combinations: u64) -> u64 {
        if self.is_exhaustive(combinations) {
            combinations
        } else {
            self.sample as u64
        }
    }
}

/// A crash state to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EagerState {
    /// Its number among all states of these options.
    pub number: u64,
    /// The segment.
    pub segment: usize,
    /// The power fails just before this event.
    pub at: EventIndex,
    /// The call stack of that event.
    pub stack: StackId,
    /// The lines that do not hold their newest content.
    pub state: CrashState,
    /// The call stacks of stores that are lost; sorted, each once.
    pub lost: Vec<StackId>,
    /// States with the same update behaviour have the same.
    pub group: GroupId,
}

/// Iterates over the crash states to run. Holds one segment at a time, and the digests of all states so far.
pub struct EagerStates<'t, I> {
    pass: SegmentPass<'t, I>,
    survey: &'t Survey,
    options: EagerOptions,
    current: Option<Current>,
    seen: FxHashSet<ImageDigest>,
    next_number: u64,
    equal_images: u64,
}

#[derive(Debug)]
struct Current {
    segment: Segment,
    lines: Vec<LineId>,
    wheels: Vec<Wheel>,
    walk: Walk,
}

impl<'t, I: Image> EagerStates<'t, I> {
    /// The states of a trace. `survey` is that of the same trace and options, and `image` has the pools
    /// as they were before the first event.
    pub fn new(trace: &'t Trace, image: I, options: EagerOptions, survey: &'t Survey) -> Self {
        Self {
            pass: SegmentPass::new(trace, image, options.pass),
            survey,
            options,
            current: None,
            seen: FxHashSet::default(),
            next_number: 0,
            equal_images: 0,
        }
    }

    /// How many states were passed over because an earlier one has the same image.
    pub const fn equal_images(&self) -> u64 {
        self.equal_images
    }

    /// The next state.
    pub fn next_state(&mut self) -> Result<Option<EagerState>> {
        loop {
            let Some(current) = &mut self.current else {
                if !self.next_segment()? {
                    return Ok(None);
                }
                continue;
            };
            let Some(combination) = current.walk.next(&current.wheels) else {
                self.current = None;
                continue;
            };
            let current = &*current;
            let open = &self.pass.open;
            let mut digest = open.newest();
            let mut versions = Vec::new();
            for ((id, wheel), content) in
                current.lines.iter().zip(&current.wheels).zip(&combination)
            {
                let Some(line) = open.line(*id).filter(|_| *content != wheel.newest) else {
                    continue;
                };
                let difference = line.digest(*content).minus(line.digest(wheel.newest));
                digest = digest.plus(difference);
                versions.push((*id, line.version(*content)));
            }
            if !self.seen.insert(digest) {
                self.equal_images += 1;
                continue;
            }
            let (lost, group) = current.behaviour(open, &combination);
            let number = self.next_number;
            self.next_number += 1;
            return Ok(Some(EagerState {
                number,
                segment: current.segment.number,
                at: current.segment.at,
                stack: current.segment.stack,
                state: CrashState { versions },
                lost,
                group,
            }));
        }
    }

    fn next_segment(&mut self) -> Result<bool> {
        while let Some(segment) = self.pass.next_segment()? {
            if segment.number >= self.survey.chosen.end {
                break;
            }
            if !self.survey.is_chosen(segment.number) {
                continue;
            }
            let open = &self.pass.open;
            let lines = open.uncertain(self.options.varied_in(segment.number));
            let wheels: Vec<Wheel> = lines
                .iter()
                .filter_map(|id| open.line(*id))
                .map(|line| Wheel {
                    len: line.len(),
                    newest: line.newest(),
                })
                .collect();
            let total = open.factors(&lines).saturating_product();
            let walk = if self.options.is_exhaustive(total) {
                Walk::all(total)
            } else {
                let random = Random::stream(self.options.seed, segment.number as u64);
                let numbered = (total < u64::MAX).then_some(total);
                Walk::sample(self.options.sample, wheels.len(), numbered, random)
            };
            self.current = Some(Current {
                segment,
                lines,
                wheels,
                walk,
            });
            return Ok(true);
        }
        Ok(false)
    }
}

impl Current {
    /// Which sites of stores are lost, and the group that this and the sites that are kept make.
    fn behaviour<I: Image>(
        &self,
        open: &OpenVersions<I>,
        combination: &[usize],
    ) -> (Vec<StackId>, GroupId) {
        let (mut lost, mut kept) = (Vec::new(), Vec::new());
        for (id, content) in self.lines.iter().zip(combination) {
            if let Some(line) = open.line(*id) {
                line.sites(*content, &mut lost, &mut kept);
            }
        }
        let mut group = mix(u64::from(self.segment.stack.0));
        for (sites, salt) in [(&mut lost, 1), (&mut kept, 2)] {
            sites.sort_unstable();
            sites.dedup();
            for site in &**sites {
                group = mix(group ^ mix(u64::from(site.0) << 2 | salt));
            }
        }
        (lost, GroupId(group))
    }
}
