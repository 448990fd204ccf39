//! Outcomes of recoveries that are kept in a file as they come, so that no recovery has to run twice.
//!
//! A crash test is a function of the trace, the options and the answers of recovery. So a run that was killed is repeated
//! from its beginning, and every request that an outcome was kept for is answered from the file (`--resume`). A share of
//! the failure points (`--partition`) keeps its outcomes, and `powerfail merge` is the whole run with the outcomes of all
//! shares: it executes only what no share has. What it reports is what one run would have reported.
//!
//! `key.rs` gives requests their names, `file.rs` knows the bytes of the file.
//!
//! A request can come several times in a run, each time with an outcome of its own: the first outcome in the file answers
//! the first request, and so on. An exploration also depends on how many executions it may have. One that ended before
//! its limit would be the same with any limit that is not smaller.

mod file;
mod key;

pub use file::{About, OutcomesError};
pub(crate) use file::{NAME, Stored};
pub(crate) use key::{Key, KeyWriter, RequestKind};

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::CheckError;
use file::{Entry, OutcomesFile, Writer};

/// Every limit of executions.
pub(crate) const ANY_LIMIT: RangeInclusive<u64> = 0..=u64::MAX;

/// Answers requests with the outcomes that were kept, and keeps new ones. Clones share the files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    /// `None` if nothing is kept.
    shared: Option<Arc<Mutex<Shared>>>,
    /// The digest of the trace that requests are about.
    trace: u128,
}

#[derive(Debug, Default)]
struct Shared {
    files: Vec<Arc<OutcomesFile>>,
    known: FxHashMap<Key, Vec<KnownOutcome>>,
    writer: Option<Writer>,
    /// What is the same for many outcomes and was written once.
    written_once: FxHashSet<Key>,
    counts: OutcomeCounts,
}

#[derive(Debug)]
struct KnownOutcome {
    file: usize,
    entry: Entry,
    is_used: bool,
}

/// How many requests were answered from files, and how many were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutcomeCounts {
    pub(crate) known: u64,
    pub(crate) new: u64,
}

impl Outcomes {
    /// The outcomes of these files, in this order. New ones are kept in `writer`.
    fn new(stored: Vec<Stored>, writer: Writer) -> Self {
        let mut shared = Shared {
            writer: Some(writer),
            ..Shared::default()
        };
        for (number, stored) in stored.into_iter().enumerate() {
            shared.files.push(Arc::new(stored.file));
            for (key, entry) in stored.entries {
                shared.known.entry(key).or_default().push(KnownOutcome {
                    file: number,
                    entry,
                    is_used: false,
                });
            }
        }
        Self {
            shared: Some(Arc::new(Mutex::new(shared))),
            trace: 0,
        }
    }

    /// Begins the file of a run in its output directory. What an earlier run has left there is gone.
    pub(crate) fn begin(out: &Path, about: &About) -> Result<Self, OutcomesError> {
        Ok(Self::new(
            Vec::new(),
            Writer::create(&out.join(NAME), about)?,
        ))
    }

    /// The outcomes of several runs. New ones are kept in an output directory.
    pub(crate) fn join(
        stored: Vec<Stored>,
        about: &About,
        out: &Path,
    ) -> Result<Self, OutcomesError> {
        Ok(Self::new(stored, Writer::create(&out.join(NAME), about)?))
    }

    /// Continues the file of an earlier run.
    pub(crate) fn resume(stored: Stored) -> Result<Self, OutcomesError> {
        let writer = stored.file.resume(stored.good_bytes)?;
        Ok(Self::new(vec![stored], writer))
    }

    /// The same outcomes, of requests about a trace.
    pub(crate) fn of_trace(&self, digest: u128) -> Self {
        Self {
            shared: self.shared.clone(),
            trace: digest,
        }
    }

    /// Whether outcomes are kept.
    pub(crate) const fn is_on(&self) -> bool {
        self.shared.is_some()
    }

