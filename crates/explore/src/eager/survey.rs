//! How much there is to try, before anything runs: what Yat prints in its table 1.

use std::ops::Range;

use powerfail_model::{EventIndex, Image};
use powerfail_trace::{Result, Trace};
use rustc_hash::FxHashSet;

use super::count::Magnitude;
use super::pass::SegmentPass;
use super::states::EagerOptions;

/// How many combinations a segment has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentCount {
    /// The power fails just before this event.
    pub at: EventIndex,
    /// Combinations of different contents, or the largest number there is.
    pub combinations: u64,
    /// Their decimal logarithm.
    pub log10: f64,
    /// How many lines can hold more than one content.
    pub lines: u64,
}

/// How many crash states a trace has, and how many of them will be tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Stores.
    pub writes: u64,
    /// Flushes, syncs included.
    pub flushes: u64,
    /// Fences, syncs and locked stores included.
    pub fences: u64,
    /// All segments, in order; those that are left out too.
    pub segments: Vec<SegmentCount>,
    /// Which of them are to be tried.
    pub chosen: Range<usize>,
    /// Of the chosen ones, those that are left out because a pool was being created; sorted.
    pub in_creation: Vec<usize>,
    /// Of the chosen ones, those that are left out because annotations of the program say so; sorted.
    pub out_of_scope: Vec<usize>,
    /// How many of those end where the heap of the program writes what is its own.
    pub in_heap: u64,
    /// Combinations of different contents in all segments that are tried.
    pub combinations: Magnitude,
    /// The same, where stores that change nothing and contents that come back count.
    pub raw_combinations: Magnitude,
    /// Segments that are tried with all their combinations.
    pub exhaustive_segments: u64,
    /// Their combinations.
    pub exhaustive_combinations: u64,
    /// Of segments that are sampled, how many have more corners than the sample has room for.
    pub cramped_segments: u64,
    /// How many different call stacks the power fails at.
    pub stacks: u64,
    /// How many states run at most: images that are equal run once.
    pub states: u64,
}

impl Survey {
    /// Counts. Of `options.segments` what lies beyond the last segment is cut.
    pub fn of<I: Image>(trace: &Trace, image: I, options: &EagerOptions) -> Result<Self> {
        let mut pass = SegmentPass::new(trace, image, options.pass);
        let mut survey = Self::default();
        let wanted = options.segments.clone().unwrap_or(0..usize::MAX);
        let mut raw = Vec::new();
        let mut stacks = FxHashSet::default();
        let mut first_of_interest = None;
        while let Some(segment) = pass.next_segment()? {
            if first_of_interest.is_none() && pass.first_of_interest().is_some() {
                first_of_interest = pass.first_of_interest();
                survey.forget(wanted.start..segment.number.min(wanted.end));
                raw.clear();
                stacks.clear();
            }
            let varied = options.varied_in(segment.number);
            let factors = match varied {
                None => pass.open.all_factors().clone(),
                Some(_) => pass.open.factors(&pass.open.uncertain(varied)),
            };
            let product = factors.product();
            survey.segments.push(SegmentCount {
                at: segment.at,
                combinations: factors.saturating_product(),
                log10: product.log10(),
                lines: factors.lines(),
            });
            if !wanted.contains(&segment.number) {
                continue;
            }
            if segment.in_scope {
                stacks.insert(segment.stack);
                raw.push((segment, product, pass.open.raw_count(), factors.lines()));
            } else {
                survey.out_of_scope.push(segment.number);
                survey.in_heap += u64::from(segment.in_heap);
            }
            // A creation that is under way may still turn out to leave its segments out.
            if !pass.creation.is_open() {
                survey.take(&mut raw, &pass.creation, options);
            }
        }
        if first_of_interest.is_none() && pass.first_of_interest().is_some() {
            survey.forget(wanted.start..survey.segments.len().min(wanted.end));
            raw.clear();
            stacks.clear();
        }
        survey.take(&mut raw, &pass.creation, options);
        survey.writes = pass.open.tally.writes;
        survey.flushes = pass.open.tally.flushes;
        survey.fences = pass.open.tally.fences;
        survey.stacks = stacks.len() as u64;
        let end = survey.segments.len();
        survey.chosen = wanted.start.min(end)..wanted.end.min(end);
        Ok(survey)
    }

    /// Whether a segment is tried.
    pub fn is_chosen(&self, number: usize) -> bool {
        let is_left_out = |numbers: &[usize]| numbers.binary_search(&number).is_ok();
        self.chosen.contains(&number)
            && !is_left_out(&self.in_creation)
            && !is_left_out(&self.out_of_scope)
    }

    /// How many segments are tried.
    pub const fn segment_count(&self) -> u64 {
        let left_out = self.in_creation.len() + self.out_of_scope.len();
        (self.chosen.end - self.chosen.start - left_out) as u64
    }

    /// Only now is it known that these segments, which are all so far, are out of scope.
    fn forget(&mut self, numbers: Range<usize>) {
        *self = Self {
            segments: std::mem::take(&mut self.segments),
            out_of_scope: numbers.collect(),
            ..Self::default()
        };
    }

    fn take(
        &mut self,
        counted: &mut Vec<Counted>,
        creation: &super::creation_spans::CreationSpans,
        options: &EagerOptions,
    ) {
        for (segment, product, raw, lines) in counted.drain(..) {
            if !options.include_create && creation.contains(segment.at) {
                self.in_creation.push(segment.number);
                continue;
            }
            let combinations = self.segments[segment.number].combinations;
            if options.is_exhaustive(combinations) {
                self.exhaustive_segments += 1;
                self.exhaustive_combinations += combinations;
            } else if 2 * lines + 2 > options.sample as u64 {
                self.cramped_segments += 1;
            }
            self.states = self.states.saturating_add(options.states_of(combinations));
            self.combinations.add(&product);
            self.raw_combinations.add(&raw);
        }
    }
}

/// A segment with its combinations: different ones, all, and how many lines make them.
type Counted = (super::pass::Segment, Magnitude, Magnitude, u64);
