//! Which file a descriptor is of, and whether it is one of a tree.
//!
//! To find that out takes several system calls, as much as a write. So it is remembered for each descriptor, and forgotten
//! when the descriptor is closed, opened or copied. All calls that do so come by: functions that the runtime stands in for,
//! and system calls of code outside of the C library.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use powerfail_protocol::file::{WRITE_DATA_SYNC, WRITE_SYNC};

use crate::host;
use crate::platform::{number, sys};
use crate::record::files::{places, trees};

const O_APPEND: usize = 0o2000;
const O_DSYNC: usize = 0o10_000;
const O_SYNC: usize = 0o4_010_000;

const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// How many descriptors are remembered; of higher ones everything is found out anew.
const REMEMBERED: usize = 1024;

/// What is remembered of a descriptor. Readers take it only if the version is even and the same before and after.
struct Slot {
    version: AtomicU32,
    traits: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
}

static SLOTS: [Slot; REMEMBERED] = [const {
    Slot {
        version: AtomicU32::new(0),
        traits: AtomicU32::new(0),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
    }
}; REMEMBERED];

/// What is known of an open file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Traits(u32);

impl Traits {
    const KNOWN: u32 = 1;
    const IN_TREE: u32 = 2;
    const APPENDS: u32 = 4;
    const SYNCS: u32 = 8;
    const SYNCS_DATA: u32 = 16;

    pub(super) fn new(is_in_tree: bool, flags: usize) -> Self {
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        Self(
            Self::KNOWN
                | bit(is_in_tree, Self::IN_TREE)
                | bit(flags & O_APPEND != 0, Self::APPENDS)
                | bit(flags & O_SYNC == O_SYNC, Self::SYNCS)
                | bit(flags & O_DSYNC != 0, Self::SYNCS_DATA),
        )
    }

    pub(super) const fn is_in_tree(self) -> bool {
        self.0 & Self::IN_TREE != 0
    }

    pub(super) const fn appends(self) -> bool {
        self.0 & Self::APPENDS != 0
    }

    /// What each write makes durable.
    pub(super) const fn sync(self) -> u64 {
        if self.0 & Self::SYNCS != 0 {
            WRITE_SYNC
        } else if self.0 & Self::SYNCS_DATA != 0 {
            WRITE_DATA_SYNC
        } else {
            0
        }
    }
}

/// Whether it is a regular file.
pub(super) const fn is_regular(status: &sys::FileStatus) -> bool {
    status.mode & FILE_TYPE == REGULAR
}

/// An open file.
#[derive(Clone, Copy)]
pub(super) struct OpenFile {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) traits: Traits,
}

/// What a descriptor that is about to be written to is of; `None` if it is not a regular file.
pub(super) fn open_file(fd: i32) -> Option<OpenFile> {
    if let Some(known) = known(fd) {
        return Some(known);
    }
    let status = sys::fstat(fd).filter(is_regular)?;
    Some(OpenFile {
        device: status.device,
        inode: status.inode,
        traits: look_up(fd, &status),
    })
}

/// What is known of a descriptor that is about to be written to.
pub(super) fn look_up(fd: i32, status: &sys::FileStatus) -> Traits {
    if let Some(known) = remembered(fd, status) {
        return known;
    }
    let path = places::of_descriptor(fd);
    let is_in_tree = path.is_some_and(|path| trees::has_changed(path.bytes()));
    let traits = Traits::new(is_in_tree, flags_of(fd));
    remember(fd, status, traits);
    traits
}

fn slot(fd: i32) -> Option<&'static Slot> {
    SLOTS.get(usize::try_from(fd).ok()?)
}

fn remembered(fd: i32, status: &sys::FileStatus) -> Option<Traits> {
    let known = known(fd)?;
    let is_it = (known.device, known.inode) == (status.device, status.inode);
    is_it.then_some(known.traits)
}

fn known(fd: i32) -> Option<OpenFile> {
    let slot = slot(fd)?;
    let version = slot.version.load(Ordering::Acquire);
    let traits = slot.traits.load(Ordering::Acquire);
    let device = slot.device.load(Ordering::Acquire);
    let inode = slot.inode.load(Ordering::Acquire);
    let is_whole = version.is_multiple_of(2) && slot.version.load(Ordering::Acquire) == version;
    (is_whole && traits & Traits::KNOWN != 0).then_some(OpenFile {
        device,
        inode,
        traits: Traits(traits),
    })
}

/// Remembers a descriptor that was just opened.
pub(super) fn remember(fd: i32, status: &sys::FileStatus, traits: Traits) {
    // A child of vfork has descriptors of its own in the memory of its parent.
    let Some(slot) = slot(fd).filter(|_| host::owns_memory()) else {
        return;
    };
    let version = slot.version.load(Ordering::Acquire);
    let is_ours = version.is_multiple_of(2)
        && slot
            .version
            .compare_exchange(version, version + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
    // Another thread changes it: then nothing is known.
    if is_ours {
        slot.traits.store(traits.0, Ordering::Release);
        slot.device.store(status.device, Ordering::Release);
        slot.inode.store(status.inode, Ordering::Release);
        slot.version.store(version + 2, Ordering::Release);
    } else {
        slot.traits.store(0, Ordering::Release);
    }
}

/// A descriptor may be of another file from now on, or have other flags.
pub(crate) fn forget(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.traits.store(0, Ordering::Release);
    }
}

/// Any descriptor may be of another file from now on: some came in a message.
pub(crate) fn forget_all() {
    for slot in &SLOTS {
        slot.traits.store(0, Ordering::Release);
    }
}

#[allow(unsafe_code, reason = "asks the kernel for flags")]
fn flags_of(fd: i32) -> usize {
    const F_GETFL: usize = 3;
    // SAFETY: `F_GETFL` takes no pointer and changes nothing.
    let flags = unsafe { sys::call(number::FCNTL, [fd as usize, F_GETFL, 0, 0, 0, 0]) };
    usize::try_from(flags).unwrap_or(0)
}
