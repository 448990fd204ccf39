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

use powerfail_check::{
    BugKey, Recovery, bug_key, is_same_bug, joins_bugs, list_beside, list_outcomes,
    output_directory, says_more,
};
use powerfail_files::{Directory, input, output};
use powerfail_finding::{Class, Finding, Report, Role, Totals};
use powerfail_fuzz_store::{
    Edge, MINIMISED_FILE, MinimisedInput, StoredFinding, TestCase, read_minimised,
};
use serde::{Deserialize, Serialize};

use crate::error::CampaignError;

const CASE: &str = "case.json";
pub(crate) const INPUT: &str = "input";
const MINIMISED_INPUT: &str = "minimised.input";
/// The input of recovery, if it has one.
pub(crate) const RECOVERY_INPUT: &str = "recovery.input";
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
    /// The names of the findings that are about these bugs.
    names: HashMap<BugKey, String>,
    /// What else test cases have shown of a bug, by the name of its finding: something may be the same as one of these, and not the
    /// same as what is shown.
    others: HashMap<String, Vec<Finding>>,
}

/// What happened to a finding that was added.
pub(crate) enum AddOutcome {
    New(Box<StoredFinding>),
    /// It was known, and another test case says more about it: a crash confirms what the lint had found, or the finding
    /// names the mistake and not only what recovery does.
    Replaced(Box<StoredFinding>),
    Duplicate,
}

/// The names of findings that are gone, and those of the findings that they are part of now.
type Joined = Vec<(String, String)>;

/// What was done with a finding that was added.
pub(crate) struct Added {
    pub(crate) outcome: AddOutcome,
    /// Known findings that turned out to be about the bug of another one.
    pub(crate) joined: Joined,
}

