//! Test cases: one file per input, and one line per test case.
//!
//! `queue/000001.input` is an input that can be read or passed to the target by hand. `queue.jsonl` has everything else. The
//! file is written before the line, and only counts when the line exists.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use powerfail_files::{Directory, output};
use powerfail_image::ImageId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::journal::{Journal, JournalReader};
use crate::text::IdText;
use crate::{CaseNumber, Cut, Priority, Result, StoreError, TestCase};

pub(crate) const JOURNAL_FILE: &str = "queue.jsonl";
pub(crate) const INPUTS_DIRECTORY: &str = "queue";

/// What is known about a test case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// How promising it is.
    pub priority: Priority,
    /// When it was found, in seconds of the campaign.
    pub time_s: f64,
    /// The number of executions before that.
    #[serde(default)]
    pub execs: u64,
    /// The number of locations that it reaches and no earlier test case reached.
    pub new_locations: u64,
    /// Where it comes from, for people: a mutation, `seed`, `image`, another instance.
    pub found_by: String,
    /// The test case that it was shortened from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimised_from: Option<CaseNumber>,
}

/// A line of `queue.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QueueLine {
    /// A test case; its number is that of the line among lines of this kind, from 1.
    Case(CaseText),
    /// One that is not used any more.
    Retire {
        number: CaseNumber,
        #[serde(deserialize_with = "retirement")]
        because: Retirement,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CaseText {
    pub number: CaseNumber,
    pub image: IdText,
    pub input_len: u64,
    pub input_hash: String,
    #[serde(flatten)]
    pub entry: Entry,
}

/// A test case without its input.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedCase {
    /// Its number.
    pub number: CaseNumber,
    /// The image it starts from.
    pub image: ImageId,
    /// Bytes of its input.
    pub input_len_bytes: u64,
    /// What is known about it.
    pub entry: Entry,
    /// Why it is not used any more, if it is retired.
    pub retired: Option<Retirement>,
    input_hash: String,
}

/// Why a test case is not used any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retirement {
    /// Its execution timed out.
    Hangs,
    /// Its execution was ended by a signal.
    Crashes {
        /// The signal. Campaigns of format 1 did not store it.
        signal: Option<i32>,
    },
    /// Other test cases reach everything that it reaches.
    Redundant,
    /// A shorter test case does the same.
    Shortened {
        /// The shorter one.
        to: CaseNumber,
    },
    /// A reason that a campaign of format 1 stored as text.
    Other(String),
}

/// Reads a reason. Campaigns of format 1 stored a sentence.
fn retirement<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<Retirement, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Kind(Retirement),
        Sentence(String),
    }
    Ok(match Stored::deserialize(reader)? {
        Stored::Kind(kind) => kind,
        Stored::Sentence(text) => match text.as_str() {
            "it hangs" => Retirement::Hangs,
            "it crashes" => Retirement::Crashes { signal: None },
            "others reach all that it reaches" => Retirement::Redundant,
            _ => match text.strip_suffix(" is a shorter form of it") {
                Some(number) => number.parse().map_or_else(
                    |_| Retirement::Other(text.clone()),
                    |number| Retirement::Shortened {
                        to: CaseNumber(number),
                    },
                ),
                None => Retirement::Other(text),
            },
        },
    })
}

/// The test cases of a campaign. Can be shared between threads.
pub struct Queue {
    directory: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    journal: Journal<QueueLine>,
    cases: Vec<QueuedCase>,
    known: FxHashMap<(ImageId, String), CaseNumber>,
}

