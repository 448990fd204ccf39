//! The table of known call stacks of a thread: how emitted code names a stack without unwinding.
//!
//! Unwinding costs hundreds of nanoseconds, and most stacks repeat. A stack that was unwound once is
//! remembered with what its unwinding depended on: the site, RSP, RBP where a frame is found by it,
//! and words of the stack (return addresses, saved frame pointers) with their values. If all of
//! them are the same again, so is the stack.
//!
//! The table has [`HEADS`] words, each the address of the first [`Entry`] of a list, or zero. An
//! entry is followed by its checks, at least one. Only its own thread changes the table, and entries
//! stay where they are as long as emitted code of this thread may be interrupted among them.

/// Lists in a table. A power of two.
pub const HEADS: usize = 1 << HEADS_LOG2;
/// Its logarithm.
pub const HEADS_LOG2: u32 = 11;

/// A known call stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The site.
    pub site: u32,
    /// The number of the call stack, from the numbers of sites.
    pub id: u32,
    /// RSP at the site.
    pub rsp: u64,
    /// RBP at the site.
    pub rbp: u64,
    /// All ones if RBP matters, else zero.
    pub rbp_mask: u64,
    /// The address behind the last check.
    pub end: u64,
    /// The next entry of the list, or zero.
    pub next: u64,
}

/// A word of the stack that must be unchanged.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Its address.
    pub address: u64,
    /// Its value.
    pub value: u64,
}

/// The list in which the stacks of a site at a stack pointer are. Emitted code computes the same.
pub const fn head_of(site: u32, rsp: u64) -> usize {
    let mixed = (rsp as u32)
        .wrapping_add(site.wrapping_mul(SITE_FACTOR))
        .wrapping_mul(FACTOR);
    (mixed >> (32 - HEADS_LOG2)) as usize
}

/// How far below the top of the slow stack the stub has put the target's RBP when it calls the
/// runtime; RSP is in its slot.
pub const RBP_BELOW_TOP: u64 = 7 * 8;

/// Spreads sites.
pub const SITE_FACTOR: u32 = 0x85eb_ca6b;
/// Spreads stack pointers.
pub const FACTOR: u32 = 0x9e37_79b1;

#[cfg(test)]
mod tests {
    use super::{HEADS, head_of};

    #[test]
    fn lists_are_in_the_table() {
        let first = head_of(0, 0x7fff_ffff_0000);
        assert!(first < HEADS);
        assert!((1..100).any(|site| head_of(site, 0x7fff_ffff_0000) != first));
    }
}
