//! The findings of a campaign: each once, with its evidence, in a directory that `powerfail replay` understands.
//!
//! ```text
//! findings/0123abcd/run.trace, report.json, recovery.json   as those of `powerfail check`
//!                   input         what the target was fed
//!                   case.json     the image it was fed on, and the way to that
//!                   minimised.input, minimised.json         a smaller test case that shows the same
//! ```
//!
//! A directory gets its name when everything is in it, so a kill leaves no half of a finding.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use powerfail_check::{Cause, cause_of};
use powerfail_check::{Recovery, output_directory};
use powerfail_finding::{Class, Finding, Report, Totals};
use powerfail_fuzz_store::{Edge, TestCase};
use serde::{Deserialize, Serialize};

use crate::error::CampaignError;

const CASE: &str = "case.json";
const INPUT: &str = "input";
const MINIMISED: &str = "minimised.json";
const MINIMISED_INPUT: &str = "minimised.input";
/// What recovery is fed with, if that is not nothing.
pub(crate) const RECOVERY_INPUT: &str = "recovery.input";
/// The trace of what a crash has shown later.
const CRASH_TRACE: &str = "crash.trace";
/// How the names of directories begin that are not finished.
const UNFINISHED: &str = ".new-";

/// A finding and its evidence.
#[derive(Clone, Debug)]
pub struct StoredFinding {
    /// The finding.
    pub finding: Finding,
    /// Its directory, which `powerfail replay` understands.
    pub directory: PathBuf,
}

/// A test case as it is written beside a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseRecord {
    /// The image, by its hash.
    pub image: String,
    /// The edges of the shortest way to it, from the empty image or from one that was given.
    pub path: Vec<EdgeRecord>,
    /// When it was found, in seconds of the campaign.
    pub time_s: f64,
    /// After how many executions.
    pub execs: u64,
}

/// An edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeRecord {
    /// The input, as text where it is text.
    pub input: String,
    /// The same in hexadecimal digits, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_hex: Option<String>,
    /// Where the power failed.
    pub failure_point: Option<u64>,
}

impl From<&Edge> for EdgeRecord {
    fn from(edge: &Edge) -> Self {
        let text = std::str::from_utf8(&edge.input);
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        Self {
            input: String::from_utf8_lossy(&edge.input).into_owned(),
            input_hex: text.is_err().then(|| hex(&edge.input)),
            failure_point: edge.failure_point,
        }
    }
}

/// What a finding rests on.
pub(crate) struct Basis<'a> {
    pub(crate) trace: &'a Path,
    pub(crate) command: Vec<String>,
    pub(crate) recovery: &'a Recovery,
    /// What recovery is fed with.
    pub(crate) recovery_input: Option<&'a [u8]>,
    pub(crate) case: &'a TestCase,
    pub(crate) record: CaseRecord,
}

/// What was written down of it.
pub(crate) struct Found {
    pub(crate) case: TestCase,
    pub(crate) recovery: Recovery,
    pub(crate) recovery_input: Option<Vec<u8>>,
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Findings {
    directory: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    all: Vec<StoredFinding>,
    places: HashMap<Cause, usize>,
}

/// What became of a finding.
pub(crate) enum Added {
    New(Box<StoredFinding>),
    /// It was known, and now a crash has shown it.
    Shown,
    Known,
}

impl Findings {
    /// Reads what is there. What a kill has left unfinished is removed.
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

    /// How many there are of each class.
    pub(crate) fn by_class(&self) -> BTreeMap<Class, u64> {
        let mut counts = BTreeMap::new();
        for stored in &self.lock().all {
            *counts.entry(stored.finding.class).or_default() += 1;
        }
        counts
    }

    /// Whether a finding is known, and nothing new is to be said about it.
    pub(crate) fn knows(&self, finding: &Finding) -> bool {
        let inner = self.lock();
        let place = inner.places.get(&cause_of(finding));
        place.is_some_and(|place| {
            inner.all[*place].finding.evidence.is_some() || finding.evidence.is_none()
        })
    }

