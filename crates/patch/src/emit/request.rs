//! Client requests of Valgrind: the runtime answers them, by the way that a full chunk goes.

use iced_x86::{Code, Register};
use powerfail_protocol::{ScratchSlot, offset};

use super::builder::Builder;
use crate::assembler::gs;

impl Builder<'_> {
    /// Asks the runtime and continues behind the sequence, with the result in RDX and everything else as
    /// it was. (The flags too, which natively are those of the last rotation: nothing depends on them.)
    pub(super) fn request(&mut self) {
        self.asm.spill(Register::RAX);
        if self.keeps_flags {
            self.asm.spill_flags();
        }
        self.go_inside();
        self.find_stack();
        let go_on = self.asm.label();
        self.asm.load_constant(Register::RAX, self.site.address());
        self.asm.save(ScratchSlot::StackPc, Register::RAX);
        self.asm
            .load_constant(Register::RAX, u64::from(self.id.0) + 1);
        self.asm.save(ScratchSlot::Request, Register::RAX);
        self.asm.address_of(Register::RAX, go_on);
        self.asm.save(ScratchSlot::Resume, Register::RAX);
        self.asm.m(Code::Jmp_rm64, gs(offset::REFILL_ENTRY));
        self.asm.bind(go_on);
        self.asm.load(Register::RDX, ScratchSlot::RdxOut);
        self.asm.restored(Register::RDX);
        self.asm.restore(self.record);
        self.restore_flags_and_rax(ScratchSlot::Flags, ScratchSlot::Register(0));
        self.back();
    }
}
