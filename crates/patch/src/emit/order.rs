//! Flushes, fences, locked operations on volatile memory, and loads that wait for their turn.

use powerfail_protocol::{EventKind, FLAG_ADDRESS, FLUSHED_WORD_LEN, VALUE_AT, offset, turn};

use super::builder::Builder;
use super::lock::Extent;
use super::settings::{LockedFences, VolatileFlushes};
use super::state::WorkForm;
use crate::assembler::{Condition, Label, at, gs};
use iced_x86::{Code, Register};

impl Builder<'_> {
    /// Recorded, then executed where the target said: both mappings share their lines.
    pub(super) fn flush(&mut self, kind: EventKind) {
        let outside = match self.settings.volatile_flushes {
            VolatileFlushes::Ignored => Some(self.enter()),
            VolatileFlushes::Recorded => {
                self.enter_anywhere();
                None
            }
        };
        let state = self.asm.state();
        self.go_inside();
        self.alone_or_shared(|builder| {
            if !builder.is_shared {
                return builder.loose_flush(kind, outside.is_none());
            }
            let volatile = outside
                .is_none()
                .then(|| builder.check_window(builder.address));
            let state = builder.asm.state();
            builder.locked_flush(kind);
            if let Some(volatile) = volatile {
                builder.asm.bind_in(volatile, state);
                builder.loose_flush(kind, true);
            }
        });
        if let Some(outside) = outside {
            self.outside(outside, state);
        }
    }

    /// A flush that no store of another thread races with, or that is not of a pool.
    fn loose_flush(&mut self, kind: EventKind, may_be_volatile: bool) {
        self.describe_record(self.header(kind, FLAG_ADDRESS, 0));
        if self.is_shared {
            self.show_reservation();
        }
        self.commit();
        self.note_flush(kind);
        self.restore_all();
        if self.settings.executes_flushes || may_be_volatile {
            self.original_and_back();
        } else {
            self.back();
        }
    }

    /// A flush that has its place among the stores to its line. The record has a word of the line, as the flush found it.
    fn locked_flush(&mut self, kind: EventKind) {
        self.describe_record(self.header(kind, FLAG_ADDRESS, FLUSHED_WORD_LEN));
        self.lock(Extent::Fixed(1));
        self.asm.rr(Code::Mov_r64_rm64, Register::RAX, self.address);
        let mask = -i32::from(FLUSHED_WORD_LEN);
        self.asm.ri(Code::And_rm64_imm8, Register::RAX, mask);
        self.asm
            .rm(Code::Mov_r64_rm64, Register::RAX, at(Register::RAX, 0));
        let word = at(self.record, VALUE_AT);
        self.asm.mr(Code::Mov_rm64_r64, word, Register::RAX);
        self.commit();
        self.note_flush(kind);
        self.works_here();
        if self.settings.executes_flushes {
            let instruction = self.redirected(self.address, 0);
            self.asm.op(instruction);
        }
        self.unlock(WorkForm::Whole, Register::RAX);
        self.restore_all();
        self.back();
    }

    fn note_flush(&mut self, kind: EventKind) {
        if kind != EventKind::Clflush {
            self.set_pending(true);
        }
    }

    /// Not recorded. The runtime may hold the thread up before it.
    pub(super) fn load(&mut self) {
        self.keeps_flags |= self.site.instruction.rflags_read() != 0;
        let outside = self.enter();
        let state = self.asm.state();
        self.ask_for_turn_for(turn::READ);
        self.restore_entered();
        self.original_and_back();
        self.outside(outside, state);
    }

    /// Recorded, then executed.
    pub(super) fn fence(&mut self, kind: EventKind) {
        self.asm.spill(self.address);
        self.asm.spill(Register::RAX);
        if self.keeps_flags {
            self.asm.spill_flags();
        }
        self.ask_for_turn();
        self.record_fence(kind);
        self.original_and_back();
    }

    fn record_fence(&mut self, kind: EventKind) {
        self.go_inside();
        self.begin_record(self.header(kind, 0, 0));
        self.stamp_alone_or_shared();
        self.write_stamp();
        self.set_pending(false);
        self.restore_all();
    }

    /// The end of a trampoline of a locked operation for addresses outside the window: there it
    /// is a fence. One that is nothing else is recorded like an mfence, each time.
    pub(super) fn locked_outside(&mut self, label: Label, state: u32) {
        let kind = self.site.locked_fence();
        match self.settings.locked_fences {
            LockedFences::Never => return self.outside(label, state),
            LockedFences::WhenPending if kind == EventKind::FenceLocked => {
                self.asm.bind_in(label, state);
                let idle = self.asm.label();
                self.asm.mi(Code::Cmp_rm32_imm8, gs(offset::PENDING), 0);
                self.asm.jump_if(Condition::Equal, idle);
                self.record_fence(EventKind::FenceLocked);
                self.original_and_back();
                return self.outside(idle, state);
            }
            LockedFences::Always | LockedFences::WhenPending => self.asm.bind_in(label, state),
        }
        self.record_fence(kind);
        self.original_and_back();
    }
}
