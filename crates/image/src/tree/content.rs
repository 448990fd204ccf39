//! The bytes of a file, in pages that copies of it share.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use powerfail_trace::PAGE_BYTES;

use crate::page::{PAGE, Page};
use crate::private_file::PageSource;

const CHUNK_PAGES: usize = 64;
const CHUNK: u64 = CHUNK_PAGES as u64;

/// Neighbouring pages; one that is absent is zero.
#[derive(Clone, Debug)]
struct Chunk {
    pages: [Option<Arc<Page>>; CHUNK_PAGES],
    /// The digest of each page, once it was asked for; `None` is one of zeros. Contents of one origin differ in few pages.
    page_digests: [OnceLock<Option<[u8; 32]>>; CHUNK_PAGES],
    /// The digest of all of them, once it was asked for.
    digest: OnceLock<[u8; 32]>,
}

impl Chunk {
    fn empty() -> Self {
        Self {
            pages: [const { None }; CHUNK_PAGES],
            page_digests: [const { OnceLock::new() }; CHUNK_PAGES],
            digest: OnceLock::new(),
        }
    }

    /// A page, to change it.
    fn page_mut(&mut self, place: usize) -> &mut Option<Arc<Page>> {
        self.digest = OnceLock::new();
        self.page_digests[place] = OnceLock::new();
        &mut self.pages[place]
    }

    /// Equal for chunks with equal bytes: pages of zeros do not count.
    fn digest(&self) -> &[u8; 32] {
        self.digest.get_or_init(|| {
            let mut hasher = blake3::Hasher::new();
            for (number, (page, digest)) in (0_u64..).zip(self.pages.iter().zip(&self.page_digests))
            {
                let digest = digest.get_or_init(|| {
                    let page = page.as_deref().filter(|page| !page.is_zero())?;
                    Some(blake3::hash(&page.0).into())
                });
                if let Some(digest) = digest {
                    hasher.update(&number.to_le_bytes());
                    hasher.update(digest);
                }
            }
            *hasher.finalize().as_bytes()
        })
    }

    fn is_zero(&self) -> bool {
        self.pages.iter().flatten().all(|page| page.is_zero())
    }
}

/// The bytes of a file. Copies share pages until one of them changes, so that a copy is cheap and two contents of one
/// origin are compared in the time of their differences.
///
/// ```
/// use powerfail_image::FileContent;
///
/// let mut old = FileContent::default();
/// old.write(0, b"hello");
/// let mut new = old.clone();
/// new.write(7, b"there");
/// new.set_len(9);
/// assert_eq!(old.to_vec(), b"hello");
/// assert_eq!(new.to_vec(), b"hello\0\0th");
/// ```
#[derive(Clone, Debug, Default)]
pub struct FileContent {
    len_bytes: u64,
    /// No page lies beyond the end, and bytes beyond the end are zero.
    chunks: BTreeMap<u64, Arc<Chunk>>,
}

