//! Recently used contents, within a memory limit.
//!
//! Contents share pages, and a page counts once, however many share it. So the limit is about the memory that
//! the cache really uses, and thousands of similar images fit.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;

use powerfail_image::{DirectoryContents, PageBytes, PageHash};
use rustc_hash::FxHashMap;

use crate::tree::NodeNumber;

/// The memory of an entry in a map of pages, with the spare capacity of such maps.
const ENTRY_BYTES: u64 = 2 * size_of::<(u64, Arc<PageBytes>)>() as u64;
/// The memory of a page, with its counters and its entry here.
const PAGE_BYTES: u64 =
    size_of::<PageBytes>() as u64 + 16 + 2 * size_of::<(usize, Shared)>() as u64;

/// The cache.
pub(crate) struct Cache {
    limit_bytes: u64,
    used_bytes: u64,
    clock: u64,
    contents: FxHashMap<NodeNumber, (Arc<DirectoryContents>, u64)>,
    by_age: BTreeMap<u64, NodeNumber>,
    /// Pages by their addresses, which are stable while cached contents hold them.
    shared: FxHashMap<usize, Shared>,
}

/// A page of cached contents. It cannot change while they hold it, so its hash stays valid.
#[derive(Default)]
struct Shared {
    sharers: u32,
    hash: Option<PageHash>,
}

impl Cache {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            used_bytes: 0,
            clock: 0,
            contents: FxHashMap::default(),
            by_age: BTreeMap::new(),
            shared: FxHashMap::default(),
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(crate) fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        self.shrink();
    }

    pub(crate) fn get(&mut self, number: NodeNumber) -> Option<Arc<DirectoryContents>> {
        let (contents, age) = self.contents.get_mut(&number)?;
        self.by_age.remove(age);
        self.clock += 1;
        *age = self.clock;
        self.by_age.insert(self.clock, number);
        Some(Arc::clone(contents))
    }

    /// Adds contents, and evicts the oldest ones if the limit is exceeded. Contents that exceed it alone are not added.
    pub(crate) fn put(&mut self, number: NodeNumber, contents: &Arc<DirectoryContents>) {
        self.forget(number);
        for page in pages(contents) {
            self.used_bytes += ENTRY_BYTES;
            let shared = self.shared.entry(page).or_default();
            if shared.sharers == 0 {
                self.used_bytes += PAGE_BYTES;
            }
            shared.sharers += 1;
        }
        self.clock += 1;
        let entry = (Arc::clone(contents), self.clock);
        self.contents.insert(number, entry);
        self.by_age.insert(self.clock, number);
        self.shrink();
    }

    /// The hash of a page, if the page is cached and its hash is known.
    pub(crate) fn hash(&self, page: &Arc<PageBytes>) -> Option<PageHash> {
        self.shared.get(&(Arc::as_ptr(page) as usize))?.hash
    }

    /// Sets the hash of a page, which is known as long as the page is cached.
    pub(crate) fn set_hash(&mut self, page: &Arc<PageBytes>, hash: PageHash) {
        if let Some(shared) = self.shared.get_mut(&(Arc::as_ptr(page) as usize)) {
            shared.hash = Some(hash);
        }
    }

    fn shrink(&mut self) {
        while self.used_bytes > self.limit_bytes
            && let Some((_, oldest)) = self.by_age.first_key_value()
        {
            self.forget(*oldest);
        }
    }

    fn forget(&mut self, number: NodeNumber) {
        let Some((contents, age)) = self.contents.remove(&number) else {
            return;
        };
        self.by_age.remove(&age);
        for page in pages(&contents) {
            self.used_bytes -= ENTRY_BYTES;
            if let Some(shared) = self.shared.get_mut(&page) {
                shared.sharers -= 1;
                if shared.sharers == 0 {
                    self.shared.remove(&page);
                    self.used_bytes -= PAGE_BYTES;
                }
            }
        }
    }
}

fn pages(contents: &DirectoryContents) -> impl Iterator<Item = usize> {
    let files = contents.files.values();
    files.flat_map(|file| file.pages.values().map(|page| Arc::as_ptr(page) as usize))
}

#[cfg(test)]
mod tests {
    use powerfail_image::FileContents;

    use super::*;

    fn contents(pages: &[u8]) -> DirectoryContents {
        let mut file = FileContents::default();
        for (number, byte) in pages.iter().enumerate() {
            file.set_page(number as u64, &[*byte; 4096]);
        }
        DirectoryContents {
            files: BTreeMap::from([("pool".into(), file)]),
        }
    }

    #[test]
    fn shared_pages_count_once_and_the_oldest_goes_first() {
        let first = Arc::new(contents(&[1, 2]));
        let mut second = (*first).clone();
        let file = second.files.get_mut("pool").expect("a file");
        file.set_page(1, &[3; 4096]);
        let second = Arc::new(second);
        let mut cache = Cache::new(u64::MAX);
        cache.put(1, &first);
        cache.put(2, &second);
        assert_eq!(cache.used_bytes(), 3 * PAGE_BYTES + 4 * ENTRY_BYTES);
        cache.put(2, &second);
        assert_eq!(cache.used_bytes(), 3 * PAGE_BYTES + 4 * ENTRY_BYTES);
        cache.get(1).expect("it is kept");
        cache.set_limit(3 * PAGE_BYTES);
        assert!(cache.get(1).is_some() && cache.get(2).is_none());
        assert_eq!(cache.used_bytes(), 2 * PAGE_BYTES + 2 * ENTRY_BYTES);
        cache.set_limit(0);
        assert!(cache.get(1).is_none());
        assert_eq!(cache.used_bytes(), 0);
        assert!(cache.shared.is_empty());
    }
}
