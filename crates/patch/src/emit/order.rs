//! Flushes, fences, locked operations on volatile memory, and loads that wait for their turn.

use powerfail_protocol::{EventKind, FLAG_ADDRESS, offset, turn};

use super::builder::Builder;
use super::settings::{LockedFences, VolatileFlushes};
use crate::assembler::{Condition, Label, gs};
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
        self.ask_for_turn();
        self.begin_record(self.header(kind, FLAG_ADDRESS, 0));
        self.commit();
        if kind != EventKind::Clflush {
            self.set_pending(true);
        }
        self.restore_all();
        if self.settings.executes_flushes || outside.is_none() {
            self.original_and_back();
        } else {
            self.back();
        }
        if let Some(outside) = outside {
            self.outside(outside, state);
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
        self.commit();
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
