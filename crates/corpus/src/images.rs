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

use powerfail_image::{Contents, ImageId};

use crate::cache::Cache;
use crate::difference::{apply, encode};
use crate::journal::{Journal, JournalReader};
use crate::pack::{Pack, Place};
use crate::text::{IdText, InputText, hex};
use crate::tree::{Input, NodeNumber, StoredText, Tree, TreeLine, Way, WayText};
use crate::{CorpusError, Cut, Edge, Rebuild, Result};

const TREE_FILE: &str = "images.jsonl";
const PACK_FILE: &str = "images.pack";
const INPUTS_FILE: &str = "inputs.pack";

/// Differences between an image and a whole one, at most.
const CHAIN_LIMIT: u32 = 32;
/// Inputs that are longer are in a pack, once for all images that came of them.
const INLINE_BYTES: usize = 256;
const CACHE_BYTES: u64 = 256 << 20;

/// The images of a campaign. All threads may use it at once.
pub struct Images {
    directory: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    tree: Tree,
    mode: Mode,
    pack: Option<Pack>,
    inputs: Option<Pack>,
    cache: Cache,
}

enum Mode {
    Write(Journal<TreeLine>),
    Read(JournalReader<TreeLine>),
}

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
        let mut tree = Tree::new();
        let path = directory.join(TREE_FILE);
        let mut wrong = None;
        let mut lines = 0_u64;
        let (journal, lost) = Journal::open(&path, |line| {
            lines += 1;
            if wrong.is_none() && tree.absorb(line).is_none() {
                wrong = Some(lines);
            }
        })?;
        if let Some(line) = wrong {
            let what = format!("line {line} contradicts those before it");
            return Err(CorpusError::damaged(&path, 0, what));
        }
        let mut cuts = Vec::new();
        Cut::note(&mut cuts, &path, lost);
        let mut open = |name, end| {
            let path = directory.join(name);
            let (pack, lost) = Pack::open(&path, end)?;
            Cut::note(&mut cuts, &path, lost);
            Ok(Some(pack))
        };
        let inner = Inner {
            pack: open(PACK_FILE, tree.pack_end)?,
            inputs: open(INPUTS_FILE, tree.inputs_end)?,
            tree,
            mode: Mode::Write(journal),
            cache: Cache::new(CACHE_BYTES),
        };
        Ok((Self::of(directory, inner), cuts))
    }

    /// Opens images that another process may be adding to, to read them. [`Images::refresh`] sees what was
    /// added since.
    ///
    /// # Errors
    /// As [`Images::refresh`].
    pub fn follow(directory: &Path) -> Result<Self> {
        let inner = Inner {
            tree: Tree::new(),
            mode: Mode::Read(JournalReader::new(&directory.join(TREE_FILE), 0)),
            pack: None,
            inputs: None,
            cache: Cache::new(CACHE_BYTES),
        };
        let images = Self::of(directory, inner);
        images.refresh()?;
        Ok(images)
    }

    fn of(directory: &Path, inner: Inner) -> Self {
        Self {
            directory: directory.to_owned(),
            inner: Mutex::new(inner),
        }
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Everything that is changed is changed when it is on disk already, so that a panic leaves nothing half
    /// done.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what another process has added. Gives the number of images that are new.
    ///
    /// # Errors
    /// The tree cannot be read, or is damaged: numbers of images behind the damage would be wrong.
    pub fn refresh(&self) -> Result<usize> {
        let mut inner = self.lock();
        let Inner { tree, mode, .. } = &mut *inner;
        let Mode::Read(reader) = mode else {
            return Ok(0);
        };
        let before = tree.len();
        let mut at = reader.position();
        for line in reader.read()? {
            if tree.absorb(line.entry?).is_none() {
                let path = self.directory.join(TREE_FILE);
                let what = "a line contradicts those before it";
                return Err(CorpusError::damaged(&path, at, what));
            }
            at = line.end;
        }
        Ok(tree.len() - before)
    }

    /// Memory for contents that were used lately; 256 MiB if nothing is said.
    pub fn set_cache_limit(&self, limit_bytes: u64) {
        self.lock().cache.set_limit(limit_bytes);
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
        let id = contents.id();
        let mut inner = self.lock();
        let parent = inner.find(parent)?;
        let new = match inner.tree.find(id) {
            Some(known) => inner.offer(known, parent, edge).map(|()| false),
            None => inner.add(id, Some((parent, edge)), None, contents, &self.directory),
        }?;
        Ok((id, new))
    }

    /// Keeps an image that is given: a root of its own.
    ///
    /// # Errors
    /// There is no room. Then everything is as before.
    pub fn insert_root(&self, name: &str, contents: &Contents) -> Result<(ImageId, bool)> {
        let id = contents.id();
        let mut inner = self.lock();
        let new = match inner.tree.find(id) {
            Some(known) if inner.tree.cost(known).0 == 0 => false,
            Some(image) => {
                let way = WayText::given(name);
                inner.append(TreeLine::Shorter { image, way }, &self.directory)?;
                false
            }
            None => inner.add(id, None, Some(name), contents, &self.directory)?,
        };
        Ok((id, new))
    }

    /// What an image holds.
    ///
    /// # Errors
    /// It is unknown, or its contents are missing or damaged.
    pub fn load(&self, image: ImageId) -> Result<Arc<Contents>> {
        let mut inner = self.lock();
        let number = inner.find(image)?;
        inner.load(number, &self.directory)
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
        let mut inner = self.lock();
        let number = inner.find(image)?;
        inner.store_again(number, &contents, &self.directory)
    }

    /// Makes an image again by running the program along its path. Contents on disk are not used, but for a
    /// root that was given.
    ///
    /// # Errors
    /// The program cannot be run, or an edge leads elsewhere now.
    pub fn rebuild(&self, image: ImageId, rebuild: &mut dyn Rebuild) -> Result<Contents> {
        let (mut contents, steps) = {
            let mut inner = self.lock();
            let number = inner.find(image)?;
            let path = inner.tree.path(number);
            let root = inner.load(path[0], &self.directory)?;
            let mut steps = Vec::new();
            for number in &path[1..] {
                let edge = inner.edge(*number, &self.directory)?;
                steps.extend(edge.map(|edge| (edge, inner.tree.node(*number).id)));
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
        let mut inner = self.lock();
        let number = inner.find(image)?;
        let mut edges = Vec::new();
        for number in inner.tree.path(number) {
            edges.extend(inner.edge(number, &self.directory)?);
        }
        Ok(edges)
    }

    /// The images on the shortest way from a root to an image, both included.
    ///
    /// # Errors
    /// The image is unknown.
    pub fn ancestors(&self, image: ImageId) -> Result<Vec<ImageNode>> {
        let inner = self.lock();
        let path = inner.tree.path(inner.find(image)?);
        Ok(path
            .into_iter()
            .map(|number| inner.describe(number))
            .collect())
    }

    /// How many edges the shortest way from a root to an image has.
    ///
    /// # Errors
    /// The image is unknown.
    pub fn depth(&self, image: ImageId) -> Result<usize> {
        let inner = self.lock();
        Ok(inner.tree.cost(inner.find(image)?).0)
    }

    /// The last edge of the shortest way to an image; `None` for a root.
    ///
    /// # Errors
    /// The image is unknown, or its input cannot be read.
    pub fn edge(&self, image: ImageId) -> Result<Option<Edge>> {
        let mut inner = self.lock();
        let number = inner.find(image)?;
        inner.edge(number, &self.directory)
    }

    /// What the tree says of an image.
    ///
    /// # Errors
    /// The image is unknown.
    pub fn node(&self, image: ImageId) -> Result<ImageNode> {
        let inner = self.lock();
        Ok(inner.describe(inner.find(image)?))
    }

    /// What the tree says of all images, in the order in which they were found, the empty one first.
    pub fn nodes(&self) -> Vec<ImageNode> {
        let inner = self.lock();
        let numbers = 0..inner.tree.len() as NodeNumber;
        numbers.map(|number| inner.describe(number)).collect()
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

impl WayText {
    fn given(name: &str) -> Self {
        Self {
            parent: None,
            input: None,
            failure_point: None,
            name: Some(name.to_owned()),
        }
    }
}

impl Inner {
    fn find(&self, image: ImageId) -> Result<NodeNumber> {
        (self.tree.find(image)).ok_or(CorpusError::UnknownImage(image))
    }

    fn describe(&self, number: NodeNumber) -> ImageNode {
        let node = self.tree.node(number);
        let mut described = ImageNode {
            id: node.id,
            parent: None,
            name: None,
            failure_point: None,
            input_len_bytes: 0,
        };
        match &node.way {
            Way::Empty => {}
            Way::Given(name) => described.name = Some(name.to_string()),
            Way::Made {
                parent,
                input_len,
                failure_point,
                ..
            } => {
                described.parent = Some(self.tree.node(*parent).id);
                described.failure_point = *failure_point;
                described.input_len_bytes = *input_len;
            }
        }
        described
    }

    fn edge(&mut self, number: NodeNumber, directory: &Path) -> Result<Option<Edge>> {
        let node = self.tree.node(number);
        let Way::Made {
            input,
            failure_point,
            ..
        } = &node.way
        else {
            return Ok(None);
        };
        let failure_point = *failure_point;
        let input = match input {
            Input::Here(bytes) => bytes.to_vec(),
            Input::Stored(place) => {
                let place = *place;
                let pack = writable_or_followed(&mut self.inputs, directory, INPUTS_FILE)?;
                (pack.read(place)?).ok_or_else(|| {
                    CorpusError::damaged(pack.path(), place.at, "it ends before an input does")
                })?
            }
        };
        Ok(Some(Edge {
            input,
            failure_point,
        }))
    }

    /// Takes another way to a known image if it is shorter.
    fn offer(&mut self, image: NodeNumber, parent: NodeNumber, edge: &Edge) -> Result<()> {
        let way = Way::Made {
            parent,
            input: Input::Stored(Place { at: 0, len: 0 }),
            input_len: edge.input.len() as u64,
            failure_point: edge.failure_point,
        };
        if !self.tree.is_shorter(image, &way) {
            return Ok(());
        }
        let (way, input) = self.way_text(parent, edge)?;
        let stored = self.append(TreeLine::Shorter { image, way }, Path::new(""));
        if stored.is_err() {
            self.cut_input(input);
        }
        stored
    }

    /// Keeps an image that is not known.
    fn add(
        &mut self,
        id: ImageId,
        made: Option<(NodeNumber, &Edge)>,
        name: Option<&str>,
        contents: &Contents,
        directory: &Path,
    ) -> Result<bool> {
        self.check_writable(directory)?;
        let (base, difference, shared) =
            self.difference(made.map(|(parent, _)| parent), contents, directory);
        let pack = writable_or_followed(&mut self.pack, directory, PACK_FILE)?;
        let place = pack.append(&difference)?;
        let stored = StoredText {
            base,
            at: place.at,
            len: place.len,
        };
        let way = match made {
            Some((parent, edge)) => self.way_text(parent, edge),
            None => Ok((WayText::given(name.unwrap_or_default()), None)),
        };
        let (way, input) = match way {
            Ok(way) => way,
            Err(error) => {
                self.cut_pack(place);
                return Err(error);
            }
        };
        let id = IdText(id);
        if let Err(error) = self.append(TreeLine::Image { id, way, stored }, directory) {
            self.cut_pack(place);
            self.cut_input(input);
            return Err(error);
        }
        let number = (self.tree.len() - 1) as NodeNumber;
        self.cache.put(number, &Arc::new(shared));
        Ok(true)
    }

    fn cut_pack(&mut self, place: Place) {
        if let Some(pack) = &mut self.pack {
            pack.cut(place);
        }
    }

    fn cut_input(&mut self, place: Option<Place>) {
        if let (Some(inputs), Some(place)) = (&mut self.inputs, place) {
            inputs.cut(place);
        }
    }

    /// The smallest difference by which contents can be stored, the base it is to, and the contents with
    /// pages shared.
    fn difference(
        &mut self,
        parent: Option<NodeNumber>,
        contents: &Contents,
        directory: &Path,
    ) -> (Option<NodeNumber>, Vec<u8>, Contents) {
        let mut shared = contents.clone();
        let mut best: Option<(NodeNumber, Vec<u8>)> = None;
        for base in parent.map(|parent| self.bases(parent)).unwrap_or_default() {
            // What cannot be loaded is no base, and no reason not to keep an image.
            let Ok(from) = self.load(base, directory) else {
                continue;
            };
            shared.share_with(&from);
            let difference = encode(&from, &shared);
            // Parents are preferred a little: siblings make chains longer.
            let is_better = |best: &(_, Vec<u8>)| 4 * difference.len() < 3 * best.1.len();
            if best.as_ref().is_none_or(is_better) {
                best = Some((base, difference));
            }
        }
        match best {
            // The empty image is no base: the difference to it is the whole image.
            Some((base, difference)) if base != 0 => (Some(base), difference, shared),
            Some((_, whole)) => (None, whole, shared),
            None => {
                let whole = encode(&Contents::default(), &shared);
                (None, whole, shared)
            }
        }
    }

    /// Images that a child of this one is probably like.
    fn bases(&self, parent: NodeNumber) -> Vec<NodeNumber> {
        let short = |number: &NodeNumber| self.tree.node(*number).chain < CHAIN_LIMIT;
        let near = [Some(parent), self.tree.node(parent).last_child];
        let near: Vec<_> = near.into_iter().flatten().filter(short).collect();
        if !near.is_empty() {
            return near;
        }
        let mut first = parent;
        while let Some(base) = self.tree.node(first).base {
            first = base;
        }
        vec![first, 0]
    }

    /// How a way is written, and the long input that had to be stored for it.
    fn way_text(&mut self, parent: NodeNumber, edge: &Edge) -> Result<(WayText, Option<Place>)> {
        let mut stored = None;
        let input = if edge.input.len() <= INLINE_BYTES {
            InputText::of(&edge.input)
        } else {
            let hash = hex(&blake3::hash(&edge.input).as_bytes()[..16]);
            let place = match self.tree.inputs.get(&hash) {
                Some(place) => *place,
                None => {
                    let inputs = writable_or_followed(&mut self.inputs, Path::new(""), "")?;
                    *stored.insert(inputs.append(&edge.input)?)
                }
            };
            InputText::Stored {
                at: place.at,
                len: place.len,
                input_len: edge.input.len() as u64,
                hash,
            }
        };
        let way = WayText {
            parent: Some(parent),
            input: Some(input),
            failure_point: edge.failure_point,
            name: None,
        };
        Ok((way, stored))
    }

    fn check_writable(&self, directory: &Path) -> Result<()> {
        match self.mode {
            Mode::Write(_) => Ok(()),
            Mode::Read(_) => Err(CorpusError::ReadOnly {
                path: directory.to_owned(),
            }),
        }
    }

    fn append(&mut self, line: TreeLine, directory: &Path) -> Result<()> {
        let Mode::Write(journal) = &mut self.mode else {
            return self.check_writable(directory);
        };
        journal.append(&line)?;
        let path = journal.path().to_owned();
        (self.tree.absorb(line))
            .ok_or_else(|| CorpusError::damaged(&path, 0, "a new line contradicts the tree"))
    }

    fn load(&mut self, number: NodeNumber, directory: &Path) -> Result<Arc<Contents>> {
        if let Some(contents) = self.cache.get(number) {
            return Ok(contents);
        }
        let mut chain = Vec::new();
        let mut at = Some(number);
        let mut contents = Contents::default();
        while let Some(number) = at {
            if let Some(cached) = self.cache.get(number) {
                contents = (*cached).clone();
                break;
            }
            chain.push(number);
            at = self.tree.node(number).base;
        }
        for number in chain.into_iter().rev() {
            let node = self.tree.node(number);
            let (image, Some(place)) = (node.id, node.place) else {
                continue;
            };
            let pack = writable_or_followed(&mut self.pack, directory, PACK_FILE)?;
            let difference = pack.read(place)?.ok_or_else(|| CorpusError::Missing {
                image,
                path: pack.path().to_owned(),
            })?;
            apply(&mut contents, &difference).ok_or_else(|| {
                let what = format!("the difference to image {image} does not fit");
                CorpusError::damaged(pack.path(), place.at, what)
            })?;
        }
        let contents = Arc::new(contents);
        self.cache.put(number, &contents);
        Ok(contents)
    }

    fn store_again(
        &mut self,
        image: NodeNumber,
        contents: &Contents,
        directory: &Path,
    ) -> Result<Arc<Contents>> {
        self.check_writable(directory)?;
        let pack = writable_or_followed(&mut self.pack, directory, PACK_FILE)?;
        let place = pack.append(&encode(&Contents::default(), contents))?;
        let stored = StoredText {
            base: None,
            at: place.at,
            len: place.len,
        };
        if let Err(error) = self.append(TreeLine::Again { image, stored }, directory) {
            self.cut_pack(place);
            return Err(error);
        }
        let contents = Arc::new(contents.clone());
        self.cache.put(image, &contents);
        Ok(contents)
    }
}

/// A pack, which a reader opens when it needs it first: it may not be there before.
fn writable_or_followed<'a>(
    pack: &'a mut Option<Pack>,
    directory: &Path,
    name: &str,
) -> Result<&'a mut Pack> {
    match pack {
        Some(pack) => Ok(pack),
        none => Ok(none.insert(Pack::follow(&directory.join(name))?)),
    }
}
