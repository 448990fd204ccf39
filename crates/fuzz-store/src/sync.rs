//! Test cases of other instances, on this machine or copied from others.
//!
//! Each instance has a directory of its own, and reads those of the others, which may be running, killed,
//! half copied or damaged. Their files are not changed, and a problem with one of them is reported and stops nothing. A
//! missing file is looked for a few times, because a directory that is being copied may have a line before its file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_image::{DirectoryContents, ImageId};
use serde::{Deserialize, Serialize};

use crate::campaign::{read_record, write_whole};
use crate::journal::JournalReader;
use crate::queue::{CaseText, QueueLine, input_path, is_absent, journal_path, read_input};
use crate::{CaseNumber, Entry, Images, Queue, Result, StoreError, TestCase};

const POSITIONS_FILE: &str = "sync.json";
/// How often a missing file is looked for.
const TRIES: u32 = 5;
/// Memory for contents of each instance.
const CACHE_BYTES: u64 = 32 << 20;

/// Reads the directories of other instances.
pub struct Sync {
    own: PathBuf,
    sources: Vec<PathBuf>,
    instances: BTreeMap<PathBuf, Instance>,
}

/// How far an instance was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// The id of its campaign; another one in the same directory is read from its beginning.
    campaign: String,
    /// The position in its queue, in bytes.
    queue: u64,
}

struct Instance {
    position: Position,
    images: Option<Images>,
    tries: u32,
}

/// A test case of another instance. Its image was imported.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The instance.
    pub from: PathBuf,
    /// Its number there.
    pub number: CaseNumber,
    /// The test case.
    pub case: TestCase,
    /// What that instance knows about it.
    pub entry: Entry,
}

/// The result of [`Sync::pull`].
#[derive(Debug, Default)]
pub struct Pulled {
    /// Test cases, in the order of each instance.
    pub cases: Vec<Imported>,
    /// Images that came with them.
    pub new_images: usize,
    /// What could not be read and was skipped.
    pub problems: Vec<StoreError>,
    /// Whether there is more to read.
    pub more: bool,
}

impl Sync {
    /// Prepares to read instances for the campaign in `own`. A source is the directory of an instance, or a
    /// directory that contains those of several instances, possibly including this one.
    ///
    /// # Errors
    /// The stored positions cannot be read.
    pub fn open(own: &Path, sources: &[PathBuf]) -> Result<Self> {
        let path = own.join(POSITIONS_FILE);
        let positions: BTreeMap<PathBuf, Position> = match powerfail_files::input::read(&path) {
            // If positions are damaged, known test cases are read again.
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(StoreError::file("read", &path)(error)),
        };
        let instance = |(path, position)| (path, Instance::at(position));
        Ok(Self {
            own: own.to_owned(),
            sources: sources.to_vec(),
            instances: positions.into_iter().map(instance).collect(),
        })
    }

    /// The instances that exist now.
    pub fn instances(&self) -> Vec<PathBuf> {
        let own = self.own.canonicalize().ok();
        let mut found = Vec::new();
        let mut add = |path: PathBuf| {
            let is_own = own.is_some() && path.canonicalize().ok() == own;
            if !is_own && journal_path(&path).exists() && !found.contains(&path) {
                found.push(path);
            }
        };
        for source in &self.sources {
            if journal_path(source).exists() {
                add(source.clone());
                continue;
            }
            let mut below: Vec<_> = (fs::read_dir(source).into_iter().flatten().flatten())
                .map(|entry| entry.path())
                .collect();
            below.sort();
            below.into_iter().for_each(&mut add);
        }
        found
    }

    /// Reads at most `limit` test cases that are not in the own queue, and copies their images with the paths to them. Call
    /// [`Sync::done`] when they are stored: until then, a campaign that is killed reads them again.
    ///
    /// # Errors
    /// The own files cannot be written. Problems with other instances are in the result.
    pub fn pull(&mut self, images: &Images, queue: &Queue, limit: usize) -> Result<Pulled> {
        let mut pulled = Pulled::default();
        for path in self.instances() {
            let instance = (self.instances.entry(path.clone()))
                .or_insert_with(|| Instance::at(Position::default()));
            instance.pull(&path, (images, queue), limit, &mut pulled)?;
        }
        Ok(pulled)
    }

    /// Stores the positions.
    ///
    /// # Errors
    /// The disk is full. Some test cases may be read again then.
    pub fn done(&self) -> Result<()> {
        let path = self.own.join(POSITIONS_FILE);
        let positions: BTreeMap<_, _> = (self.instances.iter())
            .map(|(path, instance)| (path, &instance.position))
            .collect();
        write_whole(&path, &positions).map_err(StoreError::file("write", &path))
    }
}

impl Instance {
    fn at(position: Position) -> Self {
        Self {
            position,
            images: None,
            tries: 0,
        }
    }

