//! PM paths of test cases, counted with the same map for both fuzzers: powerfail's repeater runs each test case once
//! more, on the same program.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use powerfail_image::DirectoryContents;
use powerfail_protocol::fuzz::classify;
use powerfail_recorder::InputChannel;
use powerfail_recorder::executor::{Executor, ExecutorOptions, Opened};
use powerfail_test_support::runtime;

use crate::shell::Shell;

/// The coverage of a test case.
pub(crate) struct Covered {
    /// When the fuzzer found it.
    pub(crate) time_s: f64,
    locations: Vec<u32>,
    path: u64,
}

/// The coverage reached at some time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reached {
    pub(crate) time_s: f64,
    /// Transitions between operations on persistent memory.
    pub(crate) locations: usize,
    /// Different maps, with counters in buckets.
    pub(crate) paths: usize,
}

pub(crate) struct Counter {
    repeater: Executor,
    ended: Option<Vec<u8>>,
}

impl Counter {
    pub(crate) fn new(shell: &Shell) -> Self {
        let command = vec![shell.plain.clone().into(), "{pool}".into()];
        let options = ExecutorOptions::new(command, InputChannel::Stdin);
        let repeater =
            Executor::start(&options, runtime::bytes()).expect("a target that can be repeated");
        Self {
            repeater,
            ended: None,
        }
    }

    /// Continues with this image.
    pub(crate) fn open(&mut self, image: &DirectoryContents) {
        let opened = self.repeater.open(image).expect("an image");
        self.ended = match opened {
            Opened::Ready => None,
            Opened::Ended(_) => Some(self.repeater.coverage().pm.to_vec()),
        };
    }

    /// The coverage of an input on the image.
    pub(crate) fn cover(&mut self, time_s: f64, input: &[u8]) -> Covered {
        let mut map = match &self.ended {
            Some(map) => map.clone(),
            None => {
                self.repeater.run(input).expect("an execution");
                self.repeater.coverage().pm.to_vec()
            }
        };
        classify(&mut map);
        let mut hasher = DefaultHasher::new();
        map.hash(&mut hasher);
        let reached = map.iter().zip(0..).filter(|(count, _)| **count > 0);
        Covered {
            time_s,
            locations: reached.map(|(_, location)| location).collect(),
            path: hasher.finish(),
        }
    }
}

/// The coverage over time.
pub(crate) fn over_time(mut covered: Vec<Covered>) -> Vec<Reached> {
    covered.sort_by(|left, right| left.time_s.total_cmp(&right.time_s));
    let mut locations: HashSet<u32> = HashSet::new();
    let mut paths = HashSet::new();
    let mut reached = vec![Reached::default()];
    for it in covered {
        locations.extend(&it.locations);
        paths.insert(it.path);
        reached.push(Reached {
            time_s: it.time_s,
            locations: locations.len(),
            paths: paths.len(),
        });
    }
    reached
}
