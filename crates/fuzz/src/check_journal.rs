//! `checks.jsonl`: which test cases were checked and what was tried in them, so that a resumed campaign does not
//! repeat it.
//!
//! A test case whose check was interrupted has no line that says `done`, and the moments that only it was going to
//! try are not recorded. It is checked again.

use std::path::Path;
use std::sync::Mutex;

use powerfail_explore::PointKey;
use powerfail_fuzz_store::{CaseNumber, Journal};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::check_history::{CheckHistory, TriedPoints};
use crate::crash_images::ImagedLocations;
use crate::error::CampaignError;
use crate::options::Checks;
use crate::shared_state::lock;

const FILE: &str = "checks.jsonl";

/// A line of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckLine {
    case: u64,
    /// The test case needs no more work.
    #[serde(default)]
    done: bool,
    /// Another instance has found the test case, and checks it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    elsewhere: bool,
    /// Locations at which crash images were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    locations: Vec<u32>,
    /// Names of moments that no earlier test case had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moments: Vec<u64>,
    #[serde(default)]
    tried: TriedPoints,
}

/// The open journal. Can be shared between threads.
pub(crate) struct CheckJournal {
    journal: Mutex<Journal<CheckLine>>,
    done: FxHashSet<CaseNumber>,
    /// Whether power failures were tried.
    has_crashed: bool,
    elsewhere: FxHashSet<CaseNumber>,
}

impl CheckJournal {
    /// Opens the journal, and restores the history from it.
    pub(crate) fn open(
        directory: &Path,
        history: &CheckHistory,
        locations: &mut ImagedLocations,
    ) -> Result<Self, CampaignError> {
        let (mut done, mut elsewhere) = (FxHashSet::default(), FxHashSet::default());
        let mut has_crashed = false;
        let (journal, _) = Journal::open(&directory.join(FILE), |line: CheckLine| {
            if line.done {
                done.insert(CaseNumber(line.case));
            }
            if line.elsewhere {
                elsewhere.insert(CaseNumber(line.case));
            }
            has_crashed |= !line.tried.points.is_empty();
            locations.restore(&line.locations);
            history.restore(line.moments.into_iter().map(PointKey), &line.tried);
        })?;
        Ok(Self {
            journal: Mutex::new(journal),
            done,
            has_crashed,
            elsewhere,
        })
    }

    /// Whether earlier runs of the campaign have checked anything in one of these ways.
    pub(crate) fn has_checked(&self, checks: Checks) -> bool {
        if checks.has_crashes() {
            self.has_crashed
        } else {
            !self.done.is_empty()
        }
    }

    /// Whether an earlier run of the campaign has checked a test case.
    pub(crate) fn is_done(&self, case: CaseNumber) -> bool {
        self.done.contains(&case)
    }

    /// Whether another instance has found a test case, and checks it.
    pub(crate) fn is_elsewhere(&self, case: CaseNumber) -> bool {
        self.elsewhere.contains(&case)
    }

    /// Records that another instance has found a test case, and checks it.
    pub(crate) fn elsewhere(&self, case: CaseNumber) -> Result<(), CampaignError> {
        let line = CheckLine {
            case: case.0,
            elsewhere: true,
            ..CheckLine::default()
        };
        Ok(lock(&self.journal).append(&line)?)
    }

    /// Records at which locations crash images of a test case were made.
    pub(crate) fn imaged(
        &self,
        case: CaseNumber,
        locations: Vec<u32>,
    ) -> Result<(), CampaignError> {
        if locations.is_empty() {
            return Ok(());
        }
        let line = CheckLine {
            case: case.0,
            locations,
            ..CheckLine::default()
        };
        Ok(lock(&self.journal).append(&line)?)
    }

    /// Records that a test case needs no more work.
    pub(crate) fn done(
        &self,
        case: CaseNumber,
        moments: &[PointKey],
        tried: TriedPoints,
    ) -> Result<(), CampaignError> {
        let line = CheckLine {
            case: case.0,
            done: true,
            elsewhere: false,
            locations: Vec::new(),
            moments: moments.iter().map(|key| key.0).collect(),
            tried,
        };
        Ok(lock(&self.journal).append(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use powerfail_explore::PointKey;
    use powerfail_fuzz_store::CaseNumber;

    use super::CheckJournal;
    use crate::check_history::{CheckHistory, PointCheck, TriedPoints};
    use crate::crash_images::ImagedLocations;

    #[test]
    fn a_reopened_journal_restores_the_history() {
        let directory = tempfile::tempdir().unwrap();
        let open = |history: &CheckHistory, locations: &mut ImagedLocations| {
            CheckJournal::open(directory.path(), history, locations).unwrap()
        };
        let journal = open(&CheckHistory::default(), &mut ImagedLocations::default());
        journal.imaged(CaseNumber(1), vec![7, 9]).unwrap();
        journal.imaged(CaseNumber(2), Vec::new()).unwrap();
        let tried = TriedPoints {
            points: vec![(PointCheck::Crash, 5)],
            candidates: vec![3],
        };
        journal
            .done(CaseNumber(2), &[PointKey(5), PointKey(6)], tried)
            .unwrap();
        journal.elsewhere(CaseNumber(3)).unwrap();
        let (history, mut locations) = (CheckHistory::default(), ImagedLocations::default());
        let again = open(&history, &mut locations);
        assert!(!again.is_done(CaseNumber(1)) && again.is_done(CaseNumber(2)));
        assert!(!again.is_done(CaseNumber(3)) && again.is_elsewhere(CaseNumber(3)));
        assert!(!again.is_elsewhere(CaseNumber(2)));
        assert!(!locations.insert(7) && locations.insert(8));
        assert!(history.has_moment(PointKey(6)) && !history.has_moment(PointKey(7)));
    }
}
