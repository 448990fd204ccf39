//! Images of pools in a tree whose edges are (input, failure point).
//!
//! An image is stored once, as the difference to another one that is much like it: to its parent, or to the
//! one that was made from its parent before it. Chains of differences are bounded: at the bound, the
//! difference is to the beginning of the chain, or to nothing. All of it is appended: contents to
//! `images.pack`, long inputs to `inputs.pack`, then one line to `images.jsonl`, with which the image is kept.
//!
//! The lines alone, with `inputs.pack`, are enough to make every image again by running the program along the
//! edges; only images that were given need the pack.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use powerfail_image::{Contents, ImageId, PageBytes, PageHash, page_hash};

use crate::store::{INPUTS_FILE, Origin, PACK_FILE, Store, TREE_FILE};
use crate::tree::NodeNumber;
use crate::{CorpusError, Cut, Edge, Rebuild, Result};

/// The images of a campaign. All threads may use it at once.
pub struct Images {
    directory: PathBuf,
    store: Mutex<Store>,
}

type Hashes<'a> = Vec<(&'a Arc<PageBytes>, PageHash)>;

/// What the tree says of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageNode {
    /// The image.
    pub id: ImageId,
    /// What it was made from, on the shortest way. `None`: it is a root.
    pub parent: Option<ImageId>,
    /// Under which name it was given, if it was.
    pub name: Option<String>,
    /// Where the program was interrupted; `None` for roots too.
    pub failure_point: Option<u64>,
    /// Bytes of the input on the edge to it.
    pub input_len_bytes: u64,
}

impl Images {
    /// Opens the images of a directory, and makes them if there are none. The caller holds the lock of the
    /// directory. Also gives what a kill had left and was cut off.
    ///
    /// # Errors
    /// Something cannot be read or written, or is damaged where no kill tears it.
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

    /// The same before anything is read, for directories that may be damaged.
    pub(crate) fn unread(directory: &Path) -> Self {
        Self::of(directory, Store::unread(directory))
    }

