//! Writes and reads the contents of images.
//!
//! An image is stored as the smallest difference that is easily found: to its parent, or to the image that was last made
//! from its parent. Chains of differences are bounded. At the bound, the difference is to the beginning of the chain, or to
//! nothing; the next image finds that one as its base, and is small again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_image::{DirectoryContents, ImageId};
use rustc_hash::FxHashMap;

use crate::cache::Cache;
use crate::difference::{apply, encode};
use crate::images::ImageNode;
use crate::journal::{Journal, JournalReader};
use crate::pack::{BlobPosition, Pack};
use crate::text::{IdText, InputText};
use crate::tree::{Cost, ImageOrigin, Input, NodeNumber, OriginText, StoredText, Tree, TreeLine};
use crate::{Cut, Edge, Result, StoreError};

pub(crate) const TREE_FILE: &str = "images.jsonl";
pub(crate) const PACK_FILE: &str = "images.pack";
pub(crate) const INPUTS_FILE: &str = "inputs.pack";

/// The maximum number of differences that lead to an image.
const CHAIN_LIMIT: u32 = 32;
/// Longer inputs are stored in a pack, once for all images that they lead to.
const INLINE_BYTES: usize = 256;
const CACHE_BYTES: u64 = 256 << 20;

/// The images of a directory.
pub(crate) struct Store {
    directory: PathBuf,
    pub(crate) tree: Tree,
    pub(crate) cache: Cache,
    mode: Mode,
    /// Opened when it is first needed: a reader may be opened before the file exists.
    pack: Option<Pack>,
    inputs: Option<Pack>,
}

