//! `stats.jsonl`: the progress of a campaign, one line per sample, for plots and for `--resume`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use powerfail_finding::Class;
use serde::{Deserialize, Serialize};

use crate::journal::{Journal, JournalReader};
use crate::{Cut, Result};

pub(crate) const STATS_FILE: &str = "stats.jsonl";

/// The state of a campaign at one moment: a line of `stats.jsonl`. Counters continue when a campaign is resumed.
/// Fields that an older powerfail did not write are zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Seconds that the campaign has run.
    pub time_s: f64,
    /// Executions of the target.
    pub execs: u64,
    /// Recent executions per second.
    pub execs_per_s: f64,
    /// Distinct PM paths.
    pub pm_paths: u64,
    /// Distinct locations of PM paths: transitions between PM operations.
    #[serde(default)]
    pub pm_locations: u64,
    /// Distinct branches, if the target was built with branch coverage.
    #[serde(default)]
    pub branches: u64,
    /// Test cases that are in use.
    pub corpus: u64,
    /// Images in the tree.
    pub images: u64,
    /// Images that a power failure left.
    #[serde(default)]
    pub crash_images: u64,
    /// Share of the locations that every execution of the same test case reaches, between 0 and 1.
    pub stability: f64,
    /// When the last new test case was found, in seconds of the campaign.
    #[serde(default)]
    pub last_new_s: f64,
    /// Distinct findings.
    pub findings: u64,
    /// Distinct findings by class.
    #[serde(default)]
    pub findings_by_class: BTreeMap<Class, u64>,
    /// Test cases that wait for a check.
    #[serde(default)]
    pub checks_waiting: u64,
    /// Test cases that were checked.
    #[serde(default)]
    pub checks_done: u64,
    /// Executions that a signal ended or that timed out.
    #[serde(default)]
    pub crashes: u64,
    /// Executions that timed out.
    #[serde(default)]
    pub timeouts: u64,
    /// How executions are started, and why not in a faster way: a sentence.
    #[serde(default)]
    pub speed: String,
    /// Fields that this powerfail does not know.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// The statistics of a campaign. Can be shared between threads.
pub struct StatsFile {
    inner: Mutex<Inner>,
}

struct Inner {
    journal: Journal<Stats>,
    last: Option<Stats>,
}

impl StatsFile {
    /// Opens the statistics of a directory, or creates them. The caller holds the lock of the directory. The second
    /// result lists incomplete ends that were cut off.
    ///
    /// # Errors
    /// The file cannot be read or written, or it is damaged before its end.
    pub fn open(directory: &Path) -> Result<(Self, Vec<Cut>)> {
        let path = directory.join(STATS_FILE);
        let mut last = None;
        let (journal, lost_bytes) = Journal::open_plain(&path, |line| last = Some(line))?;
        let mut cuts = Vec::new();
        Cut::note(&mut cuts, &path, lost_bytes);
        let inner = Mutex::new(Inner { journal, last });
        Ok((Self { inner }, cuts))
    }

    /// Appends a line.
    ///
    /// # Errors
    /// The disk is full. Nothing has changed then.
    pub fn append(&self, line: &Stats) -> Result<()> {
        let mut inner = self.lock();
        inner.journal.append(line)?;
        inner.last = Some(line.clone());
        Ok(())
    }

    /// The last line, from which a resumed campaign continues.
    pub fn last(&self) -> Option<Stats> {
        self.lock().last.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All lines of a directory, whether its campaign is running or not. Damaged lines are skipped.
///
/// # Errors
/// The file cannot be read.
pub fn read_stats(directory: &Path) -> Result<Vec<Stats>> {
    let lines = JournalReader::new_plain(&directory.join(STATS_FILE), 0).read()?;
    Ok(lines
        .into_iter()
        .filter_map(|line| line.entry.ok())
        .collect())
}
