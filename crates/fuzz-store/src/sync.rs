//! Test cases of other instances, on this machine or copied from others.
//!
//! Each instance has a directory of its own, and reads those of the others, which may be running, killed,
//! half copied or damaged: nothing of theirs is changed, and what is wrong with one of them is counted and
//! said, and stops nothing. What is not there yet is tried again a few times, because a directory that is
//! being copied has its lines before their files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_image::{Contents, ImageId};
use serde::{Deserialize, Serialize};

use crate::campaign::{read_record, write_whole};
use crate::journal::JournalReader;
use crate::queue::{CaseText, QueueLine, input_path, is_absent, journal_path, read_input};
use crate::{CaseNumber, CorpusError, Entry, Images, Queue, Result, TestCase};

const POSITIONS_FILE: &str = "sync.json";
/// How often something that is not there is looked for before it is given up.
const TRIES: u32 = 5;
/// Memory for contents of each instance.
const CACHE_BYTES: u64 = 32 << 20;

/// Reads other instances' directories.
pub struct Sync {
    own: PathBuf,
    sources: Vec<PathBuf>,
    instances: BTreeMap<PathBuf, Instance>,
}

/// How far an instance was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// The campaign that it is; another one in the same place is read from its beginning.
    campaign: String,
    /// Bytes of its queue.
    queue: u64,
}

struct Instance {
    position: Position,
    images: Option<Images>,
    tries: u32,
}

/// A test case of another instance. Its image is among ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The instance.
    pub from: PathBuf,
    /// Its number there.
    pub number: CaseNumber,
    /// What it is.
    pub case: TestCase,
    /// What is known of it there.
    pub entry: Entry,
}

/// What [`Sync::pull`] has found.
#[derive(Debug, Default)]
pub struct Pulled {
    /// Test cases, in the order of each instance.
    pub cases: Vec<Imported>,
    /// Images that came with them.
    pub new_images: usize,
    /// What could not be read, and was left out.
    pub problems: Vec<CorpusError>,
    /// Whether there is more than was asked for.
    pub more: bool,
}

impl Sync {
    /// Prepares to read instances for the campaign in `own`. A source is the directory of an instance, or one
    /// that has the directories of several in it, ours among them if that is so.
    ///
    /// # Errors
    /// How far they were read cannot be read.
    pub fn open(own: &Path, sources: &[PathBuf]) -> Result<Self> {
        let path = own.join(POSITIONS_FILE);
        let positions: BTreeMap<PathBuf, Position> = match fs::read(&path) {
            // What is damaged only costs reading again what is known.
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(CorpusError::file("read", &path)(error)),
        };
        let instance = |(path, position)| (path, Instance::at(position));
        Ok(Self {
            own: own.to_owned(),
            sources: sources.to_vec(),
            instances: positions.into_iter().map(instance).collect(),
        })
    }

    /// The instances that are there now.
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

    /// Reads at most so many test cases that are not in our queue, and copies their images with the ways to them. Call
    /// [`Sync::done`] when they are taken over: until then, a campaign that is killed reads them again.
    ///
    /// # Errors
    /// Ours cannot be written. What is wrong with theirs is in the result.
    pub fn pull(&mut self, images: &Images, queue: &Queue, limit: usize) -> Result<Pulled> {
        let mut pulled = Pulled::default();
        for path in self.instances() {
            let instance = (self.instances.entry(path.clone()))
                .or_insert_with(|| Instance::at(Position::default()));
            instance.pull(&path, (images, queue), limit, &mut pulled)?;
        }
        Ok(pulled)
    }

    /// Remembers how far everything was read.
    ///
    /// # Errors
    /// There is no room. Then some test cases may be read again.
    pub fn done(&self) -> Result<()> {
        let path = self.own.join(POSITIONS_FILE);
        let positions: BTreeMap<_, _> = (self.instances.iter())
            .map(|(path, instance)| (path, &instance.position))
            .collect();
        write_whole(&path, &positions).map_err(CorpusError::file("write", &path))
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
            // It is just being begun.
            Err(CorpusError::NoCampaign { .. }) => return Ok(()),
            Err(error) => {
                pulled.problems.push(error);
                return Ok(());
            }
        };
        // A campaign that was begun anew in the same place has another identifier, or a shorter queue.
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

    /// The inner error is one of theirs. `None`: it is known.
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

    /// Copies an image and those on the way to it. Gives how many were new.
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
                // What cannot be read on the way is left out, and what comes after it is a root.
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
            // It may be known even so: before the damage.
            if !theirs.contains(image) {
                refreshed?;
            }
        }
        Ok(theirs)
    }
}

/// Contents that are what their identifier says.
fn load_checked(theirs: &Images, image: ImageId) -> Result<Arc<Contents>> {
    let contents = theirs.load(image)?;
    if contents.id() == image {
        Ok(contents)
    } else {
        Err(CorpusError::damaged(
            theirs.directory(),
            0,
            format!("image {image} is another one"),
        ))
    }
}

fn is_not_yet(error: &CorpusError) -> bool {
    is_absent(error)
        || matches!(
            error,
            CorpusError::Missing { .. } | CorpusError::UnknownImage(_)
        )
}
