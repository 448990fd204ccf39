//! Naming the call stack: a search in the thread's table of known stacks.
//!
//! ```text
//! again:
//!     P = first entry of the list of (site, RSP)
//! look:
//!     P = 0? ask the runtime, then again
//!     another site, RSP, or RBP where it matters? next
//!     every check: is the word what it was? else next
//!     the slot of the stack = the entry's number
//! ```
//!
//! All registers that it uses are spilled before: P, RAX and RDX. Most checks are return addresses:
//! some ten loads and comparisons, which the processor makes side by side.

use core::mem::offset_of;

use iced_x86::{Code, MemoryOperand, Register};
use powerfail_protocol::stack::{Entry, FACTOR, HEADS_LOG2, SITE_FACTOR};
use powerfail_protocol::{ScratchSlot, offset};

use super::builder::Builder;
use crate::assembler::{Condition, Label, at, gs};

const VALUE_AT: u32 = 8;
const CHECK_LEN: i32 = 16;

fn field(offset: usize) -> u32 {
    offset as u32
}

impl Builder<'_> {
    /// Puts the number of the call stack into its slot. Uses RAX, RDX and the record's register.
    pub(super) fn find_stack(&mut self) {
        if !self.settings.names_stacks {
            return;
        }
        let entry = self.record;
        let site = self.id.0;
        let [again, look, next, miss, check] = [(); 5].map(|()| self.asm.label());
        self.asm.bind(again);
        self.asm
            .rr(Code::Mov_r32_rm32, Register::EAX, Register::ESP);
        self.asm.ri(
            Code::Add_rm32_imm32,
            Register::EAX,
            site.wrapping_mul(SITE_FACTOR).cast_signed(),
        );
        self.asm.rri(
            Code::Imul_r32_rm32_imm32,
            Register::EAX,
            FACTOR.cast_signed(),
        );
        let shift = (32 - HEADS_LOG2).cast_signed();
        self.asm.ri(Code::Shr_rm32_imm8, Register::EAX, shift);
        self.asm
            .rm(Code::Mov_r64_rm64, entry, gs(offset::STACK_TABLE));
        let head = MemoryOperand::with_base_index_scale(entry, Register::RAX, 8);
        self.asm.rm(Code::Mov_r64_rm64, entry, head);
        self.asm.bind(look);
        self.asm.rr(Code::Test_rm64_r64, entry, entry);
        self.asm.jump_if(Condition::Equal, miss);
        self.asm.mi(
            Code::Cmp_rm32_imm32,
            at(entry, field(offset_of!(Entry, site))),
            site.cast_signed(),
        );
        self.asm.jump_if(Condition::NotEqual, next);
        self.asm.mr(
            Code::Cmp_rm64_r64,
            at(entry, field(offset_of!(Entry, rsp))),
            Register::RSP,
        );
        self.asm.jump_if(Condition::NotEqual, next);
        self.asm
            .rr(Code::Mov_r64_rm64, Register::RAX, Register::RBP);
        self.asm.rm(
            Code::Xor_r64_rm64,
            Register::RAX,
            at(entry, field(offset_of!(Entry, rbp))),
        );
        self.asm.mr(
            Code::Test_rm64_r64,
            at(entry, field(offset_of!(Entry, rbp_mask))),
            Register::RAX,
        );
        self.asm.jump_if(Condition::NotEqual, next);
        self.asm.rm(
            Code::Lea_r64_m,
            Register::RDX,
            at(entry, size_of::<Entry>() as u32),
        );
        self.asm.bind(check);
        self.asm
            .rm(Code::Mov_r64_rm64, Register::RAX, at(Register::RDX, 0));
        self.asm
            .rm(Code::Mov_r64_rm64, Register::RAX, at(Register::RAX, 0));
        self.asm.rm(
            Code::Cmp_r64_rm64,
            Register::RAX,
            at(Register::RDX, VALUE_AT),
        );
        self.asm.jump_if(Condition::NotEqual, next);
        self.asm.ri(Code::Add_rm64_imm8, Register::RDX, CHECK_LEN);
        self.asm.rm(
            Code::Cmp_r64_rm64,
            Register::RDX,
            at(entry, field(offset_of!(Entry, end))),
        );
        self.asm.jump_if(Condition::NotEqual, check);
        self.asm.rm(
            Code::Mov_r32_rm32,
            Register::EAX,
            at(entry, field(offset_of!(Entry, id))),
        );
        self.asm.save(ScratchSlot::Stack, Register::RAX);
        self.searches_stack(Search {
            again,
            look,
            next,
            miss,
            state: self.asm.state(),
        });
    }

    /// The parts of the search that are rarely run. `entry` is the record's register.
    pub(super) fn finish_search(&mut self, search: Search) {
        let entry = self.record;
        self.asm.bind_in(search.next, search.state);
        let next = at(entry, field(offset_of!(Entry, next)));
        self.asm.rm(Code::Mov_r64_rm64, entry, next);
        self.asm.jump(search.look);
        self.asm.bind(search.miss);
        let pc = self.site.address();
        self.asm.load_constant(Register::RAX, pc);
        self.asm.save(ScratchSlot::StackPc, Register::RAX);
        self.asm
            .load_constant(Register::RAX, u64::from(self.id.0) + 1);
        self.asm.save(ScratchSlot::StackSite, Register::RAX);
        self.asm.address_of(Register::RAX, search.again);
        self.asm.save(ScratchSlot::Resume, Register::RAX);
        self.asm.m(Code::Jmp_rm64, gs(offset::REFILL_ENTRY));
    }
}

/// The labels of a search, and where the target's registers are in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    again: Label,
    look: Label,
    next: Label,
    miss: Label,
    state: u32,
}
