//! Functions of the C library that are known by their addresses.

use crate::libc::interpose;
use crate::platform::lock::Lock;

use super::load_stacks;

/// Where some functions are: from, to, in order.
pub(super) struct FoundFunctions(Lock<Vec<(u64, u64)>>);

impl FoundFunctions {
    /// None are known yet.
    pub(super) const fn new() -> Self {
        Self(Lock::new(Vec::new()))
    }

    /// Looks for functions, as the dynamic linker has chosen them for this processor.
    pub(super) fn find(&self, names: &[&'static str]) {
        let mut found: Vec<(u64, u64)> = names
            .iter()
            .filter_map(|name| load_stacks::function_at(interpose::maybe_find(name)?))
            .collect();
        found.sort_unstable();
        found.dedup();
        self.0.with(|all| *all = found);
    }

    /// Whether an address lies in one of them.
    pub(super) fn contain(&self, code: u64) -> bool {
        self.0.with(|all| {
            let behind = all.partition_point(|(from, _)| *from <= code);
            behind > 0 && code < all[behind - 1].1
        })
    }

    /// In a copy of the recovery that it has made itself.
    pub(super) fn reset_after_fork(&self) {
        self.0.reset_after_fork();
    }
}