    /// Keeps a finding, unless it is known.
    pub(crate) fn add(&self, finding: Finding, basis: &Basis<'_>) -> Result<Added, CampaignError> {
        let mut inner = self.lock();
        let cause = cause_of(&finding);
        if let Some(place) = inner.places.get(&cause).copied() {
            let known = &mut inner.all[place];
            if known.finding.evidence.is_none() && finding.evidence.is_some() {
                show(known, finding, basis)?;
                return Ok(Added::Shown);
            }
            return Ok(Added::Known);
        }
        let mut finding = finding;
        finding.id = inner.free_id(&finding.id);
        let unfinished = self.directory.join(format!("{UNFINISHED}{}", finding.id));
        let directory = self.directory.join(&finding.id);
        let kept = keep(&unfinished, &finding, basis).and_then(|()| {
            fs::rename(&unfinished, &directory).map_err(CampaignError::file(&directory))
        });
        if let Err(error) = kept {
            let _ = fs::remove_dir_all(&unfinished);
            return Err(error);
        }
        let stored = inner.push(finding, directory);
        Ok(Added::New(Box::new(stored)))
    }

    /// What a finding rests on, if it has no smaller test case yet.
    pub(crate) fn unfinished(stored: &StoredFinding) -> Result<Option<Found>, CampaignError> {
        let directory = &stored.directory;
        if directory.join(MINIMISED).exists() {
            return Ok(None);
        }
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read(&path).map_err(CampaignError::file(&path))
        };
        let record = serde_json::from_slice::<CaseRecord>(&read(CASE)?);
        let image = record.ok().and_then(|record| record.image.parse().ok());
        let Some(image) = image else {
            return Ok(None);
        };
        let (_, recovery) = output_directory::load(directory)?;
        let recovery_input = recovery.input.is_some().then(|| read(RECOVERY_INPUT));
        Ok(Some(Found {
            case: TestCase {
                image,
                input: read(INPUT)?,
            },
            recovery,
            recovery_input: recovery_input.transpose()?,
        }))
    }

    /// Keeps a smaller test case that shows a finding.
    pub(crate) fn minimised(
        &self,
        directory: &Path,
        case: &TestCase,
        record: &CaseRecord,
    ) -> Result<(), CampaignError> {
        let _turn = self.lock();
        replace(&directory.join(MINIMISED_INPUT), &case.input)?;
        replace(&directory.join(MINIMISED), &json(record)?)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn push(&mut self, finding: Finding, directory: PathBuf) -> StoredFinding {
        let stored = StoredFinding { finding, directory };
        self.places
            .insert(cause_of(&stored.finding), self.all.len());
        self.all.push(stored.clone());
        stored
    }

    /// An id that nobody has.
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
fn keep(directory: &Path, finding: &Finding, basis: &Basis<'_>) -> Result<(), CampaignError> {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).map_err(CampaignError::file(directory))?;
    output_directory::keep_trace(directory, basis.trace)?;
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        fs::write(&path, bytes).map_err(CampaignError::file(&path))
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

/// Adds what a crash has shown to a finding that the trace alone had shown.
fn show(
    known: &mut StoredFinding,
    finding: Finding,
    basis: &Basis<'_>,
) -> Result<(), CampaignError> {
    let mut finding = Finding {
        id: known.finding.id.clone(),
        ..finding
    };
    let path = known.directory.join(CRASH_TRACE);
    fs::copy(basis.trace, &path).map_err(CampaignError::file(&path))?;
    if let Some(evidence) = &mut finding.evidence {
        evidence.trace = Some(CRASH_TRACE.into());
    }
    if let Some(read) = &mut finding.read {
        read.trace = Some(CRASH_TRACE.into());
    }
    let report = report_of(&finding, &basis.command);
    replace(
        &known.directory.join(output_directory::REPORT),
        &json(&report)?,
    )?;
    known.finding = finding;
    Ok(())
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, CampaignError> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| CampaignError::Wrong(error.to_string()))?;
    Ok((text + "\n").into_bytes())
}

/// Writes a file that is there as a whole or not at all.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), CampaignError> {
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, bytes).map_err(CampaignError::file(&unfinished))?;
    fs::rename(&unfinished, path).map_err(CampaignError::file(path))
}
