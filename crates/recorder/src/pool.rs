//! The recorded pools: their files, initial images and lengths.

use std::fs::File;
use std::path::{Path, PathBuf};

use powerfail_model::{PoolIndex, PoolOffset};
use powerfail_protocol::memory::HEAP_NAME;
use powerfail_trace::recording::{IgnoreReason, IgnoredFile, PoolSummary};
use powerfail_trace::{FinalImage, ImageHasher, Pool, PoolKind, TraceError, TraceWriter};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fd::OwnedFd;

use crate::executed::Precious;
use crate::pool_filter::PoolFilter;
use crate::sparse::{FileIdentity, SparseFile};

/// A file that is recorded.
#[derive(Debug)]
pub(crate) struct RecordedPool {
    pub(crate) path: PathBuf,
    pub(crate) file: SparseFile,
    initial_len_bytes: u64,
    /// Its length after the records that were written.
    pub(crate) len_bytes: u64,
}

/// The decision about a file that a target maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is a pool, has this length now, and may have been one before.
    Pool {
        index: PoolIndex,
        len_bytes: u64,
        known: bool,
    },
    /// It is not recorded.
    Ignored,
}

/// All pools.
#[derive(Debug)]
pub(crate) struct Pools {
    filter: PoolFilter,
    /// Where ranges of anonymous memory have their files.
    memory: PathBuf,
    by_identity: FxHashMap<FileIdentity, PoolIndex>,
    all: Vec<RecordedPool>,
    ignored: Vec<IgnoredFile>,
    ignored_paths: FxHashSet<PathBuf>,
}

impl Pools {
    pub(crate) fn new(filter: PoolFilter, memory: &Path) -> Self {
        Self {
            filter,
            memory: memory.into(),
            by_identity: FxHashMap::default(),
            all: Vec::new(),
            ignored: Vec::new(),
            ignored_paths: FxHashSet::default(),
        }
    }

    /// Decides about a file that is about to be mapped. The image of a new pool goes to the trace.
    pub(crate) fn admit(
        &mut self,
        writer: &mut TraceWriter<File>,
        path: &Path,
        file: Option<OwnedFd>,
        base_address: u64,
        imitates_dax: bool,
    ) -> Result<Admission, TraceError> {
        let Some(file) = file.and_then(|file| SparseFile::from_target(file).ok()) else {
            return Ok(self.ignore(path, IgnoreReason::Unreadable));
        };
        let Some(file) = file else {
            return Ok(self.ignore(path, IgnoreReason::NotPersistent));
        };
        let Ok(len_bytes) = file.len_bytes() else {
            return Ok(self.ignore(path, IgnoreReason::Unreadable));
        };
        if let Some(index) = self.by_identity.get(&file.identity()) {
            return Ok(Admission::Pool {
                index: *index,
                len_bytes,
                known: true,
            });
        }
        if !file.is_named() {
            return Ok(self.ignore(path, IgnoreReason::Nameless));
        }
        if let Some(reason) = self.filter.reason_against(path, file.identity()) {
            return Ok(self.ignore(path, reason));
        }
        if file.read_at(&mut [0], 0).is_err() {
            return Ok(self.ignore(path, IgnoreReason::Unreadable));
        }
        let is_range =
            path.parent() == Some(&self.memory) && path.file_name() != Some(HEAP_NAME.as_ref());
        let pool = Pool {
            path: path.into(),
            kind: if is_range {
                PoolKind::AnonymousRange
            } else if imitates_dax {
                PoolKind::FileAsDax
            } else {
                file.kind()
            },
            len_bytes,
            address: base_address,
        };
        let index = writer.define_pool(&pool)?;
        file.for_each_run(len_bytes, |offset, bytes| {
            writer.initial_image(index, PoolOffset(offset), bytes)
        })?;
        self.by_identity.insert(file.identity(), index);
        self.all.push(RecordedPool {
            path: path.into(),
            file,
            initial_len_bytes: len_bytes,
            len_bytes,
        });
        Ok(Admission::Pool {
            index,
            len_bytes,
            known: false,
        })
    }

    /// The pool that a file is.
    pub(crate) fn index_of(&self, file: FileIdentity) -> Option<PoolIndex> {
        self.by_identity.get(&file).copied()
    }

    /// Whether a file is a pool.
    pub(crate) fn has(&self, file: FileIdentity) -> bool {
        self.by_identity.contains_key(&file)
    }

    /// The files that only recorded programs may change.
    pub(crate) fn precious(&self) -> Vec<Precious> {
        let precious = |pool: &RecordedPool| Precious {
            path: pool.path.clone(),
            identity: pool.file.identity(),
        };
        self.all.iter().map(precious).collect()
    }

    fn ignore(&mut self, path: &Path, reason: IgnoreReason) -> Admission {
        if self.ignored_paths.insert(path.into()) {
            self.ignored.push(IgnoredFile {
                path: path.into(),
                reason,
            });
        }
        Admission::Ignored
    }

    /// A pool.
    pub(crate) fn get(&self, index: PoolIndex) -> Option<&RecordedPool> {
        self.all.get(index.0 as usize)
    }

    /// A pool, to be changed.
    pub(crate) fn get_mut(&mut self, index: PoolIndex) -> Option<&mut RecordedPool> {
        self.all.get_mut(index.0 as usize)
    }

    /// The final images of the pools, for the end of the trace.
    pub(crate) fn final_images(&self) -> Result<Vec<FinalImage>, TraceError> {
        (0..)
            .map(PoolIndex)
            .zip(&self.all)
            .map(|(pool, recorded)| {
                let len_bytes = recorded.file.len_bytes()?;
                let mut hasher = ImageHasher::new(len_bytes);
                recorded.file.for_each_run(len_bytes, |offset, bytes| {
                    hasher.update(offset, bytes);
                    Ok::<_, TraceError>(())
                })?;
                Ok(FinalImage {
                    pool,
                    len_bytes,
                    hash: hasher.finish(),
                })
            })
            .collect()
    }

    /// The pools that the target has removed since it mapped them.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &Path> {
        let files = self
            .all
            .iter()
            .filter(|it| !it.path.starts_with(&self.memory));
        files
            .filter(|it| !it.file.is_still_named())
            .map(|it| it.path.as_path())
    }

    /// The summaries of the pools and of ignored files.
    pub(crate) fn summary(&self, images: &[FinalImage]) -> (Vec<PoolSummary>, Vec<IgnoredFile>) {
        let summary = |(pool, image): (&RecordedPool, &FinalImage)| PoolSummary {
            path: pool.path.clone(),
            initial_len_bytes: pool.initial_len_bytes,
            final_len_bytes: image.len_bytes,
        };
        (
            self.all.iter().zip(images).map(summary).collect(),
            self.ignored.clone(),
        )
    }
}
