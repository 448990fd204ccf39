//! A dictionary for afl-fuzz: lines that the target understands, and words that it compares with.
//!
//! afl-fuzz cannot learn them. PM paths do not lead to a command word by word, and the comparisons of a program that
//! AFL++ did not compile are unknown to it.

use std::time::{Duration, Instant};

use powerfail_fuzz_engine::Learner;
use powerfail_protocol::fuzz::bucket;
use powerfail_recorder::executor::{End, Executor, ExecutorError};

use crate::target_runner::observation_of;

/// Learning ends after this many executions, or this much time.
const EXECUTIONS_MAX: usize = 4000;
const TIME_MAX: Duration = Duration::from_secs(10);
/// afl-fuzz uses a longer dictionary less often, and cuts longer words.
const WORDS_MAX: usize = 200;
const WORD_LEN_MAX: usize = 128;

/// Learns from the target: first the lines that do something new to the pool, then words. `words` are those of its file.
pub(super) fn dictionary(
    executor: &mut Executor,
    words: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, ExecutorError> {
    let mut learner = Learner::default();
    learner.try_words(words.iter().map(Vec::as_slice));
    let mut seen = Vec::new();
    let mut lines = Vec::new();
    let begun = Instant::now();
    for _ in 0..EXECUTIONS_MAX {
        let Some(trial) = learner.next_trial().filter(|_| begun.elapsed() < TIME_MAX) else {
            break;
        };
        let outcome = executor.observe(&trial.input)?;
        let observations = executor.observations().into_iter();
        let observations: Vec<_> = observations.map(observation_of).collect();
        learner.learn(&trial, &observations);
        let is_new = is_new(&mut seen, executor.coverage().pm);
        if is_new && matches!(outcome.end, End::Exit(_)) {
            learner.try_case(&trial.input);
            lines.push(trial.input);
        }
    }
    let learnt = [lines, learner.examples(), learner.take_words()].concat();
    let mut all: Vec<Vec<u8>> = Vec::new();
    for word in learnt.into_iter().chain(words.iter().cloned()) {
        if word.len() <= WORD_LEN_MAX && all.len() < WORDS_MAX && !all.contains(&word) {
            all.push(word);
        }
    }
    Ok(all)
}

/// Whether a map has a counter in a bucket that is not in `seen`; it is there from now on.
fn is_new(seen: &mut Vec<u8>, map: &[u8]) -> bool {
    seen.resize(map.len(), 0);
    let mut is_new = false;
    for (seen, count) in seen.iter_mut().zip(map) {
        let bucket = bucket(*count);
        is_new |= bucket & !*seen != 0;
        *seen |= bucket;
    }
    is_new
}
