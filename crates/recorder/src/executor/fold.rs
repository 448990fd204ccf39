//! Turns records into a coverage map and a list of written pages.

use powerfail_protocol::fuzz::{MAP_LEN, Path, count};
use powerfail_protocol::{EventKind, Record};
use rustc_hash::FxHashMap;

use super::mappings::{Mappings, PoolNumber};
use super::places::Places;

/// The maximum number of locations whose order is stored.
const LOCATIONS_MAX: usize = 1 << 20;

/// The coverage of records.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    /// How often each location was reached.
    pub(super) map: Vec<u8>,
    /// The locations in the order of their records, since its start.
    pub(super) locations: Vec<u32>,
    /// The number of operations.
    pub(super) count: u64,
    /// The number of operations at its start.
    count_before: u64,
    /// The current position of each thread on its path.
    paths: FxHashMap<u32, Path>,
}

impl Fold {
    /// No coverage.
    pub(super) fn new() -> Self {
        Self {
            map: vec![0; MAP_LEN],
            locations: Vec::new(),
            count: 0,
            count_before: 0,
            paths: FxHashMap::default(),
        }
    }

    /// Starts where another one has ended.
    pub(super) fn begin(&mut self, other: &Self) {
        self.map.copy_from_slice(&other.map);
        self.locations.clear();
        self.count = other.count;
        self.count_before = other.count;
        self.paths.clone_from(&other.paths);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.map.fill(0);
        self.locations.clear();
        self.count = 0;
        self.count_before = 0;
        self.paths.clear();
    }

    /// Whether the order of locations is incomplete.
    pub(super) fn is_cut(&self) -> bool {
        self.count - self.count_before > self.locations.len() as u64
    }

    /// Adds the records of a thread.
    pub(super) fn take<'a>(
        &mut self,
        thread: u32,
        records: impl Iterator<Item = Record<'a>>,
        places: &Places,
        mappings: &Mappings,
        dirty: &mut Dirty,
    ) {
        let mut path = self.paths.get(&thread).copied().unwrap_or_default();
        for record in records {
            let times = significance(&record, mappings, dirty);
            let site = record.header.site.0;
            let operation = match record.header.kind {
                EventKind::File => places.operation_of_stack(site),
                _ => places.operation(site),
            };
            let Some(operation) = operation.filter(|_| times > 0) else {
                continue;
            };
            for _ in 0..times {
                let location = path.step(operation);
                count(&mut self.map, location);
                self.count += 1;
                if self.locations.len() < LOCATIONS_MAX {
                    self.locations.push(location as u32);
                }
            }
        }
        self.paths.insert(thread, path);
    }
}

/// The number of operations of a record, as in a trace. Adds the pages that it wrote.
fn significance(record: &Record<'_>, mappings: &Mappings, dirty: &mut Dirty) -> usize {
    match record.header.kind {
        EventKind::StorePlain
        | EventKind::StoreNonTemporal
        | EventKind::StoreLocked
        | EventKind::StoreSystem => {
            let Some(address) = record.address else {
                return 0;
            };
            let mut runs = 0;
            for (start, bytes) in record.runs() {
                let found = mappings.mark(address + start as u64, bytes.len() as u64, dirty);
                runs += usize::from(found);
            }
            runs
        }
        EventKind::Clflush | EventKind::Clflushopt | EventKind::Clwb | EventKind::Sync => record
            .address
            .is_some_and(|address| mappings.at(address).is_some())
            .into(),
        EventKind::Resize => {
            dirty.resized = true;
            1
        }
        EventKind::Sfence
        | EventKind::Mfence
        | EventKind::FenceLocked
        | EventKind::Mark
        | EventKind::File => 1,
        EventKind::Void | EventKind::Output | EventKind::ThreadEnd => 0,
    }
}

/// Pages that were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    /// The pages in the order in which they were first written.
    pub(super) pages: Vec<(PoolNumber, u64)>,
    /// A bit for each page of each pool.
    bits: Vec<Vec<u64>>,
    /// Whether a pool was resized.
    pub(super) resized: bool,
}

impl Dirty {
    /// Adds a page.
    pub(super) fn insert(&mut self, pool: PoolNumber, page: u64) {
        let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
        if pool.0 >= self.bits.len() {
            self.bits.resize_with(pool.0 + 1, Vec::new);
        }
        let bits = &mut self.bits[pool.0];
        if word >= bits.len() {
            bits.resize(word + 1, 0);
        }
        if bits[word] & bit == 0 {
            bits[word] |= bit;
            self.pages.push((pool, page));
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        for (pool, page) in self.pages.drain(..) {
            self.bits[pool.0][(page / 64) as usize] = 0;
        }
        self.resized = false;
    }
}
