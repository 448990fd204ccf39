//! Stores whose value does not depend on what was there.

use iced_x86::{Code, Register};
use powerfail_protocol::{EventKind, FLAG_ADDRESS, FLAG_MASKED, VALUE_AT};

use super::builder::{Builder, width};
use super::lock::Extent;
use super::state::WorkForm;
use crate::assembler::at;
use crate::classify::Store;

impl Builder<'_> {
    fn note_non_temporal(&mut self, store: Store) {
        if store.kind == EventKind::StoreNonTemporal {
            self.set_pending(true);
        }
    }

    /// A store of any form but strings: `body` emits what is done for an address in the window.
    fn store(&mut self, body: impl Fn(&mut Self)) {
        let outside = self.enter();
        let state = self.asm.state();
        self.go_inside();
        self.alone_or_shared(|builder| {
            body(builder);
            builder.restore_all();
            builder.back();
        });
        self.outside(outside, state);
    }

    /// The common case: the value is in a register or an immediate.
    pub(super) fn copy(&mut self, store: Store) {
        self.keeps_flags |= self.site.instruction.rflags_read() != 0;
        self.store(|builder| {
            let header = builder.store_header(store, FLAG_ADDRESS);
            builder.describe_record(header);
            builder.reload_operands();
            builder.on_record(0);
            builder.lock(Extent::Fixed(store.len_bytes));
            builder.switch_to_alias();
            builder.record_found(header);
            builder.commits_from_here();
            builder.commit();
            builder.note_non_temporal(store);
            builder.reload_operands();
            builder.on_alias();
            builder.unlock(WorkForm::Whole, Register::RAX);
        });
    }

    /// The store is executed over zeros and over ones: bytes that come out equal were written.
    pub(super) fn masked(&mut self, store: Store) {
        self.store(|builder| {
            builder.describe_record(builder.store_header(store, FLAG_ADDRESS | FLAG_MASKED));
            let image_len = u32::from(store.len_bytes).next_multiple_of(8);
            for word in (0..image_len).step_by(8) {
                for (image, fill) in [(0, 0), (image_len, -1)] {
                    let place = at(builder.record, VALUE_AT + image + word);
                    builder.asm.mi(Code::Mov_rm64_imm32, place, fill);
                }
            }
            builder.on_record(0);
            builder.on_record(image_len);
            builder.lock(Extent::Fixed(store.len_bytes));
            builder.switch_to_alias();
            builder.commits_from_here();
            builder.commit();
            builder.note_non_temporal(store);
            builder.on_alias();
            builder.unlock(WorkForm::Whole, Register::RAX);
        });
    }

    /// The x87 stack can be popped only once: to the record, and from there to the alias.
    pub(super) fn pop(&mut self, store: Store) {
        self.store(|builder| {
            builder.describe_record(builder.store_header(store, FLAG_ADDRESS));
            builder.on_record(0);
            builder.lock(Extent::Fixed(store.len_bytes));
            builder.switch_to_alias();
            builder.commit();
            builder.store_popped(store);
            builder.unlock(WorkForm::Popped, Register::RAX);
        });
    }

    /// From the record to the alias. The first of the moves is the work; all go to the same line or to two that exist.
    fn store_popped(&mut self, store: Store) {
        debug_assert!(self.address != Register::RAX);
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
    }
}
