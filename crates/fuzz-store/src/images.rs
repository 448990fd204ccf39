//! Images of pools in a tree whose edges are (input, failure point).
//!
//! An image is stored once, as the difference to a similar one: its parent, or the one that was last made from its parent. Chains of differences are bounded: at the bound, the
//! difference is to the beginning of the chain, or to nothing. All of it is appended: contents to
//! `images.pack`, long inputs to `inputs.pack`, then one line to `images.jsonl`, which makes the image part of the tree.
//!
//! The lines alone, with `inputs.pack`, are enough to make every image again by running the program along the
//! edges; only images that the user gave need the pack.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use powerfail_image::{DirectoryContents, ImageId, PageBytes, PageHash, page_hash};

use crate::store::{INPUTS_FILE, Origin, PACK_FILE, Store, TREE_FILE};
use crate::tree::NodeNumber;
use crate::{Cut, Edge, Rebuild, Result, StoreError};

/// The images of a campaign. Can be shared between threads.
pub struct Images {
    directory: PathBuf,
    store: Mutex<Store>,
}

type Hashes<'a> = Vec<(&'a Arc<PageBytes>, PageHash)>;

/// A node of the image tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageNode {
    /// The image.
    pub id: ImageId,
    /// Its parent on the shortest path; `None` for a root.
    pub parent: Option<ImageId>,
    /// The name of an image that the user gave.
    pub name: Option<String>,
    /// Where the power failed; `None` for roots, too.
    pub failure_point: Option<u64>,
    /// The length of the input on the edge to it.
    pub input_len_bytes: u64,
}

impl Images {
    /// Opens the images of a directory, or creates the files. The caller holds the lock of the directory. The second result
    /// lists incomplete ends that were cut off.
    ///
    /// # Errors
    /// A file cannot be read or written, or is damaged before its end.
    pub fn open(directory: &Path) -> Result<(Self, Vec<Cut>)> {
        let (store, cuts) = Store::open(directory)?;
        Ok((Self::of(directory, store), cuts))
    }

    /// Opens images that another process may be adding to, to read them. [`Images::refresh`] sees what was
    /// added since.
    ///
    /// # Errors
    /// As [`Images::refresh`].
    pub fn follow(directory: &Path) -> Result<Self> {
        let images = Self::unread(directory);
        images.refresh()?;
        Ok(images)
    }

    /// Like [`Images::follow`], but without reading anything, for directories that may be damaged.
    pub(crate) fn unread(directory: &Path) -> Self {
        Self::of(directory, Store::unread(directory))
    }

