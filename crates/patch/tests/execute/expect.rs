//! The expected records of a run.

use iced_x86::Mnemonic;
use powerfail_patch::{Action, LockedFences, Store, StoreForm, Turns};
use powerfail_protocol::{EventKind, Record, SiteId};

use crate::bench::Bench;
use crate::cases::Case;
use crate::machine::{FIRST_STAMP, MEMORY_LEN};
use crate::random::Random;

/// The site of every record.
pub(crate) const SITE: SiteId = SiteId(0x89ab_cdef);
const ZERO_FLAG: u64 = 0x40;

/// The known facts about a run.
pub(crate) struct Evidence<'a> {
    pub(crate) case: &'a Case,
    /// Creates the memory before the run.
    pub(crate) seed: u64,
    /// The value that was put where the instruction compares.
    pub(crate) equal_to: Option<[u64; 2]>,
    /// Whether the thread had flushes to complete.
    pub(crate) pending: u32,
    /// The flags after the native run.
    pub(crate) flags: u64,
    /// The pool after the native run.
    pub(crate) pool: &'a [u8],
    /// The pool after a native run over other content, if the store is masked.
    pub(crate) other_pool: Option<&'a [u8]>,
}

impl Evidence<'_> {
    /// The pool before the run.
    fn initial_pool(&self) -> Vec<u8> {
        let mut pool = vec![0; MEMORY_LEN];
        Random::new(self.seed).fill(&mut pool);
        if let Some(expected) = self.equal_to
            && self.case.aim.in_pool
        {
            let offset = (self.case.aim.address & (MEMORY_LEN as u64 - 1)) as usize;
            for (index, word) in expected.into_iter().enumerate() {
                pool[offset + 8 * index..][..8].copy_from_slice(&word.to_le_bytes());
            }
        }
        pool
    }

    fn what(&self) -> String {
        format!(
            "{:?} {:02x?}",
            self.case.site.instruction.code(),
            self.case.code
        )
    }

    /// Whether the operation is recorded anew if the memory has changed meanwhile.
    fn is_tried_again(&self) -> bool {
        matches!(self.case.site.action, Action::Store(store)
            if store.kind == EventKind::StoreLocked || store.form == StoreForm::CompareExchangePair)
    }

    /// A thread that is alone takes a stamp only for what may have to be recorded again. Whatever it takes is in the block.
    fn check_stamp(&self, record: &Record<'_>, is_shared: bool, stamp_after: u64) {
        let what = self.what();
        let is_tried_again = record.address.is_some() && self.is_tried_again();
        let takes_stamp = is_shared || is_tried_again;
        assert_eq!(record.stamp > FIRST_STAMP, takes_stamp, "{what}");
        assert_eq!(stamp_after, record.stamp, "{what}");
    }

    /// Checks the records of the patched run.
    pub(crate) fn check(&self, bench: &mut Bench) {
        let what = self.what();
        let pool_at = bench.layout.pool();
        let locked_fences = bench.emitter.settings().locked_fences;
        let pending_after = bench.machine.block().pending;
        let site = if bench.emitter.settings().names_stacks {
            SiteId(bench.machine.stack_number(SITE.0, &self.case.state))
        } else {
            SITE
        };
        let (asks, turns) = (
            bench.emitter.settings().turns == Turns::AskedFor,
            bench.machine.turns(),
        );
        let is_shared = bench.machine.block().is_shared != 0;
        let stamp_after = bench.machine.block().stamp;
        assert_eq!(bench.machine.held_locks(), [], "{what}");
        let records = bench.machine.records();
        // Once, whatever the number of records. An operation that is a fence only because it is locked needs none.
        let locked_fence = self.case.site.locked_fence();
        let is_operation = records
            .iter()
            .any(|record| record.address.is_some() || record.header.kind != locked_fence);
        assert!(turns <= u64::from(asks), "{what}");
        assert!(!asks || !is_operation || turns == 1, "{what}");
        for record in &records {
            assert_eq!(record.header.site, site, "{what}");
            self.check_stamp(record, is_shared, stamp_after);
            assert_ne!(record.stamp, 0, "{what}");
        }
        if locked_fences == LockedFences::WhenPending {
            assert_eq!(
                pending_after,
                self.expected_pending(records.last()),
                "{what}"
            );
        }
        // The replay gives the result of the run, and what each store found.
        let mut replayed = self.initial_pool();
        for record in &records {
            let at = record.address.unwrap_or(pool_at) - pool_at;
            if let Some(found) = record.found() {
                assert_eq!(&replayed[at as usize..][..found.len()], found, "{what}");
            }
            if is_store(record.header.kind) {
                assert_eq!(record.found().is_some(), self.finds(is_shared), "{what}");
                for (offset, bytes) in record.runs() {
                    replayed[at as usize + offset..][..bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        assert!(replayed == self.pool, "replay of {what}: {records:x?}");

        let in_pool = self.case.aim.in_pool;
        match (self.case.site.action, &records[..]) {
            (
                Action::Store(Store {
                    form: StoreForm::String { .. },
                    ..
                }),
                records,
            ) if in_pool => {
                let kind = EventKind::StorePlain;
                assert!(
                    records.iter().all(|record| record.header.kind == kind),
                    "{what}"
                );
            }
            (Action::Store(store), [record]) if in_pool => self.check_store(store, record, pool_at),
            (Action::Store(store), records) if !in_pool && store.kind == EventKind::StoreLocked => {
                let kind = self.case.site.locked_fence();
                let expected = match locked_fences {
                    LockedFences::Always => 1,
                    LockedFences::WhenPending if kind == EventKind::Mfence => 1,
                    LockedFences::WhenPending => self.pending as usize,
                    LockedFences::Never => 0,
                };
                assert_eq!(records.len(), expected, "{what}");
                assert!(
                    records.iter().all(|record| record.header.kind == kind),
                    "{what}"
                );
            }
            (Action::Flush(kind), [record]) if in_pool => {
                let address = Some(self.case.aim.address);
                assert_eq!(
                    (record.header.kind, record.address),
                    (kind, address),
                    "{what}"
                );
                let word = ((self.case.aim.address - pool_at) & !7) as usize;
                let found = &self.pool[word..word + 8];
                assert_eq!(
                    record.value(),
                    if is_shared { found } else { &[] },
                    "{what}"
                );
            }
            (Action::Fence(kind), [record]) => {
                assert_eq!((record.header.kind, record.address), (kind, None), "{what}");
            }
            (Action::Store(_) | Action::Flush(_), []) if !in_pool => {}
            (_, records) => panic!("{what}: {records:x?}"),
        }
    }

    /// Whether a record has what the store found.
    fn finds(&self, is_shared: bool) -> bool {
        is_shared
            && !matches!(
                self.case.site.action,
                Action::Store(Store {
                    form: StoreForm::Masked | StoreForm::Pop,
                    ..
                })
            )
    }

    fn expected_pending(&self, last: Option<&Record<'_>>) -> u32 {
        last.map_or(self.pending, |record| match record.header.kind {
            EventKind::StoreNonTemporal | EventKind::Clflushopt | EventKind::Clwb => 1,
            EventKind::StorePlain | EventKind::Clflush => self.pending,
            _ => 0,
        })
    }

    fn check_store(&self, store: Store, record: &Record<'_>, pool_at: u64) {
        let what = self.what();
        let compares = matches!(store.form, StoreForm::CompareExchangePair)
            || self.case.site.instruction.mnemonic() == Mnemonic::Cmpxchg;
        let failed = compares && self.flags & ZERO_FLAG == 0;
        let is_fence = failed && store.kind == EventKind::StoreLocked;
        let kind = if is_fence {
            EventKind::FenceLocked
        } else {
            store.kind
        };
        assert_eq!(record.header.kind, kind, "{what}");
        assert_eq!(record.address, Some(self.case.aim.address), "{what}");
        assert_eq!(record.header.value_len, store.len_bytes, "{what}");
        let at = (self.case.aim.address - pool_at) as usize;
        let range = at..at + usize::from(store.len_bytes);
        let after = &self.pool[range.clone()];
        let Some(other) = self.other_pool else {
            assert_eq!(record.value(), after, "{what}");
            return;
        };
        // A byte that is the same after the store over two different contents was written. The replay has shown that
        // all such bytes are in the record.
        let other = &other[range];
        for (offset, bytes) in record.runs() {
            let run = offset..offset + bytes.len();
            assert_eq!(&after[run.clone()], bytes, "{what}");
            assert_eq!(&other[run], bytes, "{what}");
        }
    }
}

fn is_store(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::StorePlain | EventKind::StoreNonTemporal | EventKind::StoreLocked
    )
}
