//! Codes, classes and severities.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What kind of bug a finding is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Data that should survive a power failure may be lost.
    Durability,
    /// A crash can show a part of what belongs together.
    Atomicity,
    /// Something becomes durable before what it depends on.
    Ordering,
    /// Recovery is ended by a signal.
    RecoveryCrash,
    /// Recovery does not end.
    RecoveryHang,
    /// A flush with nothing new to write back.
    RedundantFlush,
    /// A fence with nothing to wait for.
    RedundantFence,
    /// A flush of memory that is not persistent.
    VolatileFlush,
    /// Data in persistent memory that is never made durable.
    TransientData,
    /// A store overwritten before it was made durable.
    DirtyOverwrite,
    /// Several stores that become durable by one flush.
    SharedFlush,
    /// Several flushes, in no order among themselves, under one fence.
    UnorderedFlushes,
    /// A store that becomes durable by a flush that is made for other bytes of its line.
    NeighbourFlush,
    /// A store that is flushed only after many fences.
    LateFlush,
    /// Recovery reads what no moment of the run had.
    Robustness,
    /// Recovery reads what is not surely durable.
    CrossFailureRace,
    /// Recovery reads what is durable and, as the program means it, not valid.
    CrossFailureSemantic,
    /// Recovery reads memory that was allocated and never written.
    UninitialisedRead,
    /// A range is added to a transaction that gains nothing by it.
    UnneededAdd,
    /// The program is ended by a signal, without any power failure.
    ProgramCrash,
    /// The program does not end, without any power failure.
    ProgramHang,
    /// A sync with nothing to make durable.
    RedundantSync,
    /// A rename that is none: its file is on another file system.
    CrossDevice,
}

/// How much a finding matters.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// A correctness bug: data is lost or recovery fails.
    Error,
    /// A bug of performance.
    Performance,
    /// Something worth a look; no bug by itself.
    Warning,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $class:ident, $severity:ident, $title:literal;)*) => {
        /// A kind of finding. Codes are stable: they are never used for something else.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
            JsonSchema,
        )]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl Code {
            /// All codes, in their order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// As it is written: `PF0101`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Its class.
            pub const fn class(self) -> Class {
                match self { $(Self::$name => Class::$class),* }
            }

            /// How much it matters.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity),* }
            }

            /// What it is, in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title),* }
            }
        }
    };
}