    fn of(directory: &Path, store: Store) -> Self {
        Self {
            directory: directory.to_owned(),
            store: Mutex::new(store),
        }
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Everything that is changed is changed when it is on disk already, so that a panic leaves nothing half
    /// done.
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what another process has added. Gives the number of images that are new.
    ///
    /// # Errors
    /// The tree cannot be read, or is damaged. Images before the damage are known, those behind it are not.
    pub fn refresh(&self) -> Result<usize> {
        let mut store = self.lock();
        let before = store.tree.len();
        store.refresh()?;
        Ok(store.tree.len() - before)
    }

    /// Memory for contents that were used lately; 256 MiB if nothing is said.
    pub fn set_cache_limit(&self, limit_bytes: u64) {
        self.lock().cache.set_limit(limit_bytes);
    }

    /// Memory that contents take now.
    pub fn cache_bytes(&self) -> u64 {
        self.lock().cache.used_bytes()
    }

    /// What identifies contents, whether they are kept or not. This is faster than [`Contents::id`] where pages
    /// are shared with images that were used lately: those are not hashed again.
    pub fn identify(&self, contents: &Contents) -> ImageId {
        let (id, hashes) = self.identify_pages(contents);
        let mut store = self.lock();
        for (page, hash) in hashes {
            store.cache.set_hash(page, hash);
        }
        id
    }

    /// The same, with the hashes that had to be made for it. Nobody waits while they are made.
    fn identify_pages<'a>(&self, contents: &'a Contents) -> (ImageId, Hashes<'a>) {
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

    /// Keeps an image that the program made from another one. If it is known, nothing is stored, but if this
    /// way to it is shorter, it is kept instead of the one that was known. The second result says whether it
    /// is new.
    ///
    /// # Errors
    /// The parent is unknown, or there is no room. Then everything is as before.
    pub fn insert(
        &self,
        parent: ImageId,
        edge: &Edge,
        contents: &Contents,
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

    /// Keeps an image that is given: a root of its own.
    ///
    /// # Errors
    /// There is no room. Then everything is as before.
    pub fn insert_root(&self, name: &str, contents: &Contents) -> Result<(ImageId, bool)> {
        let id = self.identify(contents);
        let new = self.lock().keep(id, &Origin::Given(name), contents)?;
        Ok((id, new))
    }

    /// What an image holds.
    ///
    /// # Errors
    /// It is unknown, or its contents are missing or damaged.
    pub fn load(&self, image: ImageId) -> Result<Arc<Contents>> {
        let mut store = self.lock();
        let number = store.find(image)?;
        store.load(number)
    }

    /// The same, and if the contents are missing or damaged, they are made again and kept.
    ///
    /// # Errors
    /// As [`Images::rebuild`].
    pub fn load_or_rebuild(
        &self,
        image: ImageId,
        rebuild: &mut dyn Rebuild,
    ) -> Result<Arc<Contents>> {
        match self.load(image) {
            Err(CorpusError::Missing { .. } | CorpusError::Damaged { .. }) => {}
            loaded => return loaded,
        }
        let contents = self.rebuild(image, rebuild)?;
        let mut store = self.lock();
        let number = store.find(image)?;
        store.keep_again(number, &contents)
    }

    /// Makes an image again by running the program along its path. Contents on disk are not used, but for a
    /// root that was given.
    ///
    /// # Errors
    /// The program cannot be run, or an edge leads elsewhere now.
    pub fn rebuild(&self, image: ImageId, rebuild: &mut dyn Rebuild) -> Result<Contents> {
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
            contents = (rebuild.run(&contents, edge)).map_err(|source| CorpusError::Rebuild {
                wanted: image,
                edge: number,
                source,
            })?;
            let got = contents.id();
            if got != *expected {
                return Err(CorpusError::OtherImage {
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

    /// The number of images; the empty one is always there and counts.
    pub fn len(&self) -> usize {
        self.lock().tree.len()
    }

    /// Whether nothing but the empty image is there.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// The empty image, on which a program makes its pool.
    pub fn empty() -> ImageId {
        Contents::default().id()
    }

    /// The edges of the shortest way from a root to an image.
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

    /// The images on the shortest way from a root to an image, both included.
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

    /// How many edges the shortest way from a root to an image has.
    ///
    /// # Errors
    /// The image is unknown.
    pub fn depth(&self, image: ImageId) -> Result<usize> {
        let store = self.lock();
        Ok(store.tree.cost(store.find(image)?).0)
    }

    /// The last edge of the shortest way to an image; `None` for a root.
    ///
    /// # Errors
    /// The image is unknown, or its input cannot be read.
    pub fn edge(&self, image: ImageId) -> Result<Option<Edge>> {
        let mut store = self.lock();
        let number = store.find(image)?;
        store.edge(number)
    }

    /// What the tree says of an image.
    ///
    /// # Errors
    /// The image is unknown.
    pub fn node(&self, image: ImageId) -> Result<ImageNode> {
        let store = self.lock();
        Ok(store.describe(store.find(image)?))
    }

    /// What the tree says of all images, in the order in which they were found, the empty one first.
    pub fn nodes(&self) -> Vec<ImageNode> {
        let store = self.lock();
        let numbers = 0..store.tree.len() as NodeNumber;
        numbers.map(|number| store.describe(number)).collect()
    }

    /// Bytes of all files of images.
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
                Err(error) => return Err(CorpusError::file("inspect", &path)(error)),
            }
        }
        Ok(bytes)
    }

    /// Loads every image and compares it with its identifier. Gives those that are not what they should be.
    pub fn verify(&self) -> Vec<(ImageId, CorpusError)> {
        let mut wrong = Vec::new();
        for node in self.nodes() {
            match self.load(node.id) {
                Ok(contents) if contents.id() == node.id => {}
                Ok(_) => {
                    let path = self.directory.join(PACK_FILE);
                    let what = format!("image {} is another one", node.id);
                    wrong.push((node.id, CorpusError::damaged(&path, 0, what)));
                }
                Err(error) => wrong.push((node.id, error)),
            }
        }
        wrong
    }
}