impl Queue {
    /// Opens the queue of a directory, or creates it. The caller holds the lock of the directory. The second result lists
    /// incomplete ends that were cut off.
    ///
    /// # Errors
    /// A file cannot be read or written, or is damaged before its end.
    pub fn open(directory: &Path) -> Result<(Self, Vec<Cut>)> {
        let inputs = directory.join(INPUTS_DIRECTORY);
        Directory::create(&inputs).map_err(StoreError::file("make", &inputs))?;
        let path = directory.join(JOURNAL_FILE);
        let mut cases = Vec::new();
        let mut wrong = None;
        let (journal, lost) = Journal::open(&path, |line| {
            if let Err(what) = absorb(&mut cases, line) {
                wrong.get_or_insert(what);
            }
        })?;
        if let Some(what) = wrong {
            return Err(StoreError::damaged(&path, 0, what));
        }
        let mut cuts = Vec::new();
        Cut::note(&mut cuts, &path, lost);
        let known = (cases.iter())
            .map(|case: &QueuedCase| (case.key(), case.number))
            .collect();
        let inner = Inner {
            journal,
            cases,
            known,
        };
        let queue = Self {
            directory: directory.to_owned(),
            inner: Mutex::new(inner),
        };
        Ok((queue, cuts))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a test case. The second result tells whether it is new; if not, the first is its existing number.
    ///
    /// # Errors
    /// The disk is full. Nothing has changed then.
    pub fn append(&self, case: &TestCase, entry: &Entry) -> Result<(CaseNumber, bool)> {
        let input_hash = input_hash(&case.input);
        let mut inner = self.lock();
        let key = (case.image, input_hash);
        if let Some(number) = inner.known.get(&key) {
            return Ok((*number, false));
        }
        let number = CaseNumber(inner.cases.len() as u64 + 1);
        let path = self.input_path(number);
        if let Err(error) = output::create(&path).and_then(|mut file| file.write_all(&case.input)) {
            drop(fs::remove_file(&path));
            return Err(StoreError::file("write", &path)(error));
        }
        let line = QueueLine::Case(CaseText {
            number,
            image: IdText(case.image),
            input_len: case.input.len() as u64,
            input_hash: key.1.clone(),
            entry: entry.clone(),
        });
        if let Err(error) = inner.journal.append(&line) {
            drop(fs::remove_file(&path));
            return Err(error);
        }
        inner.cases.push(QueuedCase {
            number,
            image: case.image,
            input_len_bytes: case.input.len() as u64,
            entry: entry.clone(),
            retired: None,
            input_hash: key.1.clone(),
        });
        inner.known.insert(key, number);
        Ok((number, true))
    }

    /// Marks a test case as not used any more. It stays on disk. The first reason counts.
    ///
    /// # Errors
    /// The test case is unknown, or the disk is full. Nothing has changed then.
    pub fn retire(&self, number: CaseNumber, because: Retirement) -> Result<()> {
        let mut inner = self.lock();
        let Inner { journal, cases, .. } = &mut *inner;
        let case = find_mut(cases, number).ok_or(StoreError::UnknownCase(number))?;
        if case.retired.is_some() {
            return Ok(());
        }
        journal.append(&QueueLine::Retire {
            number,
            because: because.clone(),
        })?;
        case.retired = Some(because);
        Ok(())
    }

    /// Whether a test case is known.
    pub fn contains(&self, case: &TestCase) -> bool {
        let key = (case.image, input_hash(&case.input));
        self.lock().known.contains_key(&key)
    }

    /// A test case with its input.
    ///
    /// # Errors
    /// It is unknown, or its input cannot be read or has changed.
    pub fn load(&self, number: CaseNumber) -> Result<TestCase> {
        let (image, hash) = {
            let inner = self.lock();
            let case = (inner.cases)
                .get((number.0 as usize).wrapping_sub(1))
                .ok_or(StoreError::UnknownCase(number))?;
            (case.image, case.input_hash.clone())
        };
        let input = read_input(&self.input_path(number), &hash)?;
        Ok(TestCase { image, input })
    }

    /// All test cases in the order in which they were found, including retired ones.
    pub fn cases(&self) -> Vec<QueuedCase> {
        self.lock().cases.clone()
    }

    /// The number of test cases that are not retired.
    pub fn len(&self) -> usize {
        let inner = self.lock();
        let active = inner.cases.iter().filter(|case| case.retired.is_none());
        active.count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file of an input.
    pub fn input_path(&self, number: CaseNumber) -> PathBuf {
        input_path(&self.directory, number)
    }
}

impl QueuedCase {
    fn key(&self) -> (ImageId, String) {
        (self.image, self.input_hash.clone())
    }
}

fn find_mut(cases: &mut [QueuedCase], number: CaseNumber) -> Option<&mut QueuedCase> {
    cases.get_mut((number.0 as usize).wrapping_sub(1))
}

fn absorb(cases: &mut Vec<QueuedCase>, line: QueueLine) -> Result<(), String> {
    match line {
        QueueLine::Case(case) if case.number.0 == cases.len() as u64 + 1 => {
            cases.push(QueuedCase {
                number: case.number,
                image: case.image.0,
                input_len_bytes: case.input_len,
                entry: case.entry,
                retired: None,
                input_hash: case.input_hash,
            });
            Ok(())
        }
        QueueLine::Case(case) => Err(format!("test case {} is out of order", case.number)),
        QueueLine::Retire { number, because } => match find_mut(cases, number) {
            Some(case) => {
                case.retired = Some(because);
                Ok(())
            }
            None => Err(format!("test case {number} is retired before it is added")),
        },
    }
}

/// All test cases of a directory, whether its campaign is running or not. Damaged lines are skipped.
///
/// # Errors
/// The journal cannot be read.
pub fn read_cases(directory: &Path) -> Result<Vec<QueuedCase>> {
    let lines = JournalReader::<QueueLine>::new(&journal_path(directory), 0).read()?;
    let mut cases = Vec::new();
    for line in lines.into_iter().filter_map(|line| line.entry.ok()) {
        // A line that contradicts earlier ones follows a damaged line.
        let _ = absorb(&mut cases, line);
    }
    Ok(cases)
}

/// The journal of a directory's queue.
pub(crate) fn journal_path(directory: &Path) -> PathBuf {
    directory.join(JOURNAL_FILE)
}

/// The file of an input in a directory.
pub(crate) fn input_path(directory: &Path, number: CaseNumber) -> PathBuf {
    let inputs = directory.join(INPUTS_DIRECTORY);
    inputs.join(format!("{number}.input"))
}

/// Reads an input and checks that it is the one that was written.
pub(crate) fn read_input(path: &Path, hash: &str) -> Result<Vec<u8>> {
    let input = powerfail_files::input::read(path);
    let input = input.map_err(StoreError::file("read", path))?;
    if input_hash(&input) == hash {
        Ok(input)
    } else {
        Err(StoreError::damaged(
            path,
            0,
            "the input is not the one that was stored",
        ))
    }
}

fn input_hash(input: &[u8]) -> String {
    powerfail_finding::hex(&blake3::hash(input).as_bytes()[..16])
}

/// Whether a file does not exist, or not yet.
pub(crate) fn is_absent(error: &StoreError) -> bool {
    matches!(error, StoreError::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