codes! {
    /// A store is never flushed although its line is flushed at other times.
    StoreNotFlushed = "PF0101", Durability, Error, "store is never flushed";
    /// A store is flushed, and no fence follows.
    FlushNotFenced = "PF0102", Durability, Error, "flush is never fenced";
    /// What the program had reported as done is gone after a crash.
    AcknowledgedLost = "PF0103", Durability, Error, "acknowledged operation is lost";
    /// An object is changed outside of transactions and never made durable.
    ObjectNotPersisted = "PF0104", Durability, Error, "changed object is never persisted";
    /// A pointer was made durable before what it points to.
    PublishedBeforeDurable = "PF0201", Ordering, Error, "published before it is durable";
    /// Recovery refuses a state that a crash leaves.
    RecoveryRejects = "PF0301", Atomicity, Error, "recovery fails after a crash";
    /// What is recovered is neither the content before the operation nor after it.
    ContentTorn = "PF0302", Atomicity, Error, "recovered content is neither old nor new";
    /// The checker refuses what recovery made of a state that a crash leaves.
    CheckerRejects = "PF0303", Atomicity, Error, "checker fails after recovery";
    /// A store in a transaction to memory that the transaction neither added nor allocated.
    StoreNotAdded = "PF0304", Atomicity, Error, "store in a transaction to what was not added";
    /// Recovery is ended by a signal.
    RecoveryCrashes = "PF0401", RecoveryCrash, Error, "recovery crashes";
    /// Recovery does not end in time.
    RecoveryHangs = "PF0402", RecoveryHang, Error, "recovery hangs";
    /// A flush of a line in which nothing is new.
    RedundantFlush = "PF0501", RedundantFlush, Performance, "redundant flush";
    /// A fence with no flush and no non-temporal store before it.
    RedundantFence = "PF0502", RedundantFence, Performance, "redundant fence";
    /// A flush of an address in no pool.
    VolatileFlush = "PF0503", VolatileFlush, Performance, "flush of volatile memory";
    /// A store to a line that is never flushed in the whole run.
    TransientData = "PF0504", TransientData, Performance, "data that is never made durable";
    /// A store that overwrites another one which was not durable yet.
    DirtyOverwrite = "PF0505", DirtyOverwrite, Performance, "overwritten before it is durable";
    /// A range is added to a transaction that has added or allocated it already.
    DuplicateAdd = "PF0506", UnneededAdd, Performance, "range is added to a transaction twice";
    /// A range is added to a transaction that stores nothing to it.
    AddWithoutStore = "PF0507", UnneededAdd, Performance, "range is added to a transaction for nothing";
    /// One flush for several stores: right only as long as they share a line.
    SharedFlush = "PF0601", SharedFlush, Warning, "several stores under one flush";
    /// Several flushes under one fence: they become durable in any order.
    UnorderedFlushes = "PF0602", UnorderedFlushes, Warning, "several unordered flushes under one fence";
    /// Recovery reads a later store and misses an earlier one.
    NotRobust = "PF0603", Robustness, Warning, "recovery reads what no moment of the run had";
    /// A store that no flush is made for: it is durable because other bytes of its line are flushed.
    NeighbourFlush = "PF0604", NeighbourFlush, Warning, "durable only because a neighbour is flushed";
    /// A store that is not flushed before its thread has fenced many times.
    LateFlush = "PF0605", LateFlush, Warning, "dirty over many fences";
    /// Recovery reads bytes that are not surely durable. A warning where no run shows that it matters.
    CrossFailureRace = "PF0701", CrossFailureRace, Error, "recovery reads what may not be durable";
    /// Recovery reads bytes that a commit variable says are not valid.
    CrossFailureSemantic = "PF0702", CrossFailureSemantic, Error, "recovery reads what is not committed, or stale";
    /// Recovery reads bytes that were allocated and never written. A warning where no run shows that it
    /// matters.
    UninitialisedRead = "PF0703", UninitialisedRead, Error, "recovery reads memory that was never written";
    /// The program is ended by a signal, without any power failure.
    ProgramCrashes = "PF0801", ProgramCrash, Error, "program crashes without a power failure";
    /// The program does not end, without any power failure.
    ProgramHangs = "PF0802", ProgramHang, Error, "program hangs without a power failure";
    /// A file gets its name by a rename or a link before its data is durable.
    NamedBeforeSynced = "PF0901", Ordering, Error, "file gets its name before its data is durable";
    /// A name is made or changed, and its directory is not synced before the program says that it is done.
    DirectoryNotSynced = "PF0902", Durability, Error, "directory is not synced after a change of names";
    /// Data is written, and not synced before the program says that it is done.
    WriteNotSynced = "PF0903", Durability, Error, "acknowledged write is not synced";
    /// A crash leaves a part of a write that belongs together.
    WriteTorn = "PF0904", Atomicity, Error, "write is torn by a crash";
    /// A file is truncated and written anew: a crash leaves neither the old nor the new content.
    TruncatedInPlace = "PF0905", Atomicity, Error, "file is truncated and rewritten in place";
    /// The old copy of data is removed or overwritten before the new one is durable.
    RemovedBeforeSynced = "PF0906", Ordering, Error, "old copy is removed before the new one is durable";
    /// A sync that failed is repeated: the kernel has dropped the data and the second one reports success.
    SyncRetried = "PF0907", Durability, Error, "sync is retried after an error";
    /// A later write is durable without an earlier one that it depends on.
    WritesReordered = "PF0908", Ordering, Error, "write is durable before an earlier one";
    /// A sync of a file or directory in which nothing is new.
    RedundantSync = "PF0911", RedundantSync, Performance, "redundant sync";
    /// A temporary file and its target are on different file systems, so it is copied and not renamed.
    TemporaryElsewhere = "PF0921", CrossDevice, Warning, "temporary file is on another file system";
}

