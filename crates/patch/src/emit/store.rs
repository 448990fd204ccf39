//! Stores whose value does not depend on what was there.

use iced_x86::{Code, Register};
use powerfail_protocol::{EventKind, FLAG_ADDRESS, FLAG_MASKED, VALUE_AT};

use super::builder::{Builder, width};
use crate::assembler::at;
use crate::classify::Store;

impl Builder<'_> {
    fn note_non_temporal(&mut self, store: Store) {
        if store.kind == EventKind::StoreNonTemporal {
            self.set_pending(true);
        }
    }

    /// The common case: the value is in a register or an immediate.
    pub(super) fn copy(&mut self, store: Store) {
        self.keeps_flags |= self.site.instruction.rflags_read() != 0;
        let outside = self.enter();
        let state = self.asm.state();
        self.go_inside();
        self.ask_for_turn();
        self.begin_record(self.header(store.kind, FLAG_ADDRESS, store.len_bytes));
        self.reload_operands();
        self.on_record(0);
        self.commit();
        self.switch_to_alias();
        self.note_non_temporal(store);
        self.reload_operands();
        self.on_alias();
        self.restore_all();
        self.back();
        self.outside(outside, state);
    }

    /// The store is executed over zeros and over ones: bytes that come out equal were written.
    pub(super) fn masked(&mut self, store: Store) {
        let outside = self.enter();
        let state = self.asm.state();
        self.go_inside();
        self.ask_for_turn();
        self.begin_record(self.header(store.kind, FLAG_ADDRESS | FLAG_MASKED, store.len_bytes));
        let image_len = u32::from(store.len_bytes).next_multiple_of(8);
        for word in (0..image_len).step_by(8) {
            self.asm
                .mi(Code::Mov_rm64_imm32, at(self.record, VALUE_AT + word), 0);
            self.asm.mi(
                Code::Mov_rm64_imm32,
                at(self.record, VALUE_AT + image_len + word),
                -1,
            );
        }
        self.on_record(0);
        self.on_record(image_len);
        self.commit();
        self.switch_to_alias();
        self.note_non_temporal(store);
        self.on_alias();
        self.restore_all();
        self.back();
        self.outside(outside, state);
    }

    /// The x87 stack can be popped only once: to the record, and from there to the alias.
    pub(super) fn pop(&mut self, store: Store) {
        let outside = self.enter();
        let state = self.asm.state();
        self.go_inside();
        self.ask_for_turn();
        self.begin_record(self.header(store.kind, FLAG_ADDRESS, store.len_bytes));
        self.on_record(0);
        self.commit();
        self.switch_to_alias();
        // The first of the moves is the work; all go to the same line or to two that exist.
        let mut done = 0;
        while done < store.len_bytes {
            let len = if store.len_bytes - done >= 8 {
                8
            } else {
                store.len_bytes - done
            };
            let moves = width(len);
            self.asm.rm(
                moves.load,
                moves.rax,
                at(self.record, VALUE_AT + u32::from(done)),
            );
            if done == 0 {
                self.works_here();
            }
            self.asm
                .mr(moves.store, at(self.address, u32::from(done)), moves.rax);
            done += len;
        }
        debug_assert!(self.address != Register::RAX);
        self.restore_all();
        self.back();
        self.outside(outside, state);
    }
}
