//! The locks that stores take where other threads may store to the same bytes ([`powerfail_protocol::store_lock`]).
//!
//! ```text
//! again:
//!     RDX = lock of the record's address;  the last byte has another one? go to WIDE
//!     slot of the lock = RDX;  lock cmpxchg [RDX], record;  not free? go to BUSY
//! locked:
//!     what was there, stamp, the work
//!     a second lock? give it back
//!     give the lock back
//! released:
//!
//! WIDE:
//!     take both, then go to locked;  the second is not free? give the first back
//! BUSY:
//!     let the runtime wait, then again
//! ```
//!
//! The lock instruction orders the work behind the taking, and x86 keeps stores in their order, so a thread that sees a lock
//! free sees the store that was made under it. Its stamp is not smaller: the thread looks at the clock after the lock was taken.
//! Non-temporal stores keep no order, so under a lock ordinary ones take their place.

use iced_x86::{Code, MemoryOperand, Register};
use powerfail_protocol::{
    ADDRESS_AT, FLAG_FOUND, Header, STAMP_AT, ScratchSlot, offset, store_lock,
};

use super::builder::{Builder, width};
use super::state::WorkForm;
use crate::assembler::{Condition, Label, at, gs};

pub(super) const LOCK: u8 = 0xf0;

/// How many bytes a store writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    Fixed(u16),
    Register(Register),
}

impl Extent {
    /// The address of the last byte of what begins at the address in a register.
    fn last_byte(self, first: Register) -> MemoryOperand {
        match self {
            Self::Fixed(len_bytes) => at(first, u32::from(len_bytes) - 1),
            Self::Register(len_bytes) => {
                MemoryOperand::with_base_index_scale_displ_size(first, len_bytes, 1, -1, 1)
            }
        }
    }
}

/// The labels of a lock, and where the target's registers are around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locking {
    again: Label,
    wide: Label,
    busy: Label,
    locked: Label,
    extent: Extent,
    state: u32,
}

/// An exchange under a lock that did not succeed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    failed: Label,
    retry: Label,
    scratch: Register,
    state: u32,
}