impl Findings {
    /// Reads the existing findings, and removes incomplete ones that a kill has left.
    pub(crate) fn open(directory: &Path) -> Result<Self, CampaignError> {
        let mut inner = Inner::default();
        let entries = fs::read_dir(directory).map_err(CampaignError::file(directory))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            // What is written to a finding stays in the campaign.
            output::refuse_link(&path).map_err(CampaignError::file(&path))?;
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

    /// Whether a finding is stored already, and this one adds nothing to it.
    pub(crate) fn contains(&self, finding: &Finding) -> bool {
        let inner = self.lock();
        let places = inner.places_of(finding);
        let [place] = places[..] else {
            return false;
        };
        let known = &inner.all[place];
        !inner.is_other(finding, known)
            && !list_beside(&mut known.finding.clone(), finding)
            && !says_more(finding, &known.finding)
            && !list_outcomes(&mut known.finding.clone(), finding)
    }

    /// Stores a finding, unless it is a duplicate. One bug is one finding, whatever test cases show of it.
    pub(crate) fn add(&self, finding: Finding, basis: &Basis<'_>) -> Result<Added, CampaignError> {
        let mut inner = self.lock();
        let (place, joined) = inner.join(&finding)?;
        let outcome = match place {
            Some(place) => self.add_to(&mut inner, place, finding, basis)?,
            None => self.add_new(&mut inner, finding, basis)?,
        };
        Ok(Added { outcome, joined })
    }

    /// Adds what a test case shows of a known bug.
    fn add_to(
        &self,
        inner: &mut Inner,
        place: usize,
        finding: Finding,
        basis: &Basis<'_>,
    ) -> Result<AddOutcome, CampaignError> {
        inner.remember(&finding, place);
        let known = &mut inner.all[place];
        list_beside(&mut known.finding, &finding);
        if says_more(&finding, &known.finding) {
            self.replace_finding(known, finding, basis)?;
            return Ok(AddOutcome::Replaced(Box::new(known.clone())));
        }
        if list_outcomes(&mut known.finding, &finding) {
            write_report(known, &basis.command)?;
        }
        Ok(AddOutcome::Duplicate)
    }

    fn add_new(
        &self,
        inner: &mut Inner,
        finding: Finding,
        basis: &Basis<'_>,
    ) -> Result<AddOutcome, CampaignError> {
        let mut finding = finding;
        finding.id = inner.free_id(&finding.id);
        let directory = self.directory.join(&finding.id);
        self.write_as(&finding, basis, |unfinished| {
            fs::rename(unfinished, &directory)
        })?;
        let stored = inner.push(finding, directory);
        Ok(AddOutcome::New(Box::new(stored)))
    }

    /// Replaces a finding by one of another test case that says more about the same bug. What recovery did before is
    /// listed.
    fn replace_finding(
        &self,
        known: &mut StoredFinding,
        finding: Finding,
        basis: &Basis<'_>,
    ) -> Result<(), CampaignError> {
        let mut finding = Finding {
            id: known.finding.id.clone(),
            beside: known.finding.beside.clone(),
            ..finding
        };
        list_outcomes(&mut finding, &known.finding);
        self.write_as(&finding, basis, |unfinished| {
            output::exchange(unfinished, &known.directory)?;
            fs::remove_dir_all(unfinished)
        })?;
        known.finding = finding;
        // A smaller test case of the other one may not show this one.
        known.minimised = None;
        Ok(())
    }

    /// Writes the directory of a finding, which gets its name when it is complete.
    fn write_as(
        &self,
        finding: &Finding,
        basis: &Basis<'_>,
        put: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<(), CampaignError> {
        let unfinished = self.directory.join(format!("{UNFINISHED}{}", finding.id));
        let written = write_all(&unfinished, finding, basis)
            .and_then(|()| put(&unfinished).map_err(CampaignError::file(&unfinished)));
        if written.is_err() {
            let _ = fs::remove_dir_all(&unfinished);
        }
        written
    }

    /// Whether a finding is still what the campaign knows about its bug.
    pub(crate) fn is_current(&self, stored: &StoredFinding) -> bool {
        let inner = self.lock();
        let mut all = inner.all.iter();
        let known = all.find(|it| it.directory == stored.directory);
        known.is_some_and(|known| is_same_version(known, stored))
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

    /// Stores a smaller test case of a finding, unless the finding was replaced since: then it is no longer the test case of
    /// this finding.
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
        if !is_same_version(known, of) {
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
    /// The numbers of the findings that are about the same bug. More than one if this one shows that they are.
    fn places_of(&self, finding: &Finding) -> Vec<usize> {
        let name = self.names.get(&bug_key(finding));
        let is_it = |stored: &StoredFinding| {
            let known = &stored.finding;
            let mut others = self.others.get(&known.id).into_iter().flatten();
            name == Some(&known.id)
                || is_same_bug(known, finding)
                || others.any(|other| is_same_bug(other, finding))
        };
        let numbers = (0..self.all.len()).filter(|number| is_it(&self.all[*number]));
        if joins_bugs(finding) {
            return numbers.collect();
        }
        // What only says how recovery fails may fit to several bugs. It belongs to the one that it was counted to before.
        let mut numbers: Vec<usize> = numbers.collect();
        numbers.sort_by_key(|number| name != Some(&self.all[*number].finding.id));
        numbers.truncate(1);
        numbers
    }

    /// Joins the known findings of which a finding shows that they are about one bug; the place of the one that is left, if
    /// there is any, and the names of those that are gone.
    fn join(&mut self, finding: &Finding) -> Result<(Option<usize>, Joined), CampaignError> {
        let places = self.places_of(finding);
        let Some(best) = places.iter().copied().reduce(|best, place| {
            let is_better = says_more(&self.all[place].finding, &self.all[best].finding);
            if is_better { place } else { best }
        }) else {
            return Ok((None, Vec::new()));
        };
        let name = self.all[best].finding.id.clone();
        let mut joined = Vec::new();
        for place in places.into_iter().filter(|place| *place != best).rev() {
            let StoredFinding {
                finding, directory, ..
            } = self.all[place].clone();
            let known = self.all.iter_mut().find(|it| it.finding.id == name);
            if let Some(known) = known
                && list_outcomes(&mut known.finding, &finding)
            {
                write_report(known, &command_of(&known.directory)?)?;
            }
            fs::remove_dir_all(&directory).map_err(CampaignError::file(&directory))?;
            self.all.remove(place);
            for other in self.names.values_mut().filter(|it| **it == finding.id) {
                other.clone_from(&name);
            }
            let moved = self.others.remove(&finding.id).unwrap_or_default();
            let others = self.others.entry(name.clone()).or_default();
            others.extend(moved);
            joined.push((finding.id.clone(), name.clone()));
            others.push(finding);
        }
        let place = self.all.iter().position(|it| it.finding.id == name);
        Ok((place, joined))
    }

    /// Whether a finding shows something of a known bug that may show later that another one is the same.
    fn is_other(&self, finding: &Finding, known: &StoredFinding) -> bool {
        let shown = what_is_shown(finding);
        let mut others = self.others.get(&known.finding.id).into_iter().flatten();
        joins_bugs(finding)
            && what_is_shown(&known.finding) != shown
            && others.all(|other| what_is_shown(other) != shown)
    }

    /// Remembers what a test case shows of a known bug, and what is known of it now.
    fn remember(&mut self, finding: &Finding, place: usize) {
        let known = self.all[place].clone();
        let name = &known.finding.id;
        self.names.insert(bug_key(finding), name.clone());
        for other in [finding, &known.finding] {
            if self.is_other(other, &known) || joins_bugs(other) && says_more(finding, other) {
                let others = self.others.entry(name.clone()).or_default();
                others.push(other.clone());
            }
        }
    }

    fn push(&mut self, finding: Finding, directory: PathBuf) -> StoredFinding {
        let stored = StoredFinding::new(finding, directory);
        let id = stored.finding.id.clone();
        self.names.insert(bug_key(&stored.finding), id);
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

/// A line of the sources.
type Line<'a> = (Option<&'a str>, Option<u32>);

/// What a finding is about, with all stores that are shown with it.
fn what_is_shown(finding: &Finding) -> (BugKey, Vec<Line<'_>>) {
    let stores = finding.places.iter();
    let stores = stores.filter(|place| place.role == Role::Store);
    let lines = stores.map(|place| (place.file.as_deref(), place.line));
    (bug_key(finding), lines.collect())
}

/// Whether neither of two copies of a finding was replaced.
fn is_same_version(one: &StoredFinding, other: &StoredFinding) -> bool {
    let what = |stored: &StoredFinding| {
        let is_shown = stored.finding.evidence.is_some();
        (bug_key(&stored.finding), is_shown)
    };
    what(one) == what(other)
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

/// The command with which the finding in a directory was made.
fn command_of(directory: &Path) -> Result<Vec<String>, CampaignError> {
    Ok(output_directory::load(directory)?.0.command)
}

/// Writes the report of a finding that has changed.
fn write_report(known: &StoredFinding, command: &[String]) -> Result<(), CampaignError> {
    let report = report_of(&known.finding, command);
    replace(
        &known.directory.join(output_directory::REPORT),
        &json(&report)?,
    )?;
    Ok(output_directory::seal(&known.directory)?)
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

#[cfg(test)]
mod tests {
    use powerfail_finding::{Code, Evidence, FailurePoint, LostLine, RecoveryOutcome, SourcePlace};

    use super::*;

    fn place(role: Role, line: u32) -> SourcePlace {
        SourcePlace {
            file: Some("list.c".into()),
            line: Some(line),
            ..SourcePlace::new(role)
        }
    }

    fn found(code: Code, line: u32) -> Finding {
        Finding {
            id: format!("{line}{code}"),
            ..Finding::new(code, String::new(), vec![place(Role::Store, line)])
        }
    }

    fn ended_by(signal: i32) -> RecoveryOutcome {
        RecoveryOutcome::Signal {
            signal,
            command: "recovery".into(),
            output: String::new(),
        }
    }

    /// A crash in which the store is lost.
    fn shown(code: Code, line: u32, signal: i32) -> Finding {
        let lost = LostLine {
            pool: 0,
            pool_offset: 0,
            version: 0,
            stores: None,
        };
        Finding {
            evidence: Some(Evidence {
                failure: FailurePoint {
                    event: 5,
                    lost_lines: vec![lost],
                    again: None,
                    filled: Vec::new(),
                },
                recovery: ended_by(signal),
                last_good_event: None,
                next_good_event: None,
                trace: None,
                difference: None,
                torn: false,
                choices: Vec::new(),
            }),
            ..found(code, line)
        }
    }

    /// Adds findings of different test cases to a new campaign; what is stored of each bug at last.
    fn stored(found: Vec<Finding>) -> Vec<Finding> {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("trace");
        fs::write(&trace, "events").unwrap();
        let all = directory.path().join("findings");
        fs::create_dir(&all).unwrap();
        let findings = Findings::open(&all).unwrap();
        for (number, finding) in found.into_iter().enumerate() {
            let case = TestCase {
                image: "00".repeat(32).parse().unwrap(),
                input: vec![u8::try_from(number).unwrap()],
            };
            let basis = Basis {
                trace: &trace,
                command: vec!["program".into()],
                recovery: &Recovery::new(vec!["program".into()], "/".into()),
                recovery_input: None,
                case: &case,
                record: CaseRecord {
                    image: case.image.to_string(),
                    path: Vec::new(),
                    time_s: 0.0,
                    execs: 0,
                },
            };
            if !findings.contains(&finding) {
                findings.add(finding, &basis).unwrap();
            }
        }
        // What was stored is what is read again.
        let again = Findings::open(&all).unwrap().all();
        let mut now = findings.all();
        now.sort_by(|one, other| one.directory.cmp(&other.directory));
        let of = |all: &[StoredFinding]| -> Vec<Finding> {
            let stored = |it: &StoredFinding| Finding {
                beside: Vec::new(),
                ..it.finding.clone()
            };
            all.iter().map(stored).collect()
        };
        assert_eq!(of(&again), of(&now));
        let entries = fs::read_dir(&all).unwrap();
        assert_eq!(entries.count(), now.len(), "nothing unfinished is left");
        of(&findings.all())
    }

    #[test]
    fn a_missing_add_is_one_finding_whichever_fields_a_test_case_stores_to() {
        let missing = |lines: &[u32]| {
            let stores = lines.iter().map(|line| place(Role::Store, *line));
            Finding {
                places: stores.collect(),
                ..found(Code::StoreNotAdded, lines[0])
            }
        };
        let all = stored(vec![
            missing(&[246, 247, 248]),
            missing(&[245, 247, 248]),
            missing(&[248, 246]),
            missing(&[245, 246, 247, 248]),
            missing(&[250]),
        ]);
        let lines: Vec<_> = all.iter().map(|it| it.places[0].line).collect();
        assert_eq!(lines, [Some(246), Some(250)]);
    }

    #[test]
    fn two_findings_are_joined_when_a_test_case_shows_that_they_are_one_bug() {
        let lost = |lines: &[u32]| {
            let stores = lines.iter().map(|line| place(Role::Store, *line));
            Finding {
                places: stores.collect(),
                ..shown(Code::CrossFailureRace, lines[0], 6)
            }
        };
        let first_stores =
            |all: Vec<Finding>| -> Vec<_> { all.iter().map(|it| it.places[0].line).collect() };
        let all = stored(vec![lost(&[38]), lost(&[55]), lost(&[70])]);
        assert_eq!(first_stores(all), [Some(38), Some(55), Some(70)]);
        let all = stored(vec![lost(&[38]), lost(&[55]), lost(&[70]), lost(&[38, 55])]);
        assert_eq!(first_stores(all), [Some(38), Some(70)]);
        // What was shown of a bug is known also if something else is shown of it now.
        let all = stored(vec![lost(&[38]), lost(&[38, 55]), lost(&[55])]);
        assert_eq!(first_stores(all), [Some(38)]);
        // What recovery does without its data fits to both of two bugs, and does not make them one.
        let fails = Finding {
            places: vec![place(Role::Store, 38), place(Role::Store, 55)],
            ..shown(Code::RecoveryRejects, 38, 6)
        };
        let flushes = |line| shown(Code::StoreNotFlushed, line, 6);
        let all = stored(vec![flushes(38), flushes(55), fails]);
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn a_useless_add_is_one_finding() {
        let add = |code, line| Finding {
            places: vec![place(Role::Add, line)],
            ..found(code, line)
        };
        let all = stored(vec![
            add(Code::AddWithoutStore, 277),
            add(Code::DuplicateAdd, 277),
            add(Code::DuplicateAdd, 280),
        ]);
        let codes: Vec<Code> = all.iter().map(|it| it.code).collect();
        assert_eq!(codes, [Code::AddWithoutStore, Code::DuplicateAdd]);
    }

    #[test]
    fn a_failure_without_a_cause_gives_way_to_what_is_to_blame_in_the_same_operation() {
        let in_function = |function: &str, mut place: SourcePlace| {
            place.function = Some(function.into());
            place.stack = vec![powerfail_finding::StackFrame {
                function: Some("empty_limbo".into()),
                file: Some("list.c".into()),
                line: Some(228),
                module: None,
                offset: 0,
                trusted: false,
            }];
            place
        };
        let unknown = Finding {
            places: vec![in_function("tx_own", place(Role::Failure, 40))],
            ..shown(Code::RecoveryRejects, 40, 6)
        };
        let missing = |function| Finding {
            places: vec![in_function(function, place(Role::Store, 227))],
            ..found(Code::StoreNotAdded, 227)
        };
        let codes =
            |all: Vec<Finding>| -> Vec<Code> { stored(all).iter().map(|it| it.code).collect() };
        let one = [Code::StoreNotAdded];
        assert_eq!(codes(vec![unknown.clone(), missing("empty_limbo")]), one);
        assert_eq!(codes(vec![missing("empty_limbo"), unknown.clone()]), one);
        assert_eq!(codes(vec![missing("insert"), unknown]).len(), 2);
    }

    #[test]
    fn what_test_cases_show_of_one_bug_is_one_finding() {
        let all = stored(vec![
            found(Code::StoreNotFlushed, 7),
            shown(Code::RecoveryCrashes, 7, 11),
            shown(Code::StoreNotAdded, 7, 6),
            shown(Code::RecoveryCrashes, 7, 8),
            shown(Code::RecoveryCrashes, 7, 8),
            found(Code::TransientData, 7),
            found(Code::StoreNotFlushed, 8),
        ]);
        let codes: Vec<Code> = all.iter().map(|it| it.code).collect();
        assert_eq!(codes, [Code::StoreNotAdded, Code::StoreNotFlushed]);
        assert_eq!(all[0].id, "7PF0101", "the finding keeps its name");
        let shown = all[0].evidence.as_ref().map(|it| it.recovery.clone());
        assert_eq!(shown, Some(ended_by(6)));
        assert_eq!(all[0].consequences, [8, 11].map(ended_by));
    }

    #[test]
    fn a_crash_of_another_test_case_confirms_what_the_lint_has_found() {
        let all = stored(vec![
            found(Code::StoreNotFlushed, 7),
            shown(Code::StoreNotFlushed, 7, 11),
            found(Code::StoreNotFlushed, 7),
        ]);
        assert_eq!(all.len(), 1);
        assert!(all[0].evidence.is_some());
    }

    #[test]
    fn a_store_that_a_crash_test_has_joined_is_no_finding_of_its_own() {
        let crash = Finding {
            beside: vec![place(Role::Store, 39)],
            ..shown(Code::StoreNotFlushed, 44, 6)
        };
        let lint = found(Code::StoreNotFlushed, 39);
        for order in [[lint.clone(), crash.clone()], [crash.clone(), lint]] {
            let all = stored(order.to_vec());
            assert_eq!(all.len(), 1, "{all:#?}");
            assert_eq!(all[0].places[0].line, Some(44));
        }
        let other = found(Code::StoreNotFlushed, 40);
        assert_eq!(stored(vec![crash, other]).len(), 2);
    }

    #[test]
    fn a_race_about_the_store_that_makes_lost_data_reachable_is_no_finding_of_its_own() {
        let mut crash = shown(Code::StoreNotFlushed, 44, 6);
        crash.places.push(place(Role::Survivor, 49));
        let race = |pool_offset| {
            let mut race = shown(Code::CrossFailureRace, 49, 6);
            race.places[0].pool_offset = Some(pool_offset);
            race.places.push(place(Role::Load, 74));
            race
        };
        // The crash of `shown` loses the first line.
        assert_eq!(stored(vec![crash.clone(), race(4096)]).len(), 1);
        assert_eq!(stored(vec![crash, race(8)]).len(), 2);
    }

    #[test]
    fn offsets_of_different_runs_say_nothing() {
        let at = |line, offset| {
            let mut finding = found(Code::StoreNotFlushed, line);
            finding.places[0].function = Some("insert".into());
            finding.places[0].pool = Some("pool".into());
            finding.places[0].pool_offset = Some(offset);
            finding
        };
        assert_eq!(stored(vec![at(7, 64), at(8, 72)]).len(), 2);
    }
}
