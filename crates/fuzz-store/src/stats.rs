//! `stats.jsonl`: how a campaign went on, for plots and for going on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::journal::{Journal, JournalReader};
use crate::{Cut, Result};

pub(crate) const STATS_FILE: &str = "stats.jsonl";

/// One moment of a campaign. Time and executions go on where a resumed campaign had stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsLine {
    /// Seconds that the campaign has run.
    pub time_s: f64,
    /// Executions of the target.
    pub execs: u64,
    /// Executions per second since the line before.
    pub execs_per_s: f64,
    /// Distinct PM paths.
    pub pm_paths: u64,
    /// Distinct locations of PM paths.
    #[serde(default)]
    pub pm_locations: u64,
    /// Test cases.
    pub corpus: u64,
    /// Images.
    pub images: u64,
    /// The share of locations that are the same every time, from 0 to 1.
    pub stability: f64,
    /// Findings.
    pub findings: u64,
    /// Whatever else there is.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// The statistics of a campaign. All threads may use it at once.
pub struct Stats {
    inner: Mutex<Inner>,
}

struct Inner {
    journal: Journal<StatsLine>,
    last: Option<StatsLine>,
}

impl Stats {
    /// Opens the statistics of a directory, and makes them if there are none. The caller holds the lock of
    /// the directory. Also gives what a kill had left and was cut off.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged where no kill tears it.
    pub fn open(directory: &Path) -> Result<(Self, Vec<Cut>)> {
        let path = directory.join(STATS_FILE);
        let mut last = None;
        let (journal, lost_bytes) = Journal::open_plain(&path, |line| last = Some(line))?;
        let mut cuts = Vec::new();
        Cut::note(&mut cuts, &path, lost_bytes);
        let inner = Mutex::new(Inner { journal, last });
        Ok((Self { inner }, cuts))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// There is no room. Then everything is as before.
    pub fn append(&self, line: &StatsLine) -> Result<()> {
        let mut inner = self.lock();
        inner.journal.append(line)?;
        inner.last = Some(line.clone());
        Ok(())
    }

    /// The last line: where a resumed campaign goes on.
    pub fn last(&self) -> Option<StatsLine> {
        self.lock().last.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All lines of a directory, whether its campaign runs or not. A line that is damaged is left out.
///
/// # Errors
/// The file cannot be read.
pub fn read_stats(directory: &Path) -> Result<Vec<StatsLine>> {
    let lines = JournalReader::new_plain(&directory.join(STATS_FILE), 0).read()?;
    Ok(lines
        .into_iter()
        .filter_map(|line| line.entry.ok())
        .collect())
}