impl Builder<'_> {
    /// Emits the body of a store twice: for pools that only this thread stores to, and for pools that are shared. Each
    /// returns to the target by itself.
    pub(super) fn alone_or_shared(&mut self, body: impl Fn(&mut Self)) {
        self.ask_for_turn();
        self.find_stack();
        let shared = self.asm.label();
        self.asm.mi(Code::Cmp_rm32_imm8, gs(offset::IS_SHARED), 0);
        self.asm.jump_if(Condition::NotEqual, shared);
        let state = self.asm.state();
        body(self);
        self.asm.bind_in(shared, state);
        self.is_shared = true;
        body(self);
        self.is_shared = false;
    }

    /// Takes the locks of what the record describes, if pools are shared. Uses RAX and RDX.
    pub(super) fn lock(&mut self, extent: Extent) {
        const OUTSIDE_GRANULE: i32 = -(store_lock::GRANULE_LEN as i32);
        if !self.is_shared {
            return;
        }
        let [again, wide, busy, locked] = [(); 4].map(|()| self.asm.label());
        self.asm.bind(again);
        self.asm.rm(
            Code::Mov_r64_rm64,
            Register::RDX,
            at(self.record, ADDRESS_AT),
        );
        self.asm.rm(
            Code::Lea_r64_m,
            Register::RAX,
            extent.last_byte(Register::RDX),
        );
        self.asm
            .rr(Code::Xor_r64_rm64, Register::RAX, Register::RDX);
        self.asm
            .ri(Code::Test_rm32_imm32, Register::EAX, OUTSIDE_GRANULE);
        self.asm.jump_if(Condition::NotEqual, wide);
        self.take_lock(ScratchSlot::Lock);
        self.asm.jump_if(Condition::NotEqual, busy);
        self.asm.bind(locked);
        self.locking = Some(Locking {
            again,
            wide,
            busy,
            locked,
            extent,
            state: self.asm.state(),
        });
    }

    /// Takes the lock of the address in RDX, and names it in a slot. The zero flag says whether it was free. Uses RAX.
    fn take_lock(&mut self, slot: ScratchSlot) {
        self.asm.ri(
            Code::Shr_rm64_imm8,
            Register::RDX,
            store_lock::OFFSET_SHIFT.cast_signed(),
        );
        self.asm.ri(
            Code::And_rm32_imm32,
            Register::EDX,
            store_lock::OFFSET_MASK.cast_signed(),
        );
        self.asm
            .rm(Code::Add_r64_rm64, Register::RDX, gs(offset::STORE_LOCKS));
        self.asm.save(slot, Register::RDX);
        self.asm
            .rr(Code::Xor_r32_rm32, Register::EAX, Register::EAX);
        self.asm.raw(&[LOCK]);
        self.asm
            .mr(Code::Cmpxchg_rm64_r64, at(Register::RDX, 0), self.record);
    }

    /// Copies the old bytes into the record, if it has room for them. The address register holds the alias. Uses RAX.
    pub(super) fn record_found(&mut self, header: Header) {
        if header.flags & FLAG_FOUND == 0 {
            return;
        }
        let mut done = 0;
        while done < header.value_len {
            let len = 1 << (header.value_len - done).ilog2().min(3);
            let moves = width(len);
            self.asm
                .rm(moves.load, moves.rax, at(self.address, u32::from(done)));
            let place = at(self.record, header.found_at() + u32::from(done));
            self.asm.mr(moves.store, place, moves.rax);
            done += len;
        }
    }

    /// Gives the locks back, if pools are shared: the work is done. `scratch` is free, and the flags are.
    pub(super) fn unlock(&mut self, form: WorkForm, scratch: Register) {
        if self.is_shared {
            self.give_back(scratch);
            self.locked_work_ends(form);
        }
    }

    fn give_back(&mut self, scratch: Register) {
        let single = self.asm.label();
        let second = ScratchSlot::SecondLock;
        self.asm.mi(Code::Cmp_rm64_imm8, gs(second.offset()), 0);
        self.asm.jump_if(Condition::Equal, single);
        self.asm.load(scratch, second);
        self.asm.mi(Code::Mov_rm64_imm32, at(scratch, 0), 0);
        self.asm.mi(Code::Mov_rm64_imm32, gs(second.offset()), 0);
        self.asm.bind(single);
        self.asm.load(scratch, ScratchSlot::Lock);
        self.asm.mi(Code::Mov_rm64_imm32, at(scratch, 0), 0);
    }

    /// After an exchange under a lock: gives the lock back. If the exchange did not succeed, everything from `retry` on is
    /// done again.
    pub(super) fn unlock_or_retry(&mut self, retry: Label, scratch: Register) {
        let failed = self.asm.label();
        let behind_work_at = self.asm.position();
        self.asm.jump_if(Condition::NotEqual, failed);
        self.failure = Some(Failure {
            failed,
            retry,
            scratch,
            state: self.asm.state(),
        });
        self.unlock(WorkForm::Exchange { behind_work_at }, scratch);
    }

    /// The parts that are rarely run.
    pub(super) fn finish_lock(&mut self, locking: Locking) {
        let Locking {
            again,
            wide,
            busy,
            locked,
            extent,
            state,
        } = locking;
        self.asm.bind_in(wide, state);
        self.take_lock(ScratchSlot::Lock);
        self.asm.jump_if(Condition::NotEqual, busy);
        self.asm.rm(
            Code::Mov_r64_rm64,
            Register::RDX,
            at(self.record, ADDRESS_AT),
        );
        self.asm.rm(
            Code::Lea_r64_m,
            Register::RDX,
            extent.last_byte(Register::RDX),
        );
        self.take_lock(ScratchSlot::SecondLock);
        self.asm.jump_if(Condition::Equal, locked);
        // The second is not ours, and must not be named when a handler runs, which it may once the first is free.
        self.asm.mi(
            Code::Mov_rm64_imm32,
            gs(ScratchSlot::SecondLock.offset()),
            0,
        );
        self.asm.load(Register::RAX, ScratchSlot::Lock);
        self.asm.mi(Code::Mov_rm64_imm32, at(Register::RAX, 0), 0);
        self.asm.save(ScratchSlot::Lock, Register::RDX);
        self.asm.bind(busy);
        self.asm.load_constant(Register::RAX, 1);
        self.asm.save(ScratchSlot::LockWait, Register::RAX);
        self.asm.address_of(Register::RAX, again);
        self.asm.save(ScratchSlot::Resume, Register::RAX);
        self.asm.m(Code::Jmp_rm64, gs(offset::REFILL_ENTRY));
    }

    /// What an exchange leads to that did not succeed.
    pub(super) fn finish_failure(&mut self, failure: Failure) {
        self.asm.bind_in(failure.failed, failure.state);
        self.give_back(failure.scratch);
        self.asm
            .mi(Code::Mov_rm64_imm32, at(self.record, STAMP_AT), 0);
        self.asm.jump(failure.retry);
    }
}
