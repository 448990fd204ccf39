//! What each file system promises. One value per rule, each with its source.
//!
//! Sources, in short: "ext4.rst" is `Documentation/admin-guide/ext4.rst` of Linux; "guarantees" is the
//! description of crash-recovery guarantees that was discussed on linux-fsdevel in March 2019 (Mohan,
//! Goldstein, Chinner: strictly ordered metadata consistency); names of functions are those of the kernel.
//! `docs/design/files.md` says more on each.

use super::operation::FileSystem;

/// The rules of one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one rule")]
pub(super) struct Rules {
    /// Whether logged operations become durable in the order of the calls. ext4: one journal, whose
    /// transactions commit in order (ext4.rst). XFS: strictly ordered metadata (guarantees). Btrfs: a
    /// transaction commit is a snapshot. POSIX: no word about order.
    pub(super) ordered: bool,
    /// Whether a write to a block that has a place on disk goes there without the log. Yes but for
    /// Btrfs, which never writes in place.
    pub(super) in_place: bool,
    /// Whether a page can be durable in part, sector by sector. Not in Btrfs: the new copy of a block is
    /// not referenced before all of it is written.
    pub(super) torn_pages: bool,
    /// What a sync of a file says about names.
    pub(super) sync_scope: SyncScope,
    /// What must be durable before a length that a write made.
    pub(super) length_needs: LengthNeeds,
    /// What a write beyond the end means for the length, if the file did not end with a page.
    pub(super) gap: Gap,
    /// Whether delayed blocks of a file get their place, and the file its length, before a rename that
    /// replaces a file, and at the close of a file that was truncated to nothing: `auto_da_alloc` of ext4
    /// (ext4.rst). The blocks are unwritten extents until their data is there, and read as zeros. XFS makes
    /// no such promise. Btrfs starts to write at such a rename and does not wait (`btrfs_rename`), and
    /// commits do not wait either (`noflushoncommit` is the default).
    pub(super) flush_on_replace: bool,
}

/// What a sync of a file or directory says about names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncScope {
    /// A file: nothing. A directory: the names in it. fsync(2): the entry of a file needs a sync of the
    /// directory.
    Node,
    /// The log up to the last change of the node: `ext4_fsync` waits for the transaction
    /// `i_sync_tid`, `xfs_file_fsync` forces the log to `ili_commit_seq`. Both are in order, so
    /// everything before is durable too.
    Log,
    /// The names of the node, those of its new ancestors, and what shares an entry with them: the log tree
    /// of Btrfs (comment "directory trouble cases" in `fs/btrfs/tree-log.c`; guarantees).
    LogTree,
}

/// What must be durable before a length that a write made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LengthNeeds {
    /// Nothing. ext4.rst promises for `data=ordered` that data of new blocks comes first. Since Linux 5.6 new
    /// blocks are unwritten extents (`dioread_nolock`), for which a commit does not wait, and a write into a
    /// block that exists moves `i_disksize` at once (`ext4_da_do_write_end`). `cargo xtask kernel` has
    /// seen files of the new length and full of zeros.
    Nothing,
    /// The page in which it ends: XFS moves the length on disk when the write-back that reaches it has
    /// ended (`xfs_setfilesize`); pages before it can be in flight, and read as zeros. Btrfs moves
    /// it at the end of an ordered extent (`btrfs_inode_safe_disk_i_size_write`).
    LastPage,
}

/// What a write beyond the end means for the length, if the file did not end with a page: the rest of that page is zeroed in
/// the cache and written back. All of this was seen by `cargo xtask kernel` (Linux 6.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// Nothing. ext4, and where a length needs nothing anyway.
    Nothing,
    /// The write-back of that page moves the length to its end (`xfs_setfilesize`), because the file is longer by then.
    EndsWithPage,
    /// The write-back of that page moves the length to where it is in memory: the new length needs no page of the write. Btrfs
    /// since holes have no items on disk (`no-holes` is the default of mkfs.btrfs since 5.15; in
    /// `btrfs_inode_safe_disk_i_size_write`).
    FreesLength,
}

impl Rules {
    /// The rules of the machines whose union a file system is.
    pub(super) fn of(file_system: FileSystem) -> Vec<(FileSystem, Self)> {
        match file_system {
            FileSystem::Linux => FileSystem::REAL.into_iter().flat_map(Self::of).collect(),
            FileSystem::Ext4 => vec![(file_system, EXT4)],
            FileSystem::Xfs => vec![(file_system, XFS)],
            FileSystem::Btrfs => vec![(file_system, BTRFS)],
            FileSystem::Posix => vec![(file_system, POSIX)],
        }
    }
}

const EXT4: Rules = Rules {
    ordered: true,
    in_place: true,
    torn_pages: true,
    sync_scope: SyncScope::Log,
    length_needs: LengthNeeds::Nothing,
    gap: Gap::Nothing,
    flush_on_replace: true,
};

const XFS: Rules = Rules {
    length_needs: LengthNeeds::LastPage,
    gap: Gap::EndsWithPage,
    flush_on_replace: false,
    ..EXT4
};

const BTRFS: Rules = Rules {
    in_place: false,
    torn_pages: false,
    sync_scope: SyncScope::LogTree,
    gap: Gap::FreesLength,
    ..XFS
};

const POSIX: Rules = Rules {
    ordered: false,
    in_place: true,
    torn_pages: true,
    sync_scope: SyncScope::Node,
    length_needs: LengthNeeds::Nothing,
    gap: Gap::Nothing,
    flush_on_replace: false,
};
