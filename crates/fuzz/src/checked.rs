//! `checks.jsonl`: which test cases were checked, and what was tried in them, so that a campaign that is resumed
//! goes on with what is new.
//!
//! A test case whose check was interrupted has no line that says it is done, and none of the moments that only it
//! was to try are known: it is checked again.

use std::path::Path;
use std::sync::Mutex;

use powerfail_explore::PointKey;
use powerfail_fuzz_store::{CaseNumber, Journal};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::error::CampaignError;
use crate::harvest::Locations;
use crate::known::{Known, Tried};
use crate::shared::lock;

const FILE: &str = "checks.jsonl";

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckLine {
    case: u64,
    /// Nothing more is to be done with it.
    #[serde(default)]
    done: bool,
    /// Locations at which crash images were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    locations: Vec<u32>,
    /// Names of moments that no test case before it had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moments: Vec<u64>,
    #[serde(default)]
    tried: Tried,
}

/// See the module header.
pub(crate) struct Checked {
    journal: Mutex<Journal<CheckLine>>,
    done: FxHashSet<CaseNumber>,
}

impl Checked {
    /// Reads what was tried before.
    pub(crate) fn open(
        directory: &Path,
        known: &Known,
        locations: &mut Locations,
    ) -> Result<Self, CampaignError> {
        let mut done = FxHashSet::default();
        let (journal, _) = Journal::open(&directory.join(FILE), |line: CheckLine| {
            if line.done {
                done.insert(CaseNumber(line.case));
            }
            locations.restore(&line.locations);
            known.restore(line.moments.into_iter().map(PointKey), &line.tried);
        })?;
        Ok(Self {
            journal: Mutex::new(journal),
            done,
        })
    }

    /// Whether a test case was checked by an earlier run of the campaign.
    pub(crate) fn is_done(&self, case: CaseNumber) -> bool {
        self.done.contains(&case)
    }

    /// Crash images of a test case were made.
    pub(crate) fn harvested(
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

    /// Nothing more is to be done with a test case.
    pub(crate) fn done(
        &self,
        case: CaseNumber,
        moments: &[PointKey],
        tried: Tried,
    ) -> Result<(), CampaignError> {
        let line = CheckLine {
            case: case.0,
            done: true,
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

    use super::Checked;
    use crate::harvest::Locations;
    use crate::known::{Known, Tried};

    #[test]
    fn what_was_done_is_known_again() {
        let directory = tempfile::tempdir().unwrap();
        let open = |known: &Known, locations: &mut Locations| {
            Checked::open(directory.path(), known, locations).unwrap()
        };
        let checked = open(&Known::default(), &mut Locations::default());
        checked.harvested(CaseNumber(1), vec![7, 9]).unwrap();
        checked.harvested(CaseNumber(2), Vec::new()).unwrap();
        let tried = Tried {
            points: vec![(0, 5)],
            candidates: vec![3],
        };
        checked
            .done(CaseNumber(2), &[PointKey(5), PointKey(6)], tried)
            .unwrap();
        let (known, mut locations) = (Known::default(), Locations::default());
        let again = open(&known, &mut locations);
        assert!(!again.is_done(CaseNumber(1)) && again.is_done(CaseNumber(2)));
        assert!(!locations.insert(7) && locations.insert(8));
        assert!(known.has_moment(PointKey(6)) && !known.has_moment(PointKey(7)));
    }
}