/// The origin of an image that is to be stored.
pub(crate) enum Origin<'a> {
    Given(&'a str),
    Made(NodeNumber, &'a Edge),
}

enum Mode {
    Write(Journal<TreeLine>),
    Read(JournalReader<TreeLine>),
}

impl Store {
    /// Opens images for writing.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Vec<Cut>)> {
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
            return Err(StoreError::damaged(&path, 0, what));
        }
        let mut cuts = Vec::new();
        Cut::note(&mut cuts, &path, lost);
        let mut open = |name, end| {
            let path = directory.join(name);
            let (pack, lost) = Pack::open(&path, end)?;
            Cut::note(&mut cuts, &path, lost);
            Ok::<_, StoreError>(Some(pack))
        };
        let store = Self {
            pack: open(PACK_FILE, tree.pack_end)?,
            inputs: open(INPUTS_FILE, tree.inputs_end)?,
            tree,
            mode: Mode::Write(journal),
            cache: Cache::new(CACHE_BYTES),
            directory: directory.to_owned(),
        };
        Ok((store, cuts))
    }

    /// Opens images of another process, without reading anything.
    pub(crate) fn unread(directory: &Path) -> Self {
        Self {
            tree: Tree::new(),
            mode: Mode::Read(JournalReader::new(&directory.join(TREE_FILE), 0)),
            pack: None,
            inputs: None,
            cache: Cache::new(CACHE_BYTES),
            directory: directory.to_owned(),
        }
    }

    /// Reads what another process has added. Lines before damage are read, and the next call returns the same
    /// error again.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        let Mode::Read(reader) = &mut self.mode else {
            return Ok(());
        };
        let path = self.directory.join(TREE_FILE);
        let mut good = reader.position();
        let mut wrong = None;
        for line in reader.read()? {
            let absorbed = line.entry.and_then(|entry| {
                let what = "a line contradicts those before it";
                (self.tree.absorb(entry)).ok_or_else(|| StoreError::damaged(&path, good, what))
            });
            match absorbed {
                Ok(()) => good = line.end,
                Err(error) => {
                    wrong = Some(error);
                    break;
                }
            }
        }
        match wrong {
            None => Ok(()),
            Some(error) => {
                self.mode = Mode::Read(JournalReader::new(&path, good));
                Err(error)
            }
        }
    }

    pub(crate) fn find(&self, image: ImageId) -> Result<NodeNumber> {
        (self.tree.find(image)).ok_or(StoreError::UnknownImage(image))
    }

    pub(crate) fn describe(&self, number: NodeNumber) -> ImageNode {
        let node = self.tree.node(number);
        let mut described = ImageNode {
            id: node.id,
            parent: None,
            name: None,
            failure_point: None,
            input_len_bytes: 0,
        };
        match &node.way {
            ImageOrigin::Empty => {}
            ImageOrigin::Given(name) => described.name = Some(name.to_string()),
            ImageOrigin::Made {
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

    pub(crate) fn edge(&mut self, number: NodeNumber) -> Result<Option<Edge>> {
        let node = self.tree.node(number);
        let ImageOrigin::Made {
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
                let pack = opened(&mut self.inputs, &self.directory, INPUTS_FILE)?;
                (pack.read(place)?).ok_or_else(|| {
                    StoreError::damaged(pack.path(), place.at, "it ends before an input does")
                })?
            }
        };
        Ok(Some(Edge {
            input,
            failure_point,
        }))
    }

    /// Stores an image if it is new, and its path if that is the shortest; returns whether the image is new.
    pub(crate) fn keep(
        &mut self,
        id: ImageId,
        origin: &Origin<'_>,
        contents: &DirectoryContents,
    ) -> Result<bool> {
        self.check_writable()?;
        match self.tree.find(id) {
            Some(image) if self.tree.cost(image) <= self.cost(origin) => Ok(false),
            Some(image) => {
                let (way, input) = self.origin_text(origin)?;
                self.append(TreeLine::Shorter { image, way }, [None, input])?;
                Ok(false)
            }
            None => {
                self.add(id, origin, contents)?;
                Ok(true)
            }
        }
    }

    fn cost(&self, origin: &Origin<'_>) -> Cost {
        match origin {
            Origin::Given(_) => (0, 0),
            Origin::Made(parent, edge) => self.tree.cost_of_child(*parent, edge.input.len() as u64),
        }
    }

    fn add(
        &mut self,
        id: ImageId,
        origin: &Origin<'_>,
        contents: &DirectoryContents,
    ) -> Result<()> {
        let bases = match origin {
            Origin::Given(_) => Vec::new(),
            Origin::Made(parent, _) => self.bases(*parent),
        };
        let (base, difference, shared) = self.difference(bases, contents);
        let place = opened(&mut self.pack, &self.directory, PACK_FILE)?.append(&difference)?;
        let stored = StoredText::new(base, place);
        let (way, input) = self
            .origin_text(origin)
            .inspect_err(|_| self.take_back([Some(place), None]))?;
        let id = IdText(id);
        self.append(TreeLine::Image { id, way, stored }, [Some(place), input])?;
        let number = (self.tree.len() - 1) as NodeNumber;
        self.cache.put(number, &Arc::new(shared));
        Ok(())
    }

    /// Stores contents of a known image again, after they were lost.
    pub(crate) fn keep_again(
        &mut self,
        image: NodeNumber,
        contents: &DirectoryContents,
    ) -> Result<()> {
        self.check_writable()?;
        let mut bases = match self.tree.node(image).way {
            ImageOrigin::Made { parent, .. } => self.bases(parent),
            ImageOrigin::Empty | ImageOrigin::Given(_) => Vec::new(),
        };
        bases.retain(|base| *base < image);
        let (base, difference, shared) = self.difference(bases, contents);
        let place = opened(&mut self.pack, &self.directory, PACK_FILE)?.append(&difference)?;
        let stored = StoredText::new(base, place);
        self.append(TreeLine::Again { image, stored }, [Some(place), None])?;
        self.cache.put(image, &Arc::new(shared));
        Ok(())
    }

    /// Whether the pack has the difference of an image.
    pub(crate) fn has_blob(&mut self, image: NodeNumber) -> Result<bool> {
        let Some(place) = self.tree.node(image).place else {
            return Ok(true);
        };
        let pack = opened(&mut self.pack, &self.directory, PACK_FILE)?;
        match pack.read(place) {
            Ok(blob) => Ok(blob.is_some()),
            Err(StoreError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The hashes of long inputs that cannot be read, with their positions.
    pub(crate) fn lost_inputs(&mut self) -> Result<FxHashMap<String, BlobPosition>> {
        let mut lost = self.tree.inputs.clone();
        let mut unreadable = Ok(());
        lost.retain(|hash, place| {
            let input = opened(&mut self.inputs, &self.directory, INPUTS_FILE)
                .and_then(|pack| pack.read(*place));
            match input {
                Ok(input) => input.is_none_or(|input| hash_of(&input) != *hash),
                Err(StoreError::Damaged { .. }) => true,
                Err(error) => {
                    unreadable = Err(error);
                    false
                }
            }
        });
        unreadable.map(|()| lost)
    }

    /// Stores a long input again where it was; returns whether that was possible.
    pub(crate) fn keep_input_again(&mut self, place: BlobPosition, input: &[u8]) -> Result<bool> {
        self.check_writable()?;
        opened(&mut self.inputs, &self.directory, INPUTS_FILE)?.write_again(place, input)
    }

    /// Whether the first bytes of the pack of inputs were wrong when it was opened.
    pub(crate) fn is_head_of_inputs_mended(&self) -> bool {
        self.inputs.as_ref().is_some_and(Pack::is_head_mended)
    }

    /// Whether the first bytes of the pack were wrong when it was opened.
    pub(crate) fn is_head_mended(&self) -> bool {
        self.pack.as_ref().is_some_and(Pack::is_head_mended)
    }

    /// Appends a line. If it cannot be written, the blobs that were written for it are removed again: one in the pack of
    /// images, one in that of inputs.
    fn append(&mut self, line: TreeLine, blobs: [Option<BlobPosition>; 2]) -> Result<()> {
        self.check_writable()?;
        let Mode::Write(journal) = &mut self.mode else {
            return Ok(());
        };
        if let Err(error) = journal.append(&line) {
            self.take_back(blobs);
            return Err(error);
        }
        let path = self.directory.join(TREE_FILE);
        (self.tree.absorb(line))
            .ok_or_else(|| StoreError::damaged(&path, 0, "a new line contradicts the tree"))
    }

    fn take_back(&mut self, blobs: [Option<BlobPosition>; 2]) {
        for (pack, blob) in [&mut self.pack, &mut self.inputs].into_iter().zip(blobs) {
            if let (Some(pack), Some(blob)) = (pack, blob) {
                pack.cut(blob);
            }
        }
    }

    /// The smallest difference to store contents with, its base, and the contents with shared pages.
    fn difference(
        &mut self,
        bases: Vec<NodeNumber>,
        contents: &DirectoryContents,
    ) -> (Option<NodeNumber>, Vec<u8>, DirectoryContents) {
        let mut shared = contents.clone();
        let mut best: Option<(NodeNumber, Vec<u8>)> = None;
        for base in bases {
            // An image that cannot be loaded is not a base, but also no reason to fail.
            let Ok(from) = self.load(base) else {
                continue;
            };
            let difference = encode(&from, &mut shared);
            // Parents are slightly preferred, because siblings make chains longer.
            let is_better = |best: &(_, Vec<u8>)| 4 * difference.len() < 3 * best.1.len();
            if best.as_ref().is_none_or(is_better) {
                best = Some((base, difference));
            }
        }
        match best {
            // The empty image is not a base: the difference to it is the whole image.
            Some((base, difference)) if base != 0 => (Some(base), difference, shared),
            Some((_, whole)) => (None, whole, shared),
            None => {
                let whole = encode(&DirectoryContents::default(), &mut shared);
                (None, whole, shared)
            }
        }
    }

    /// Images that are probably similar to a child of this one.
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

    /// The origin for a line, and the position of a long input that was stored for it.
    fn origin_text(&mut self, origin: &Origin<'_>) -> Result<(OriginText, Option<BlobPosition>)> {
        let (parent, edge) = match origin {
            Origin::Given(name) => return Ok((OriginText::given(name), None)),
            Origin::Made(parent, edge) => (*parent, *edge),
        };
        let mut new = None;
        let input = if edge.input.len() <= INLINE_BYTES {
            InputText::of(&edge.input)
        } else {
            let hash = hash_of(&edge.input);
            let place = match self.tree.inputs.get(&hash) {
                Some(place) => *place,
                None => {
                    let inputs = opened(&mut self.inputs, &self.directory, INPUTS_FILE)?;
                    *new.insert(inputs.append(&edge.input)?)
                }
            };
            InputText::Stored {
                at: place.at,
                len: place.len,
                input_len: edge.input.len() as u64,
                hash,
            }
        };
        let way = OriginText {
            parent: Some(parent),
            input: Some(input),
            failure_point: edge.failure_point,
            name: None,
        };
        Ok((way, new))
    }

    fn check_writable(&self) -> Result<()> {
        match self.mode {
            Mode::Write(_) => Ok(()),
            Mode::Read(_) => Err(StoreError::ReadOnly {
                path: self.directory.clone(),
            }),
        }
    }

    pub(crate) fn load(&mut self, wanted: NodeNumber) -> Result<Arc<DirectoryContents>> {
        if let Some(contents) = self.cache.get(wanted) {
            return Ok(contents);
        }
        let mut chain = Vec::new();
        let mut at = Some(wanted);
        let mut contents = DirectoryContents::default();
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
            let pack = opened(&mut self.pack, &self.directory, PACK_FILE)?;
            let difference = pack.read(place)?.ok_or_else(|| StoreError::Missing {
                image,
                path: pack.path().to_owned(),
            })?;
            apply(&mut contents, &difference).ok_or_else(|| {
                let what = format!("the difference to image {image} does not fit");
                StoreError::damaged(pack.path(), place.at, what)
            })?;
            // The beginning of a chain is cached, too: images that are loaded later share its pages.
            if node.base.is_none() && number != wanted {
                self.cache.put(number, &Arc::new(contents.clone()));
            }
        }
        let contents = Arc::new(contents);
        self.cache.put(wanted, &contents);
        Ok(contents)
    }
}

/// The name of a long input in the tree.
pub(crate) fn hash_of(input: &[u8]) -> String {
    powerfail_finding::hex(&blake3::hash(input).as_bytes()[..16])
}

fn opened<'a>(pack: &'a mut Option<Pack>, directory: &Path, name: &str) -> Result<&'a mut Pack> {
    match pack {
        Some(pack) => Ok(pack),
        none => Ok(none.insert(Pack::follow(&directory.join(name))?)),
    }
}