    fn of(directory: &Path, store: Store) -> Self {
        Self {
            directory: directory.to_owned(),
            store: Mutex::new(store),
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The state changes only after the change is on disk, so a poisoned lock is still consistent.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what another process has added; returns the number of new images.
    ///
    /// # Errors
    /// The tree cannot be read, or is damaged. Images before the damage are known, those behind it are not.
    pub fn refresh(&self) -> Result<usize> {
        let mut store = self.lock();
        let before = store.tree.len();
        store.refresh()?;
        Ok(store.tree.len() - before)
    }

    /// Sets the memory for recently used contents; the default is 256 MiB.
    pub fn set_cache_limit(&self, limit_bytes: u64) {
        self.lock().cache.set_limit(limit_bytes);
    }

    /// The memory that cached contents take.
    pub fn cache_bytes(&self) -> u64 {
        self.lock().cache.used_bytes()
    }

    /// The identifier of contents, whether they are stored or not. Faster than [`DirectoryContents::id`]: pages that are shared with
    /// recently used images are not hashed again.
    pub fn identify(&self, contents: &DirectoryContents) -> ImageId {
        let (id, hashes) = self.identify_pages(contents);
        let mut store = self.lock();
        for (page, hash) in hashes {
            store.cache.set_hash(page, hash);
        }
        id
    }

    /// Like [`Images::identify`], and returns the new hashes. Hashes without holding the lock.
    fn identify_pages<'a>(&self, contents: &'a DirectoryContents) -> (ImageId, Hashes<'a>) {
        let files = contents.files.values();
        let pages: Vec<_> = files.flat_map(|file| file.pages.values()).collect();
        let known: Vec<_> = {
            let store = self.lock();
            pages.iter().map(|page| store.cache.hash(page)).collect()
        };
        let mut new = Vec::new();
        let mut hashes = pages.iter().zip(known);
        let id = contents.id_from(|page| match hashes.next() {
            Some((_, Some(hash))) => hash,
            Some((page, None)) => {
                let hash = page_hash(page);
                new.push((*page, hash));
                hash
            }
            None => page_hash(page),
        });
        (id, new)
    }

    /// Stores an image that the target made from another one. If the image is known, nothing is stored, except for this
    /// path if it is shorter than the known one. The second result tells whether the image is new.
    ///
    /// # Errors
    /// The parent is unknown, or the disk is full. Nothing has changed then.
    pub fn insert(
        &self,
        parent: ImageId,
        edge: &Edge,
        contents: &DirectoryContents,
    ) -> Result<(ImageId, bool)> {
        let (id, hashes) = self.identify_pages(contents);
        let mut store = self.lock();
        let parent = store.find(parent)?;
        let new = store.keep(id, &Origin::Made(parent, edge), contents)?;
        for (page, hash) in hashes {
            store.cache.set_hash(page, hash);
        }
        Ok((id, new))
    }

    /// Stores an image that the user gave, as a root.
    ///
    /// # Errors
    /// The disk is full. Nothing has changed then.
    pub fn insert_root(&self, name: &str, contents: &DirectoryContents) -> Result<(ImageId, bool)> {
        let id = self.identify(contents);
        let new = self.lock().keep(id, &Origin::Given(name), contents)?;
        Ok((id, new))
    }

    /// The contents of an image.
    ///
    /// # Errors
    /// It is unknown, or its contents are missing or damaged.
    pub fn load(&self, image: ImageId) -> Result<Arc<DirectoryContents>> {
        let mut store = self.lock();
        let number = store.find(image)?;
        store.load(number)
    }

    /// Makes an image again by running the target along its path. Uses stored contents only for a root that the user gave.
    ///
    /// # Errors
    /// The target cannot be run, or an edge now leads to another image.
    pub fn rebuild(&self, image: ImageId, rebuild: &mut dyn Rebuild) -> Result<DirectoryContents> {
        let (mut contents, steps) = {
            let mut store = self.lock();
            let number = store.find(image)?;
            let path = store.tree.path(number);
            let root = store.load(path[0])?;
            let mut steps = Vec::new();
            for number in &path[1..] {
                let edge = store.edge(*number)?;
                steps.extend(edge.map(|edge| (edge, store.tree.node(*number).id)));
            }
            ((*root).clone(), steps)
        };
        for (index, (edge, expected)) in steps.iter().enumerate() {
            let number = index + 1;
            let made = rebuild.run(&contents, &edge.input, &[edge.failure_point]);
            let made = made.map_err(|source| StoreError::Rebuild {
                wanted: image,
                edge: number,
                source,
            })?;
            contents = made.into_iter().next().unwrap_or_default();
            let got = contents.id();
            if got != *expected {
                return Err(StoreError::OtherImage {
                    wanted: image,
                    edge: number,
                    expected: *expected,
                    got,
                });
            }
        }
        Ok(contents)
    }

    /// Whether an image is known.
    pub fn contains(&self, image: ImageId) -> bool {
        self.lock().tree.find(image).is_some()
    }

    /// The number of images, including the empty one, which always exists.
    pub fn len(&self) -> usize {
        self.lock().tree.len()
    }

    /// Whether there is only the empty image.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// The empty image, on which a target creates its pool.
    pub fn empty() -> ImageId {
        DirectoryContents::default().id()
    }

    /// The edges of the shortest path from a root to an image.
    ///
    /// # Errors
    /// The image is unknown, or an input cannot be read.
    pub fn path(&self, image: ImageId) -> Result<Vec<Edge>> {
        let mut store = self.lock();
        let number = store.find(image)?;
        let mut edges = Vec::new();
        for number in store.tree.path(number) {
            edges.extend(store.edge(number)?);
        }
        Ok(edges)
    }

    /// The images on the shortest path from a root to an image, both included.
    ///
    /// # Errors
    /// The image is unknown.
    pub fn ancestors(&self, image: ImageId) -> Result<Vec<ImageNode>> {
        let store = self.lock();
        let path = store.tree.path(store.find(image)?);
        Ok(path
            .into_iter()
            .map(|number| store.describe(number))
            .collect())
    }

    /// The number of edges on the shortest path from a root to an image.
    ///
    /// # Errors
    /// The image is unknown.
    pub fn depth(&self, image: ImageId) -> Result<usize> {
        let store = self.lock();
        Ok(store.tree.cost(store.find(image)?).0)
    }

    /// The last edge of the shortest path to an image; `None` for a root.
    ///
    /// # Errors
    /// The image is unknown, or its input cannot be read.
    pub fn edge(&self, image: ImageId) -> Result<Option<Edge>> {
        let mut store = self.lock();
        let number = store.find(image)?;
        store.edge(number)
    }

    /// The node of an image.
    ///
    /// # Errors
    /// The image is unknown.
    pub fn node(&self, image: ImageId) -> Result<ImageNode> {
        let store = self.lock();
        Ok(store.describe(store.find(image)?))
    }

    /// The nodes of all images in the order in which they were found, the empty one first.
    pub fn nodes(&self) -> Vec<ImageNode> {
        let store = self.lock();
        let numbers = 0..store.tree.len() as NodeNumber;
        numbers.map(|number| store.describe(number)).collect()
    }

    /// The size of all files of images.
    ///
    /// # Errors
    /// They cannot be inspected.
    pub fn bytes_on_disk(&self) -> Result<u64> {
        let mut bytes = 0;
        for name in [TREE_FILE, PACK_FILE, INPUTS_FILE] {
            let path = self.directory.join(name);
            match path.metadata() {
                Ok(metadata) => bytes += metadata.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::file("inspect", &path)(error)),
            }
        }
        Ok(bytes)
    }

    /// Loads every image and compares it with its identifier; returns those that are wrong.
    pub fn verify(&self) -> Vec<(ImageId, StoreError)> {
        let mut wrong = Vec::new();
        for node in self.nodes() {
            match self.load(node.id) {
                Ok(contents) if contents.id() == node.id => {}
                Ok(_) => {
                    let path = self.directory.join(PACK_FILE);
                    let what = format!("image {} has other contents", node.id);
                    wrong.push((node.id, StoreError::damaged(&path, 0, what)));
                }
                Err(error) => wrong.push((node.id, error)),
            }
        }
        wrong
    }
}
