//! Descriptors that the runtime keeps open in a target that may close them.
//!
//! A target that closes all descriptors may get the number of one of ours for a file of its own. So a number alone says
//! nothing: what it refers to is compared each time.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::platform::sys;

/// A descriptor and the file that it must refer to.
#[derive(Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) fd: i32,
    pub(crate) inode: u32,
}

impl Descriptor {
    /// An open descriptor.
    pub(crate) fn of(fd: i32) -> Option<Self> {
        let inode = sys::fstat(fd)?.inode as u32;
        Some(Self { fd, inode })
    }

    /// Whether it is open and still refers to the same file.
    pub(crate) fn is_open(self) -> bool {
        sys::fstat(self.fd).is_some_and(|status| status.inode as u32 == self.inode)
    }

    const fn to_number(self) -> u64 {
        (self.fd as u64) << 32 | self.inode as u64
    }
}

/// Where a descriptor of ours is kept.
pub(crate) struct DescriptorCell(AtomicU64);

impl DescriptorCell {
    const NONE: u64 = u64::MAX;

    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }

    /// What was put here last, open or not.
    pub(crate) fn last(&self) -> Option<Descriptor> {
        let number = self.0.load(Ordering::Relaxed);
        (number != Self::NONE).then_some(Descriptor {
            fd: (number >> 32) as i32,
            inode: number as u32,
        })
    }

    /// The descriptor, if the target has not closed it.
    pub(crate) fn get(&self) -> Option<Descriptor> {
        self.last().filter(|descriptor| descriptor.is_open())
    }

    pub(crate) fn set(&self, descriptor: Option<Descriptor>) {
        let number = descriptor.map_or(Self::NONE, Descriptor::to_number);
        self.0.store(number, Ordering::Relaxed);
    }

    /// Puts another one in the place of what was here; false if there is another one already.
    pub(crate) fn replace(&self, before: Option<Descriptor>, now: Descriptor) -> bool {
        let before = before.map_or(Self::NONE, Descriptor::to_number);
        let now = now.to_number();
        self.0
            .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}
