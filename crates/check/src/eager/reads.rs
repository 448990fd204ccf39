//! Which lines vary, where it is known what recovery reads: a crash state differs for recovery only in the lines that it reads.
//!
//! The idea is Vinter's. In each segment recovery is watched on two images: nothing is lost, and all that can be lost is. Only
//! lines that it reads on one of them vary; all others keep their newest content. States that differ in lines that recovery never
//! reads are the same to it. What could be missed is a line that recovery reads on neither image and on one between them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use powerfail_explore::{Survey, VariedLines};
use powerfail_model::{LineId, LineIndex, PoolIndex};

use super::rounds::rounds;
use crate::crash::Engine;
use crate::error::CheckError;
use crate::options::WatchedRecovery;
use crate::runner::{Survival, Trial};

/// The lines that recovery reads.
pub(super) struct ReadLines {
    pub(super) lines: VariedLines,
    /// On how many images recovery was watched.
    pub(super) images: u64,
    /// In how many segments that did not succeed, and why in the first of them.
    failed: Option<(u64, String)>,
}

impl ReadLines {
    /// What limits the reduction.
    pub(super) fn note(&self) -> Option<String> {
        let (count, reason) = self.failed.as_ref()?;
        Some(format!(
            "what recovery reads is not known in {count} segments, so that all their lines vary: {reason}"
        ))
    }
}

/// Watches recovery in each segment with several combinations.
pub(super) fn read_lines(
    engine: &mut Engine<'_, '_>,
    survey: &Survey,
    watched: &dyn WatchedRecovery,
) -> Result<ReadLines, CheckError> {
    let segments = survey.segments.iter().enumerate();
    let segments: Vec<_> = segments
        .filter(|(number, segment)| survey.is_chosen(*number) && segment.combinations > 1)
        .collect();
    // Half of the time is for the states themselves.
    let now = Instant::now();
    let until = engine.until();
    let until = until.map(|until| now + until.saturating_duration_since(now) / 2);
    let is_late = || until.is_some_and(|until| Instant::now() >= until);
    let observer = &*engine.observer;
    let is_interrupted = || observer.is_interrupted();
    let line_bytes = engine.runner.line_bytes();
    let mut read = ReadLines {
        lines: VariedLines::new(),
        images: 0,
        failed: None,
    };
    let mut watched_segments = Vec::new();
    for round in rounds(0..segments.len()) {
        let of_round = (0..segments.len()).filter(|it| round.contains(it));
        let of_round: Vec<usize> = of_round.map(|it| segments[it].0).collect();
        let trials: Vec<Trial> = of_round
            .iter()
            .flat_map(|number| {
                [Survival::Newest, Survival::Floors].map(|state| Trial {
                    at: survey.segments[*number].at,
                    state,
                })
            })
            .collect();
        let mut seen = engine
            .runner
            .look_at(&trials, &is_late, &is_interrupted, &|pool| {
                watched.reads(pool)
            })?;
        read.images += seen.len() as u64;
        seen.resize(
            trials.len(),
            Err("there was no time to watch it".to_owned()),
        );
        for (number, both) in of_round.iter().zip(seen.chunks(2)) {
            watched_segments.push((*number, both.to_vec()));
        }
    }
    for (number, both) in &watched_segments {
        let mut lines = BTreeSet::new();
        let mut reason = None;
        for seen in both {
            match seen {
                Ok(ranges) => lines.extend(ranges.iter().flat_map(|it| lines_of(it, line_bytes))),
                Err(sentence) => reason = Some(sentence),
            }
        }
        match reason {
            None => {
                read.lines.insert(*number, lines);
            }
            Some(sentence) => {
                let failed = read.failed.get_or_insert_with(|| (0, sentence.clone()));
                failed.0 += 1;
            }
        }
    }
    Ok(read)
}

/// The lines of a range of the only pool.
fn lines_of(range: &Range<u64>, line_bytes: u64) -> impl Iterator<Item = LineId> + use<> {
    (range.start / line_bytes..range.end.div_ceil(line_bytes)).map(|line| LineId {
        pool: PoolIndex(0),
        line: LineIndex(line),
    })
}
