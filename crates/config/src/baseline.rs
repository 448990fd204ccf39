//! The baseline: an older report, whose findings are known.

use std::collections::{HashMap, HashSet};

use powerfail_finding::{Code, Finding, Report, Role, SourcePlace};
use thiserror::Error;

/// The newest version of reports that this powerfail reads.
const SCHEMA: u32 = 1;

/// A report that cannot be a baseline.
#[derive(Debug, Error)]
pub enum BaselineError {
    /// Not a report.
    #[error("not a report of powerfail: {0}")]
    NotAReport(serde_json::Error),
    /// A report of a newer powerfail.
    #[error(
        "a report of version {0}, and this powerfail reads version {SCHEMA}: make a new baseline, or use a newer powerfail"
    )]
    Newer(u32),
}

/// The findings of an older report.
#[derive(Clone, Debug)]
pub struct Baseline {
    findings: Vec<Finding>,
}

/// Findings compared with a baseline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Findings that the baseline does not have, in their order.
    pub new: Vec<Finding>,
    /// How many findings are in the baseline, too.
    pub known: u64,
    /// How many findings of the baseline are gone.
    pub fixed: u64,
}

/// Findings with the same identity are the same. Lines move, so they are not part of it; nor is the directory of a file,
/// because a baseline is often made on another machine.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Identity<'a> {
    code: Code,
    places: Vec<(Role, Option<&'a str>, Option<&'a str>)>,
}

impl<'a> Identity<'a> {
    fn of(finding: &'a Finding) -> Self {
        let place = |place: &'a SourcePlace| {
            let name = |path: &'a String| path.rsplit('/').next().unwrap_or(path);
            let function = place.function.as_deref();
            (place.role, function, place.file.as_ref().map(name))
        };
        let mut places: Vec<_> = finding.places.iter().map(place).collect();
        places.sort_unstable();
        Self {
            code: finding.code,
            places,
        }
    }

    /// Function and file of each place.
    fn sites(&self) -> HashSet<(Option<&'a str>, Option<&'a str>)> {
        let places = self.places.iter();
        places
            .map(|(_, function, file)| (*function, *file))
            .collect()
    }
}

fn lines(finding: &Finding) -> Vec<Option<u32>> {
    finding.places.iter().map(|place| place.line).collect()
}

impl Baseline {
    /// Reads a report that `--format json` printed.
    pub fn parse(json: &str) -> Result<Self, BaselineError> {
        // The version first: a newer report may lack fields that we expect.
        let value: serde_json::Value =
            serde_json::from_str(json).map_err(BaselineError::NotAReport)?;
        if let Some(schema) = value.get("schema").and_then(serde_json::Value::as_u64)
            && schema > u64::from(SCHEMA)
        {
            return Err(BaselineError::Newer(schema.try_into().unwrap_or(u32::MAX)));
        }
        let report: Report = serde_json::from_value(value).map_err(BaselineError::NotAReport)?;
        Ok(Self {
            findings: report.findings,
        })
    }

    /// Whether a finding may be a known one. Before the report is complete that is not certain: a finding can get
    /// further places, or be merged with one whose places have other roles. So it is enough that a known finding with
    /// the same code has all of its places.
    pub fn may_know(&self, finding: &Finding) -> bool {
        let sites = Identity::of(finding).sites();
        let mut same_code = self.findings.iter().filter(|it| it.code == finding.code);
        same_code.any(|known| Identity::of(known).sites().is_superset(&sites))
    }

    /// Separates new findings from known ones.
    ///
    /// Each finding of the baseline matches one finding: if it has one bug of a kind in a function and now there
    /// are two, one of them is new. Findings whose lines have not moved are matched first.
    pub fn compare(&self, findings: Vec<Finding>) -> Comparison {
        let mut old: HashMap<Identity<'_>, Vec<&Finding>> = HashMap::new();
        for finding in &self.findings {
            old.entry(Identity::of(finding)).or_default().push(finding);
        }
        let mut known = vec![false; findings.len()];
        for must_be_at_the_same_lines in [true, false] {
            for (finding, known) in findings.iter().zip(&mut known) {
                let Some(candidates) = old.get_mut(&Identity::of(finding)) else {
                    continue;
                };
                let same = candidates.iter().position(|candidate| {
                    !must_be_at_the_same_lines || lines(candidate) == lines(finding)
                });
                if !*known && let Some(same) = same {
                    candidates.remove(same);
                    *known = true;
                }
            }
        }
        let fixed = old.values().map(|left| left.len() as u64).sum();
        let count = known.iter().filter(|known| **known).count() as u64;
        let new = findings.into_iter().zip(known);
        Comparison {
            new: new
                .filter(|(_, known)| !known)
                .map(|(new, _)| new)
                .collect(),
            known: count,
            fixed,
        }
    }
}
