//! How a jump takes the place of an instruction.
//!
//! A jump has five bytes, most stores have fewer, and the bytes behind a store belong to
//! instructions that others may jump to. The tactics are those of `e9patch` (Duck, Gao, Roychoudhury:
//! Binary Rewriting without Control Flow Recovery, PLDI 2020), tried in this order:
//!
//! 1. **Jump**: the instruction is long enough.
//! 2. **Pun**: the last bytes of the displacement are the first bytes of what follows, as they are.
//!    The trampoline must lie where these bytes say.
//! 3. **Padded pun**: with meaningless prefixes before the jump, other bytes take part.
//! 4. **Successor eviction**: the next instruction moves to a trampoline of its own; the jump to that
//!    can be chosen so that the pun leads somewhere useful.
//! 5. **Neighbour eviction**: a short jump leads into an instruction near by that was evicted, where
//!    there is room for a long one.
//! 6. **Trap**: a store faults anyway; anything else gets a breakpoint.
//!
//! All but the first byte of every instruction that is changed must be free of branch targets, and
//! no byte that an earlier plan counts on may change ([`Claims`]). A pun over bytes of an instruction
//! that will be patched itself must wait for that: [`PlanError::SettleFirst`].
//!
//! Deviations from `e9patch`:
//!
//! 1. Sites are patched as they turn up instead of from the last to the first, so the order of
//!    neighbours is asked for instead of given.
//! 2. The place of a trampoline is chosen with an eye to a pun of the instruction before.
//! 3. Padding behind a return or a jump makes room too; it is never executed.
//! 4. Where two jumps share bytes, only the last shared byte is searched and the others are zero.

mod claims;
mod jump;
mod plan;

pub use claims::Claims;
pub use jump::Targets;
pub use plan::{Edit, Evicted, Plan, PlanError, Tactic, plan};

/// Code as it is in memory now, patches included.
#[derive(Clone, Copy, Debug)]
pub struct CodeView<'a> {
    /// Address of the first byte.
    pub address: u64,
    /// The bytes. Where they end, nothing is known and nothing is assumed.
    pub bytes: &'a [u8],
}

impl CodeView<'_> {
    /// The byte at an address.
    pub fn byte(&self, address: u64) -> Option<u8> {
        let offset = address.checked_sub(self.address)?;
        self.bytes.get(usize::try_from(offset).ok()?).copied()
    }

    /// The bytes from an address on.
    pub fn from(&self, address: u64) -> &[u8] {
        let offset = address
            .checked_sub(self.address)
            .and_then(|offset| usize::try_from(offset).ok());
        offset
            .and_then(|offset| self.bytes.get(offset..))
            .unwrap_or(&[])
    }
}

/// What the planner asks its caller about the process. All answers must stay true until the plan
/// is applied.
pub trait Surroundings {
    /// Whether control can come to this address other than from the instruction before it.
    fn is_branch_target(&self, address: u64) -> bool;

    /// Whether the instruction at this address will or may be patched later and no pun should
    /// rely on its bytes before.
    fn is_unsettled(&self, address: u64) -> bool;

    /// Where the instruction before the one at this address begins, as the target had it, if that is
    /// known. Only used to look for neighbours that can make room.
    fn instruction_before(&self, address: u64) -> Option<u64> {
        let _ = address;
        None
    }

    /// An address among `targets` where a trampoline of this length can lie, apart from `taken`
    /// (address and length), if there is one.
    fn place(&self, targets: Targets, len_bytes: usize, taken: Option<(u64, usize)>)
    -> Option<u64>;
}