impl FileContent {
    /// How long the file is.
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether the file has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Writes bytes. The file becomes longer if they do not fit.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.len_bytes = self.len_bytes.max(offset + bytes.len() as u64);
        let mut rest = bytes;
        let mut position = offset;
        while !rest.is_empty() {
            let start = (position % PAGE) as usize;
            let (piece, later) = rest.split_at((PAGE_BYTES - start).min(rest.len()));
            let number = position / PAGE;
            let is_zero = piece.iter().all(|byte| *byte == 0);
            if !(is_zero && self.page(number).is_none()) {
                self.page_mut(number).0[start..start + piece.len()].copy_from_slice(piece);
            }
            position += piece.len() as u64;
            rest = later;
        }
    }

    /// Makes bytes zero, as far as the file reaches.
    pub fn zero(&mut self, range: Range<u64>) {
        let end = range.end.min(self.len_bytes);
        self.clear(range.start..end);
    }

    /// Cuts the file or extends it with zeros.
    pub fn set_len(&mut self, len_bytes: u64) {
        if len_bytes < self.len_bytes {
            self.clear(len_bytes..self.len_bytes);
        }
        self.len_bytes = len_bytes;
    }

    /// Takes bytes out; what follows moves to their place.
    pub fn collapse(&mut self, range: Range<u64>) {
        let tail = self.read_range(range.end..self.len_bytes);
        self.set_len(range.start);
        self.write(range.start, &tail);
    }

    /// Puts zeros in; what follows moves behind them.
    pub fn insert(&mut self, offset: u64, len_bytes: u64) {
        let tail = self.read_range(offset..self.len_bytes);
        self.set_len(offset);
        self.set_len(offset + len_bytes);
        self.write(offset + len_bytes, &tail);
    }

    /// Fills `out` with the bytes from `offset` on; beyond the end they are zero.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let mut position = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let start = (position % PAGE) as usize;
            let (piece, later) = rest.split_at_mut((PAGE_BYTES - start).min(rest.len()));
            match self.page(position / PAGE) {
                Some(page) => piece.copy_from_slice(&page.0[start..start + piece.len()]),
                None => piece.fill(0),
            }
            position += piece.len() as u64;
            rest = later;
        }
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.read_range(0..self.len_bytes)
    }

    /// Whether both have the same bytes.
    pub fn is_same(&self, other: &Self) -> bool {
        self.len_bytes == other.len_bytes && self.differing_pages(other).is_empty()
    }

    /// Adds length and bytes to a digest, in the time of what was not asked for before.
    pub(crate) fn add_to(&self, hasher: &mut blake3::Hasher) {
        hasher.update(&self.len_bytes.to_le_bytes());
        for (number, chunk) in self.chunks.iter().filter(|(_, chunk)| !chunk.is_zero()) {
            hasher.update(&number.to_le_bytes());
            hasher.update(chunk.digest());
        }
        hasher.update(&u64::MAX.to_le_bytes());
    }

    fn read_range(&self, range: Range<u64>) -> Vec<u8> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
        let mut bytes = vec![0; len];
        self.read(range.start, &mut bytes);
        bytes
    }

    /// The pages in which two contents differ, ascending. Lengths are not compared.
    pub(crate) fn differing_pages(&self, other: &Self) -> Vec<u64> {
        let numbers: BTreeSet<u64> = { self.chunks.keys() }
            .chain(other.chunks.keys())
            .copied()
            .collect();
        let mut pages = Vec::new();
        for number in numbers {
            let (one, two) = (self.chunks.get(&number), other.chunks.get(&number));
            if let (Some(one), Some(two)) = (one, two)
                && Arc::ptr_eq(one, two)
            {
                continue;
            }
            for place in 0..CHUNK_PAGES {
                let page =
                    |chunk: Option<&'_ Arc<Chunk>>| chunk.and_then(|it| it.pages[place].clone());
                let differs = match (page(one), page(two)) {
                    (None, None) => false,
                    (Some(page), None) | (None, Some(page)) => !page.is_zero(),
                    (Some(one), Some(two)) => !Arc::ptr_eq(&one, &two) && one.0 != two.0,
                };
                if differs {
                    pages.push(number * CHUNK + place as u64);
                }
            }
        }
        pages
    }

    /// A page that may not be zero.
    pub(crate) fn page(&self, number: u64) -> Option<&Page> {
        let chunk = self.chunks.get(&(number / CHUNK))?;
        chunk.pages[(number % CHUNK) as usize].as_deref()
    }

    fn page_mut(&mut self, number: u64) -> &mut Page {
        let chunk = self.chunks.entry(number / CHUNK);
        let chunk = Arc::make_mut(chunk.or_insert_with(|| Arc::new(Chunk::empty())));
        let page = chunk.page_mut((number % CHUNK) as usize);
        Arc::make_mut(page.get_or_insert_with(|| Arc::new(Page::ZERO)))
    }

    fn drop_page(&mut self, number: u64) {
        if self.page(number).is_some()
            && let Some(chunk) = self.chunks.get_mut(&(number / CHUNK))
        {
            *Arc::make_mut(chunk).page_mut((number % CHUNK) as usize) = None;
        }
    }

    /// Makes bytes zero and gives up pages that are zero as a whole.
    fn clear(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let (first, last) = (range.start.div_ceil(PAGE), range.end / PAGE);
        let mut chunks: Vec<u64> = Vec::new();
        if first < last {
            let touched = self.chunks.range(first / CHUNK..=(last - 1) / CHUNK);
            chunks.extend(touched.map(|(number, _)| *number));
        }
        for chunk in chunks {
            if first <= chunk * CHUNK && (chunk + 1) * CHUNK <= last {
                self.chunks.remove(&chunk);
                continue;
            }
            for number in first.max(chunk * CHUNK)..last.min((chunk + 1) * CHUNK) {
                self.drop_page(number);
            }
        }
        let mut clear_part = |number: u64, from: u64, to: u64| {
            if from < to && self.page(number).is_some() {
                self.page_mut(number).0[from as usize..to as usize].fill(0);
            }
        };
        if first > last {
            // Both ends lie within one page.
            clear_part(last, range.start % PAGE, range.end % PAGE);
        } else {
            if !range.start.is_multiple_of(PAGE) {
                clear_part(first - 1, range.start % PAGE, PAGE);
            }
            clear_part(last, 0, range.end % PAGE);
        }
    }
}