impl Code {
    /// Whether it is about ordinary files and the system calls that change them.
    pub const fn is_of_files(self) -> bool {
        matches!(
            self,
            Self::NamedBeforeSynced
                | Self::DirectoryNotSynced
                | Self::WriteNotSynced
                | Self::WriteTorn
                | Self::TruncatedInPlace
                | Self::RemovedBeforeSynced
                | Self::SyncRetried
                | Self::WritesReordered
                | Self::RedundantSync
                | Self::TemporaryElsewhere
        )
    }
}

impl Class {
    /// All classes, in their order.
    pub const ALL: [Self; 23] = [
        Self::Durability,
        Self::Atomicity,
        Self::Ordering,
        Self::RecoveryCrash,
        Self::RecoveryHang,
        Self::RedundantFlush,
        Self::RedundantFence,
        Self::VolatileFlush,
        Self::TransientData,
        Self::DirtyOverwrite,
        Self::SharedFlush,
        Self::UnorderedFlushes,
        Self::NeighbourFlush,
        Self::LateFlush,
        Self::Robustness,
        Self::CrossFailureRace,
        Self::CrossFailureSemantic,
        Self::UninitialisedRead,
        Self::UnneededAdd,
        Self::ProgramCrash,
        Self::ProgramHang,
        Self::RedundantSync,
        Self::CrossDevice,
    ];

    /// Whether it is about a read of recovery that is not safe.
    pub const fn is_of_reads(self) -> bool {
        matches!(
            self,
            Self::CrossFailureRace | Self::CrossFailureSemantic | Self::UninitialisedRead
        )
    }

    /// Whether it needs no power failure: the program fails by itself.
    pub const fn is_of_program(self) -> bool {
        matches!(self, Self::ProgramCrash | Self::ProgramHang)
    }

    /// As it is written in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Durability => "durability",
            Self::Atomicity => "atomicity",
            Self::Ordering => "ordering",
            Self::RecoveryCrash => "recovery-crash",
            Self::RecoveryHang => "recovery-hang",
            Self::RedundantFlush => "redundant-flush",
            Self::RedundantFence => "redundant-fence",
            Self::VolatileFlush => "volatile-flush",
            Self::TransientData => "transient-data",
            Self::DirtyOverwrite => "dirty-overwrite",
            Self::SharedFlush => "shared-flush",
            Self::UnorderedFlushes => "unordered-flushes",
            Self::NeighbourFlush => "neighbour-flush",
            Self::LateFlush => "late-flush",
            Self::Robustness => "robustness",
            Self::CrossFailureRace => "cross-failure-race",
            Self::CrossFailureSemantic => "cross-failure-semantic",
            Self::UninitialisedRead => "uninitialised-read",
            Self::UnneededAdd => "unneeded-add",
            Self::ProgramCrash => "program-crash",
            Self::ProgramHang => "program-hang",
            Self::RedundantSync => "redundant-sync",
            Self::CrossDevice => "cross-device",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|class| class.as_str() == text);
        found.ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(|class| class.as_str()).collect();
            format!(
                "there is no class `{text}`; the classes are {}",
                all.join(", ")
            )
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Code {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL
            .iter()
            .copied()
            .find(|code| code.as_str().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("there is no finding with the code `{text}`"))
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Performance => "performance",
            Self::Warning => "warning",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Code, Severity};

    #[test]
    fn names_survive_json_and_parsing() {
        for code in Code::ALL {
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{code}\""));
            assert_eq!(code.as_str().parse(), Ok(*code));
        }
        for class in Class::ALL {
            assert_eq!(
                serde_json::to_string(&class).unwrap(),
                format!("\"{class}\"")
            );
            assert_eq!(class.as_str().parse(), Ok(class));
        }
        for severity in [Severity::Error, Severity::Performance, Severity::Warning] {
            let json = serde_json::to_string(&severity).unwrap();
            assert_eq!(json, format!("\"{severity}\""));
        }
    }

    #[test]
    fn codes_are_sorted_and_unlike() {
        assert!(
            Code::ALL
                .windows(2)
                .all(|pair| pair[0].as_str() < pair[1].as_str())
        );
    }
}
