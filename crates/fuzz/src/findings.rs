//! The findings of a campaign: each once, with its evidence, in a directory that `powerfail replay` reads.
//!
//! ```text
//! findings/0123abcd/run.trace, report.json, recovery.json   as those of `powerfail check`
//!                   input         the input of the test case
//!                   case.json     the image of the test case, and the path to it in the tree
//!                   minimised.input, minimised.json         a smaller test case that shows the same
//! ```
//!
//! A directory gets its final name when it is complete, so a kill leaves no half of a finding.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use powerfail_check::{BugKey, bug_key};
use powerfail_check::{Recovery, output_directory};
use powerfail_files::{Directory, input, output};
use powerfail_finding::{Class, Finding, Report, Totals};
use powerfail_fuzz_store::{
    Edge, MINIMISED_FILE, MinimisedInput, StoredFinding, TestCase, read_minimised,
};
use serde::{Deserialize, Serialize};

use crate::error::CampaignError;

const CASE: &str = "case.json";
const INPUT: &str = "input";
const MINIMISED_INPUT: &str = "minimised.input";
/// The input of recovery, if it has one.
pub(crate) const RECOVERY_INPUT: &str = "recovery.input";
/// The trace in which a crash confirmed a finding of the lint.
const CRASH_TRACE: &str = "crash.trace";
/// The prefix of directories that are not complete.
const UNFINISHED: &str = ".new-";

/// A test case, as `case.json` describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseRecord {
    /// The image, as its hash.
    pub image: String,
    /// The edges of the shortest path to it, from the empty image or from one that the user gave.
    pub path: Vec<EdgeRecord>,
    /// When the finding was made, in seconds of the campaign.
    pub time_s: f64,
    /// Executions before that.
    pub execs: u64,
}

/// An edge of the image tree: a run of the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeRecord {
    /// The input as text.
    pub input: String,
    /// The input in hexadecimal digits, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_hex: Option<String>,
    /// The event before which the power failed; none if the run ended normally.
    pub failure_point: Option<u64>,
}

impl From<&Edge> for EdgeRecord {
    fn from(edge: &Edge) -> Self {
        let text = std::str::from_utf8(&edge.input);
        Self {
            input: String::from_utf8_lossy(&edge.input).into_owned(),
            input_hex: text.is_err().then(|| powerfail_finding::hex(&edge.input)),
            failure_point: edge.failure_point,
        }
    }
}

/// Everything that a finding is based on.
pub(crate) struct Basis<'a> {
    pub(crate) trace: &'a Path,
    pub(crate) command: Vec<String>,
    pub(crate) recovery: &'a Recovery,
    /// The input of recovery.
    pub(crate) recovery_input: Option<&'a [u8]>,
    pub(crate) case: &'a TestCase,
    pub(crate) record: CaseRecord,
}

/// The part of a basis that is stored, and that minimisation needs.
#[derive(Clone, Debug)]
pub(crate) struct StoredBasis {
    pub(crate) case: TestCase,
    /// The smallest test case so far.
    pub(crate) best: TestCase,
    pub(crate) recovery: Recovery,
    pub(crate) recovery_input: Option<Vec<u8>>,
}

/// A smaller test case, as `minimised.json` describes it.
#[derive(Debug, Serialize)]
struct MinimisedRecord<'a> {
    #[serde(flatten)]
    case: &'a CaseRecord,
    minimised: MinimisedInput,
}

/// All findings of a campaign. Can be shared between threads.
#[derive(Debug)]
pub(crate) struct Findings {
    directory: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    all: Vec<StoredFinding>,
    places: HashMap<BugKey, usize>,
}

/// What happened to a finding that was added.
pub(crate) enum AddOutcome {
    New(Box<StoredFinding>),
    /// The lint had found it, and now a crash has confirmed it, in another test case.
    Confirmed(Box<StoredFinding>),
    Duplicate,
}