    fn lock(&self) -> Option<MutexGuard<'_, Shared>> {
        let shared = self.shared.as_ref()?;
        Some(shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The name of a request; `None` if nothing is kept.
    pub(crate) fn key(
        &self,
        kind: RequestKind,
        describe: impl FnOnce(&mut KeyWriter),
    ) -> Option<Key> {
        self.shared.as_ref()?;
        let mut writer = KeyWriter::new(self.trace, kind);
        describe(&mut writer);
        Some(writer.finish())
    }

    /// The outcome of a request, if it was kept: the first that was not taken before and holds for a limit of executions.
    pub(crate) fn take<T: DeserializeOwned>(
        &self,
        key: Option<Key>,
        limit: u64,
    ) -> Result<Option<T>, CheckError> {
        let (Some(key), Some(mut shared)) = (key, self.lock()) else {
            return Ok(None);
        };
        let known = shared.known.get_mut(&key).and_then(|all| {
            all.iter_mut()
                .find(|it| !it.is_used && it.entry.limits.contains(&limit))
        });
        let Some(known) = known else { return Ok(None) };
        known.is_used = true;
        let (file, entry) = (known.file, known.entry.clone());
        let file = Arc::clone(&shared.files[file]);
        shared.counts.known += 1;
        drop(shared);
        Ok(Some(file.read(&entry)?))
    }

    /// All outcomes of a request whose order does not matter. Each counts when it is read first.
    pub(crate) fn all<T: DeserializeOwned>(&self, key: Option<Key>) -> Result<Vec<T>, CheckError> {
        let (Some(key), Some(mut shared)) = (key, self.lock()) else {
            return Ok(Vec::new());
        };
        let shared = &mut *shared;
        let mut all = Vec::new();
        for known in shared.known.get_mut(&key).into_iter().flatten() {
            shared.counts.known += u64::from(!known.is_used);
            known.is_used = true;
            all.push(shared.files[known.file].read(&known.entry)?);
        }
        Ok(all)
    }

    /// What many outcomes share, if it was kept.
    pub(crate) fn find<T: DeserializeOwned>(
        &self,
        key: Option<Key>,
    ) -> Result<Option<T>, CheckError> {
        let (Some(key), Some(shared)) = (key, self.lock()) else {
            return Ok(None);
        };
        let Some(known) = shared.known.get(&key).and_then(|all| all.first()) else {
            return Ok(None);
        };
        let (file, entry) = (Arc::clone(&shared.files[known.file]), known.entry.clone());
        drop(shared);
        Ok(Some(file.read(&entry)?))
    }

    /// Keeps an outcome that holds for these limits of executions.
    pub(crate) fn keep<T: Serialize>(
        &self,
        key: Option<Key>,
        limits: RangeInclusive<u64>,
        outcome: &T,
    ) -> Result<(), CheckError> {
        let Some(key) = key else { return Ok(()) };
        let encoded = file::encode(key, limits, outcome);
        match self.lock() {
            Some(mut shared) => {
                shared.counts.new += 1;
                shared.write(encoded)
            }
            None => Ok(()),
        }
    }

    /// Keeps what many outcomes share, unless it is there.
    pub(crate) fn keep_once<T: Serialize>(
        &self,
        key: Option<Key>,
        value: &T,
    ) -> Result<(), CheckError> {
        let (Some(key), Some(mut shared)) = (key, self.lock()) else {
            return Ok(());
        };
        // It is written again by each run that needs it, so that no file needs another one.
        let is_first = shared.written_once.insert(key);
        if is_first {
            shared.write(file::encode(key, ANY_LIMIT, value))?;
        }
        Ok(())
    }

    /// Marks the file as that of a run that has come to its end. Returns how many requests were answered from files.
    pub(crate) fn finish(&self) -> Result<OutcomeCounts, OutcomesError> {
        let Some(mut shared) = self.lock() else {
            return Ok(OutcomeCounts::default());
        };
        if let Some(writer) = &mut shared.writer {
            writer.finish()?;
        }
        Ok(shared.counts)
    }
}

impl Shared {
    fn write(&mut self, encoded: Option<Vec<u8>>) -> Result<(), CheckError> {
        if let (Some(writer), Some(encoded)) = (&mut self.writer, encoded) {
            writer.write(&encoded)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
