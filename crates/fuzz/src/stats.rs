//! Collects the statistics of a campaign, and writes them to `stats.jsonl` and `paths.bin`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use powerfail_files::{input, output};
use powerfail_fuzz_engine::{EngineStats, PathSet};
use powerfail_fuzz_store::{Campaign, Stats};

use crate::error::CampaignError;
use crate::shared_state::{EarlierRuns, SharedState, lock};

/// Writes `stats.jsonl` and `paths.bin`.
pub(crate) struct StatsWriter {
    /// Seconds and executions of the last lines, the oldest first.
    recent: VecDeque<(f64, u64)>,
    paths: PathBuf,
    next_paths: Instant,
}

/// The speed is averaged over this many lines: workers report after each step, which may take a second.
const LINES_OF_SPEED: usize = 10;
/// How often the hashes of all PM paths are written.
const PATHS_EVERY: Duration = Duration::from_secs(10);
const PATHS_FILE: &str = "paths.bin";

impl StatsWriter {
    /// The totals of earlier runs of a campaign.
    pub(crate) fn before(campaign: &Campaign) -> EarlierRuns {
        let Some(last) = campaign.stats.last() else {
            return EarlierRuns::default();
        };
        EarlierRuns {
            time_s: last.time_s,
            execs: last.execs,
            pm_paths: last.pm_paths,
            last_new_s: last.last_new_s,
        }
    }

    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            recent: VecDeque::new(),
            paths: directory.join(PATHS_FILE),
            next_paths: Instant::now() + PATHS_EVERY,
        }
    }

    /// Reads the PM paths that earlier runs have seen.
    pub(crate) fn read_paths(directory: &Path, paths: &PathSet) {
        let bytes = input::read(&directory.join(PATHS_FILE)).unwrap_or_default();
        for word in bytes.as_chunks::<8>().0 {
            paths.insert(u64::from_le_bytes(*word));
        }
    }

    /// Writes the last line, and all PM paths for the next run.
    pub(crate) fn write_last(&mut self, shared: &SharedState<'_>) -> Result<Stats, CampaignError> {
        self.next_paths = Instant::now();
        self.write(shared)
    }

    /// Writes a line.
    pub(crate) fn write(&mut self, shared: &SharedState<'_>) -> Result<Stats, CampaignError> {
        let mut stats = gather(shared);
        let before = (shared.before.time_s, shared.before.execs);
        let (time, execs) = self.recent.front().copied().unwrap_or(before);
        let seconds = stats.time_s - time;
        if seconds > 0.0 {
            #[expect(clippy::cast_precision_loss, reason = "a speed for people")]
            let done = (stats.execs - execs) as f64;
            stats.execs_per_s = done / seconds;
        }
        if self.recent.len() == LINES_OF_SPEED {
            self.recent.pop_front();
        }
        self.recent.push_back((stats.time_s, stats.execs));
        if Instant::now() >= self.next_paths {
            self.next_paths = Instant::now() + PATHS_EVERY;
            let bytes: Vec<u8> = shared
                .paths
                .to_vec()
                .into_iter()
                .flat_map(u64::to_le_bytes)
                .collect();
            output::replace(&self.paths, &bytes).map_err(CampaignError::file(&self.paths))?;
        }
        shared.campaign.stats.append(&stats)?;
        Ok(stats)
    }
}

/// The statistics at this moment, without the speed.
fn gather(shared: &SharedState<'_>) -> Stats {
    let progress: Vec<_> = shared.progress.iter().map(|it| lock(it).clone()).collect();
    let sum = |field: fn(&EngineStats) -> u64| -> u64 {
        progress.iter().map(|it| field(&it.engine)).sum()
    };
    let most = |field: fn(&EngineStats) -> usize| -> u64 {
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
        corpus: shared.campaign.queue.len() as u64,
        images: shared.campaign.images.len() as u64,
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
        ..Stats::default()
    }
}