impl Findings {
    /// Reads the existing findings, and removes incomplete ones that a kill has left.
    pub(crate) fn open(directory: &Path) -> Result<Self, CampaignError> {
        let mut inner = Inner::default();
        let entries = fs::read_dir(directory).map_err(CampaignError::file(directory))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(UNFINISHED) {
                fs::remove_dir_all(&path).map_err(CampaignError::file(&path))?;
                continue;
            }
            if !path.join(output_directory::REPORT).is_file() {
                continue;
            }
            let (report, _) = output_directory::load(&path)?;
            for finding in report.findings {
                inner.push(finding, path.clone());
            }
        }
        Ok(Self {
            directory: directory.to_path_buf(),
            inner: Mutex::new(inner),
        })
    }

    /// All of them, in the order in which they were found.
    pub(crate) fn all(&self) -> Vec<StoredFinding> {
        self.lock().all.clone()
    }

    /// The number of findings of each class.
    pub(crate) fn by_class(&self) -> BTreeMap<Class, u64> {
        let mut counts = BTreeMap::new();
        for stored in &self.lock().all {
            *counts.entry(stored.finding.class).or_default() += 1;
        }
        counts
    }

    /// Whether a finding is stored already, with evidence that is at least as strong.
    pub(crate) fn contains(&self, finding: &Finding) -> bool {
        let inner = self.lock();
        let place = inner.places.get(&bug_key(finding));
        place.is_some_and(|place| {
            inner.all[*place].finding.evidence.is_some() || finding.evidence.is_none()
        })
    }

    /// Stores a finding, unless it is a duplicate.
    pub(crate) fn add(
        &self,
        finding: Finding,
        basis: &Basis<'_>,
    ) -> Result<AddOutcome, CampaignError> {
        let mut inner = self.lock();
        let cause = bug_key(&finding);
        if let Some(place) = inner.places.get(&cause).copied() {
            let known = &mut inner.all[place];
            if known.finding.evidence.is_none() && finding.evidence.is_some() {
                confirm(known, finding, basis)?;
                return Ok(AddOutcome::Confirmed(Box::new(known.clone())));
            }
            return Ok(AddOutcome::Duplicate);
        }
        let mut finding = finding;
        finding.id = inner.free_id(&finding.id);
        let unfinished = self.directory.join(format!("{UNFINISHED}{}", finding.id));
        let directory = self.directory.join(&finding.id);
        let written = write_all(&unfinished, &finding, basis).and_then(|()| {
            fs::rename(&unfinished, &directory).map_err(CampaignError::file(&directory))
        });
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&unfinished);
            return Err(error);
        }
        let stored = inner.push(finding, directory);
        Ok(AddOutcome::New(Box::new(stored)))
    }

    /// The basis of a finding; `None` if its test case cannot be read.
    pub(crate) fn basis(directory: &Path) -> Result<Option<StoredBasis>, CampaignError> {
        let read = |name: &str| {
            let path = directory.join(name);
            input::read(&path).map_err(CampaignError::file(&path))
        };
        let case = |record: &str, input: &str| {
            let record = serde_json::from_slice::<CaseRecord>(&read(record)?);
            let image = record.ok().and_then(|record| record.image.parse().ok());
            let Some(image) = image else {
                return Ok(None);
            };
            let input = read(input)?;
            Ok::<_, CampaignError>(Some(TestCase { image, input }))
        };
        let Some(found) = case(CASE, INPUT)? else {
            return Ok(None);
        };
        let best = match read_minimised(directory) {
            Some(_) => case(MINIMISED_FILE, MINIMISED_INPUT)?,
            None => None,
        };
        let (_, recovery) = output_directory::load(directory)?;
        let recovery_input = recovery.input.is_some().then(|| read(RECOVERY_INPUT));
        Ok(Some(StoredBasis {
            best: best.unwrap_or_else(|| found.clone()),
            case: found,
            recovery,
            recovery_input: recovery_input.transpose()?,
        }))
    }

    /// Stores a smaller test case of a finding, unless a crash has confirmed the finding since: then it is no longer the
    /// test case of this finding.
    pub(crate) fn store_minimised(
        &self,
        of: &StoredFinding,
        case: &TestCase,
        record: &CaseRecord,
        minimised: MinimisedInput,
    ) -> Result<(), CampaignError> {
        let mut inner = self.lock();
        let mut all = inner.all.iter_mut();
        let Some(known) = all.find(|it| it.directory == of.directory) else {
            return Ok(());
        };
        if known.finding.evidence.is_some() != of.finding.evidence.is_some() {
            return Ok(());
        }
        let record = MinimisedRecord {
            case: record,
            minimised,
        };
        replace(&of.directory.join(MINIMISED_INPUT), &case.input)?;
        replace(&of.directory.join(MINIMISED_FILE), &json(&record)?)?;
        known.minimised = Some(minimised);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn push(&mut self, finding: Finding, directory: PathBuf) -> StoredFinding {
        let stored = StoredFinding::new(finding, directory);
        self.places.insert(bug_key(&stored.finding), self.all.len());
        self.all.push(stored.clone());
        stored
    }

    /// An id that no other finding has.
    fn free_id(&self, wanted: &str) -> String {
        let base = wanted.split('-').next().unwrap_or(wanted);
        let is_free = |id: &String| self.all.iter().all(|stored| stored.finding.id != *id);
        let mut ids = (1..).map(|number| match number {
            1 => base.to_owned(),
            _ => format!("{base}-{number}"),
        });
        ids.find(is_free).unwrap_or_default()
    }
}

