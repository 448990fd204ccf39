//! The name of a request: a digest of everything that decides its outcome, besides how recovery is run.

use std::os::unix::ffi::OsStrExt;

use powerfail_image::Patch;
use powerfail_model::{CrashState, EventIndex, Place};
use powerfail_oracle::{Branch, ExploreRequest, LineTable};
use xxhash_rust::xxh3::Xxh3;

/// The name of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(super) u128);

/// What is requested. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RequestKind {
    /// A recovery that is executed.
    Plain = 1,
    /// A recovery that may be forked from a snapshot.
    Streamed = 2,
    /// Executions that choose what they read.
    Explore = 3,
    /// Where recovery crashes.
    Backtrace = 4,
    /// What recovery is denied.
    Denied = 5,
    /// A recovery, and bytes that it left.
    Read = 6,
    /// A recovery on a pool that no crash left.
    Changed = 7,
    /// How long a recovery from a snapshot takes.
    Time = 8,
    /// Why recoveries are not forked from snapshots.
    SnapshotNote = 9,
    /// The modules of the processes that explorations are about.
    Modules = 10,
    /// Executions of a tree of observations.
    Observations = 11,
}

/// Writes what decides the outcome of a request.
pub(crate) struct KeyWriter(Xxh3);

impl KeyWriter {
    pub(super) fn new(trace: u128, kind: RequestKind) -> Self {
        let mut hasher = Xxh3::new();
        hasher.update(&trace.to_le_bytes());
        hasher.update(&[kind as u8]);
        Self(hasher)
    }

    pub(super) fn finish(self) -> Key {
        Key(self.0.digest128())
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    /// Another name.
    pub(crate) fn key(&mut self, key: Key) -> &mut Self {
        self.0.update(&key.0.to_le_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
        self
    }

    pub(crate) fn place(&mut self, place: Place) -> &mut Self {
        self.number(place.pool.0.into()).number(place.offset.0)
    }

    /// An image: the moment, the lines that do not have their newest content, and what lies on top.
    pub(crate) fn image(
        &mut self,
        at: EventIndex,
        state: &CrashState,
        overlay: &[Patch],
    ) -> &mut Self {
        self.number(at.0).number(state.versions.len() as u64);
        for (line, version) in &state.versions {
            self.number(line.pool.0.into())
                .number(line.line.0)
                .number(*version as u64);
        }
        self.number(overlay.len() as u64);
        for patch in overlay {
            self.number(patch.pool.0.into())
                .number(patch.offset)
                .bytes(&patch.bytes);
        }
        self
    }

    /// An exploration, except for how many executions it may have.
    pub(crate) fn exploration(&mut self, request: &ExploreRequest<'_>) -> &mut Self {
        let ExploreRequest {
            table,
            prefix,
            branch,
            watches,
            observations,
            log,
            max_executions: _,
        } = *request;
        self.table(table).number(prefix.len() as u64);
        for class in prefix {
            self.number((*class).into());
        }
        self.number(match branch {
            Branch::Fork => 0,
            Branch::Repeat => 1,
            Branch::Never => 2,
        });
        self.number(watches.len() as u64);
        for watch in watches {
            self.number(watch.pool.into())
                .number(watch.offset)
                .number(watch.bytes);
        }
        self.number(observations.into()).number(log.into())
    }

    fn table(&mut self, table: &LineTable) -> &mut Self {
        let LineTable {
            line_bytes,
            pools,
            lines,
            watched,
        } = table;
        self.number((*line_bytes).into()).number(pools.len() as u64);
        for pool in pools {
            self.bytes(pool.as_os_str().as_bytes());
        }
        self.number(lines.len() as u64);
        for line in lines {
            self.number(line.pool.into())
                .number(line.offset)
                .bytes(&line.contents);
        }
        self.number(watched.len() as u64);
        for mask in watched {
            self.number(mask.pool.into())
                .number(mask.offset)
                .number(mask.lines);
        }
        self
    }
}