    fn pull(
        &mut self,
        path: &Path,
        ours: (&Images, &Queue),
        limit: usize,
        pulled: &mut Pulled,
    ) -> Result<()> {
        let campaign = match read_record(path) {
            Ok(record) => record.id,
            // It is just being started.
            Err(StoreError::NoCampaign { .. }) => return Ok(()),
            Err(error) => {
                pulled.problems.push(error);
                return Ok(());
            }
        };
        // A new campaign in the same directory has another id, or a shorter queue.
        let journal = journal_path(path);
        let len = journal.metadata().map_or(0, |metadata| metadata.len());
        if campaign != self.position.campaign || len < self.position.queue {
            *self = Self::at(Position { campaign, queue: 0 });
        }
        let mut reader = JournalReader::<QueueLine>::new(&journal, self.position.queue);
        let lines = match reader.read() {
            Ok(lines) => lines,
            Err(error) => {
                pulled.problems.push(error);
                return Ok(());
            }
        };
        for line in lines {
            if pulled.cases.len() >= limit {
                pulled.more = true;
                break;
            }
            match line.entry {
                Ok(QueueLine::Case(case)) => match self.import(path, case, ours, pulled)? {
                    Ok(imported) => pulled.cases.extend(imported),
                    Err(error) => {
                        let not_yet = is_not_yet(&error);
                        if not_yet && self.tries + 1 < TRIES {
                            self.tries += 1;
                            break;
                        }
                        pulled.problems.push(error);
                    }
                },
                Ok(QueueLine::Retire { .. }) => {}
                Err(error) => pulled.problems.push(error),
            }
            self.tries = 0;
            self.position.queue = line.end;
        }
        Ok(())
    }

    /// The inner error is one of the other instance. `None` if the test case is known.
    fn import(
        &mut self,
        path: &Path,
        case: CaseText,
        (images, queue): (&Images, &Queue),
        pulled: &mut Pulled,
    ) -> Result<Result<Option<Imported>>> {
        let image = case.image.0;
        let input = match read_input(&input_path(path, case.number), &case.input_hash) {
            Ok(input) => input,
            Err(error) => return Ok(Err(error)),
        };
        let test = TestCase { image, input };
        if queue.contains(&test) {
            return Ok(Ok(None));
        }
        if !images.contains(image) {
            match self.copy(path, image, images)? {
                Ok(new) => pulled.new_images += new,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(Some(Imported {
            from: path.to_owned(),
            number: case.number,
            case: test,
            entry: case.entry,
        })))
    }

    /// Copies an image and those on its path; returns how many were new.
    fn copy(&mut self, path: &Path, image: ImageId, ours: &Images) -> Result<Result<usize>> {
        let theirs = match self.theirs(path, image) {
            Ok(theirs) => theirs,
            Err(error) => return Ok(Err(error)),
        };
        let way = match theirs.ancestors(image) {
            Ok(way) => way,
            Err(error) => return Ok(Err(error)),
        };
        let mut new = 0;
        let mut parent = None;
        for node in &way {
            if ours.contains(node.id) {
                parent = Some(node.id);
                continue;
            }
            let contents = match load_checked(theirs, node.id) {
                Ok(contents) => contents,
                Err(error) if node.id == image => return Ok(Err(error)),
                // An image that cannot be read is skipped, and the one after it becomes a root.
                Err(_) => {
                    parent = None;
                    continue;
                }
            };
            let edge = theirs.edge(node.id).ok().flatten();
            let (_, is_new) = match (parent, edge) {
                (Some(parent), Some(edge)) => ours.insert(parent, &edge, &contents)?,
                _ => {
                    let name = format!("image {} of {}", node.id, path.display());
                    let name = node.name.as_deref().unwrap_or(&name);
                    ours.insert_root(name, &contents)?
                }
            };
            new += usize::from(is_new);
            parent = Some(node.id);
        }
        Ok(Ok(new))
    }

    fn theirs(&mut self, path: &Path, image: ImageId) -> Result<&Images> {
        let theirs = match self.images.take() {
            Some(theirs) => theirs,
            None => {
                let theirs = Images::unread(path);
                theirs.set_cache_limit(CACHE_BYTES);
                theirs
            }
        };
        let theirs = self.images.insert(theirs);
        if !theirs.contains(image) {
            let refreshed = theirs.refresh();
            // The image may still be known, from before the damage.
            if !theirs.contains(image) {
                refreshed?;
            }
        }
        Ok(theirs)
    }
}

/// Loads contents, and verifies their identifier.
fn load_checked(theirs: &Images, image: ImageId) -> Result<Arc<DirectoryContents>> {
    let contents = theirs.load(image)?;
    if contents.id() == image {
        Ok(contents)
    } else {
        Err(StoreError::damaged(
            theirs.directory(),
            0,
            format!("image {image} has other contents"),
        ))
    }
}

fn is_not_yet(error: &StoreError) -> bool {
    is_absent(error)
        || matches!(
            error,
            StoreError::Missing { .. } | StoreError::UnknownImage(_)
        )
}