impl<'a> PageSource<'a> for &'a FileContent {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn page(&self, number: u64) -> Option<&'a Page> {
        FileContent::page(self, number)
    }

    fn for_each_page<E>(
        &self,
        from: u64,
        to: u64,
        mut visit: impl FnMut(u64, &'a Page) -> Result<(), E>,
    ) -> Result<(), E> {
        if from >= to {
            return Ok(());
        }
        for (chunk, pages) in self.chunks.range(from / CHUNK..=(to - 1) / CHUNK) {
            for (number, page) in (chunk * CHUNK..).zip(&pages.pages) {
                if let Some(page) = page.as_deref().filter(|_| (from..to).contains(&number)) {
                    visit(number, page)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::FileContent;

    /// What is done to a file.
    #[derive(Clone, Debug)]
    enum Change {
        Write(u64, Vec<u8>),
        Zero(u64, u64),
        SetLen(u64),
        Collapse(u64, u64),
        Insert(u64, u64),
    }

    fn change() -> impl Strategy<Value = Change> {
        let at = || prop_oneof![0..20_000_u64, (0..80_u64).prop_map(|page| page * 4096)];
        let len = || prop_oneof![0..9000_u64, Just(4096), Just(64 * 4096)];
        prop_oneof![
            (at(), prop::collection::vec(0..3_u8, 0..9000))
                .prop_map(|(at, bytes)| Change::Write(at, bytes)),
            (at(), len()).prop_map(|(at, len)| Change::Zero(at, len)),
            at().prop_map(Change::SetLen),
            (at(), len()).prop_map(|(at, len)| Change::Collapse(at, len)),
            (at(), len()).prop_map(|(at, len)| Change::Insert(at, len)),
        ]
    }

    fn digest(content: &FileContent) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        content.add_to(&mut hasher);
        hasher.finalize()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_content_is_what_a_vector_would_be(changes in prop::collection::vec(change(), 0..12)) {
            let mut content = FileContent::default();
            let mut bytes: Vec<u8> = Vec::new();
            for change in changes {
                let before = content.clone();
                let old = bytes.clone();
                match change {
                    Change::Write(at, new) => {
                        let at_index = at as usize;
                        bytes.resize(bytes.len().max(at_index + new.len()), 0);
                        bytes[at_index..at_index + new.len()].copy_from_slice(&new);
                        content.write(at, &new);
                    }
                    Change::Zero(at, len) => {
                        let end = ((at + len) as usize).min(bytes.len());
                        if (at as usize) < end {
                            bytes[at as usize..end].fill(0);
                        }
                        content.zero(at..at + len);
                    }
                    Change::SetLen(len) => {
                        bytes.resize(len as usize, 0);
                        content.set_len(len);
                    }
                    Change::Collapse(at, len) => {
                        if at + len <= content.len_bytes() {
                            bytes.drain(at as usize..(at + len) as usize);
                            content.collapse(at..at + len);
                        }
                    }
                    Change::Insert(at, len) => {
                        if at <= content.len_bytes() {
                            let zeros = vec![0; len as usize];
                            bytes.splice(at as usize..at as usize, zeros);
                            content.insert(at, len);
                        }
                    }
                }
                prop_assert_eq!(content.to_vec(), &bytes[..]);
                prop_assert_eq!(before.to_vec(), &old[..], "a copy changes with its origin");
                prop_assert_eq!(content.is_same(&before), bytes == old);
                // The cached digests of pages match their content.
                let mut again = FileContent::default();
                again.write(0, &bytes);
                again.set_len(bytes.len() as u64);
                prop_assert_eq!(digest(&content), digest(&again));
                prop_assert_eq!(digest(&content) == digest(&before), bytes == old);
            }
        }
    }
}
