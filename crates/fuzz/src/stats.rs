//! How a campaign is getting on.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use powerfail_finding::Class;
use serde::{Deserialize, Serialize};

use crate::error::CampaignError;
use crate::shared::{Before, Shared, lock};

/// A moment of a campaign: a line of `stats.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Since the campaign began, earlier runs of it included.
    pub time_s: f64,
    /// Executions of the target.
    pub execs: u64,
    /// The same per second, lately.
    pub execs_per_s: f64,
    /// Distinct PM paths.
    pub pm_paths: u64,
    /// Distinct transitions between PM operations.
    pub pm_locations: u64,
    /// Distinct branches, if the target was built with coverage.
    pub branches: u64,
    /// Test cases that are kept.
    pub corpus: u64,
    /// Images in the tree.
    pub images: u64,
    /// How many of them a crash left.
    pub crash_images: u64,
    /// Part of the transitions that are the same in each execution of a test case, between 0 and 1.
    pub stability: f64,
    /// When the last new test case was found.
    pub last_new_s: f64,
    /// Distinct findings.
    pub findings: u64,
    /// The same by class.
    pub findings_by_class: BTreeMap<Class, u64>,
    /// Test cases that wait for a check.
    pub checks_waiting: u64,
    /// Test cases that were checked.
    pub checks_done: u64,
    /// Executions that ended by a signal or took too long.
    pub crashes: u64,
    /// The latter.
    pub timeouts: u64,
    /// How executions are made, and why not faster: a sentence.
    pub speed: String,
}

/// `stats.jsonl`, as it is written.
pub(crate) struct StatsFile {
    /// Seconds and executions of the lines before, the oldest first.
    lately: VecDeque<(f64, u64)>,
    paths: PathBuf,
    next_paths: Instant,
}

/// A speed is that of so many lines: workers tell what they did after each step, which may take a second.
const LINES_OF_SPEED: usize = 10;
/// How often the hashes of all PM paths are written.
const PATHS_EVERY: Duration = Duration::from_secs(10);
const PATHS_FILE: &str = "paths.bin";

impl StatsFile {
    /// Where an earlier run of a campaign has stopped.
    pub(crate) fn before(campaign: &powerfail_fuzz_store::Campaign) -> Before {
        let Some(last) = campaign.stats.last() else {
            return Before::default();
        };
        let more = last.more.get("last_new_s");
        Before {
            time_s: last.time_s,
            execs: last.execs,
            pm_paths: last.pm_paths,
            last_new_s: more.and_then(serde_json::Value::as_f64).unwrap_or(0.0),
        }
    }

    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            lately: VecDeque::new(),
            paths: directory.join(PATHS_FILE),
            next_paths: Instant::now() + PATHS_EVERY,
        }
    }

    /// Reads the PM paths that earlier runs had seen.
    pub(crate) fn read_paths(directory: &Path, paths: &powerfail_fuzz_engine::PathSet) {
        let bytes = std::fs::read(directory.join(PATHS_FILE)).unwrap_or_default();
        for word in bytes.as_chunks::<8>().0 {
            paths.insert(u64::from_le_bytes(*word));
        }
    }

    /// Writes how things stand in the end, so that the next run knows all paths.
    pub(crate) fn write_last(&mut self, shared: &Shared<'_>) -> Result<Stats, CampaignError> {
        self.next_paths = Instant::now();
        self.write(shared)
    }

    /// Writes how things stand.
    pub(crate) fn write(&mut self, shared: &Shared<'_>) -> Result<Stats, CampaignError> {
        let mut stats = gather(shared);
        let before = (shared.before.time_s, shared.before.execs);
        let (time, execs) = self.lately.front().copied().unwrap_or(before);
        let seconds = stats.time_s - time;
        if seconds > 0.0 {
            #[expect(clippy::cast_precision_loss, reason = "a speed for people")]
            let done = (stats.execs - execs) as f64;
            stats.execs_per_s = done / seconds;
        }
        if self.lately.len() == LINES_OF_SPEED {
            self.lately.pop_front();
        }
        self.lately.push_back((stats.time_s, stats.execs));
        if Instant::now() >= self.next_paths {
            self.next_paths = Instant::now() + PATHS_EVERY;
            let bytes: Vec<u8> = shared
                .paths
                .to_vec()
                .into_iter()
                .flat_map(u64::to_le_bytes)
                .collect();
            let unfinished = self.paths.with_extension("new");
            let written = std::fs::write(&unfinished, bytes)
                .and_then(|()| std::fs::rename(&unfinished, &self.paths));
            written.map_err(|error| {
                let _ = std::fs::remove_file(&unfinished);
                CampaignError::file(&self.paths)(error)
            })?;
        }
        shared.kept.stats().append(&line_of(&stats)?)?;
        Ok(stats)
    }
}

/// A line of the file.
fn line_of(stats: &Stats) -> Result<powerfail_fuzz_store::StatsLine, CampaignError> {
    let wrong = |error: serde_json::Error| CampaignError::Wrong(error.to_string());
    let value = serde_json::to_value(stats).map_err(wrong)?;
    serde_json::from_value(value).map_err(wrong)
}

/// How things stand.
fn gather(shared: &Shared<'_>) -> Stats {
    let progress: Vec<_> = shared.progress.iter().map(|it| lock(it).clone()).collect();
    let sum = |field: fn(&powerfail_fuzz_engine::Stats) -> u64| -> u64 {
        progress.iter().map(|it| field(&it.engine)).sum()
    };
    let most = |field: fn(&powerfail_fuzz_engine::Stats) -> usize| -> u64 {
        progress
            .iter()
            .map(|it| field(&it.engine) as u64)
            .max()
            .unwrap_or(0)
    };
    let active = progress.iter().filter(|it| it.engine.pm_locations > 0);
    let stability = active.map(|it| it.engine.stability).fold(1.0_f64, f64::min);
    let by_class = shared.findings.by_class();
    Stats {
        time_s: shared.time_s(),
        execs: shared.executions(),
        execs_per_s: 0.0,
        pm_paths: (shared.paths.len() as u64).max(shared.before.pm_paths),
        pm_locations: most(|engine| engine.pm_locations),
        branches: most(|engine| engine.branches),
        corpus: shared.kept.queue().len() as u64,
        images: shared.kept.images().len() as u64,
        crash_images: shared.crash_images.load(Ordering::Relaxed),
        stability,
        last_new_s: shared.last_new_s(),
        findings: by_class.values().sum(),
        findings_by_class: by_class,
        checks_waiting: shared.waiting_count() + shared.traces_waiting.load(Ordering::Relaxed),
        checks_done: shared.checks_done.load(Ordering::Relaxed),
        crashes: sum(|engine| engine.signals + engine.timeouts),
        timeouts: sum(|engine| engine.timeouts),
        speed: progress
            .iter()
            .find_map(|it| it.speed.clone())
            .unwrap_or_default(),
    }
}