fn report_of(finding: &Finding, command: &[String]) -> Report {
    Report {
        schema: 1,
        powerfail: env!("CARGO_PKG_VERSION").into(),
        command: command.to_vec(),
        findings: vec![finding.clone()],
        totals: Totals::default(),
        notes: Vec::new(),
    }
}

/// Writes everything into a new directory.
fn write_all(directory: &Path, finding: &Finding, basis: &Basis<'_>) -> Result<(), CampaignError> {
    let _ = fs::remove_dir_all(directory);
    Directory::create_new(directory).map_err(CampaignError::file(directory))?;
    output_directory::keep_trace(directory, basis.trace)?;
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        replace(&path, bytes)
    };
    write(INPUT, &basis.case.input)?;
    write(CASE, &json(&basis.record)?)?;
    let mut recovery = basis.recovery.clone();
    if let Some(input) = basis.recovery_input {
        write(RECOVERY_INPUT, input)?;
        recovery.input = Some(RECOVERY_INPUT.into());
    }
    output_directory::save(directory, &report_of(finding, &basis.command), &recovery)?;
    Ok(())
}

/// Adds the evidence of a crash to a finding of the lint.
fn confirm(
    known: &mut StoredFinding,
    finding: Finding,
    basis: &Basis<'_>,
) -> Result<(), CampaignError> {
    let mut finding = Finding {
        id: known.finding.id.clone(),
        ..finding
    };
    let path = known.directory.join(CRASH_TRACE);
    output::copy(basis.trace, &path).map_err(CampaignError::file(&path))?;
    if let Some(evidence) = &mut finding.evidence {
        evidence.trace = Some(CRASH_TRACE.into());
    }
    if let Some(read) = &mut finding.read {
        read.trace = Some(CRASH_TRACE.into());
    }
    // The minimised test case may not show the crash.
    let _ = fs::remove_file(known.directory.join(MINIMISED_FILE));
    known.minimised = None;
    replace(&known.directory.join(INPUT), &basis.case.input)?;
    replace(&known.directory.join(CASE), &json(&basis.record)?)?;
    let report = report_of(&finding, &basis.command);
    replace(
        &known.directory.join(output_directory::REPORT),
        &json(&report)?,
    )?;
    output_directory::seal(&known.directory)?;
    known.finding = finding;
    Ok(())
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, CampaignError> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| CampaignError::Wrong(error.to_string()))?;
    Ok((text + "\n").into_bytes())
}

/// Replaces a file as a whole, so that a kill leaves the old one or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), CampaignError> {
    output::replace(path, bytes).map_err(CampaignError::file(path))
}
