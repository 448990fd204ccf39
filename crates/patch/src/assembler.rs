//! A small assembler: instructions one after the other, labels, and where the target's registers
//! are meanwhile.
//!
//! Every jump has a 32-bit displacement, so that the length of code does not depend on where it
//! lies. Errors are kept until the end: a caller emits a whole trampoline and asks once.

use core::mem;

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};
use powerfail_protocol::ScratchSlot;

use crate::emit::{EmitError, StateMap, WaysOut};
use crate::encode;

const LAHF: u8 = 0x9f;
const SAHF: u8 = 0x9e;
const SETO_AL: [u8; 3] = [0x0f, 0x90, 0xc0];
const ADD_AL_7F: [u8; 3] = [0x80, 0xc0, 0x7f];

const MAX_LABELS: usize = 64;
const MAX_FIXUPS: usize = 96;

/// A place in the code, bound now or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Conditions, as in the low half of a conditional jump's opcode.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    AboveOrEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowOrEqual = 6,
}

pub(crate) struct Assembler<'e> {
    encoder: &'e mut Encoder,
    base: u64,
    /// The code so far, in the encoder's buffer.
    code: Vec<u8>,
    labels: [Option<usize>; MAX_LABELS],
    label_count: usize,
    fixups: [(usize, Label); MAX_FIXUPS],
    fixup_count: usize,
    states: StateMap,
    /// What depends on where the code lies.
    ways_out: WaysOut,
    error: Option<EmitError>,
}

/// Code that is complete.
pub(crate) struct Assembled {
    pub(crate) len_bytes: usize,
    pub(crate) states: StateMap,
    pub(crate) ways_out: WaysOut,
}

/// `[register + displacement]`.
pub(crate) fn at(register: Register, displacement: u32) -> MemoryOperand {
    let displacement = i64::from(displacement);
    MemoryOperand::new(
        register,
        Register::None,
        1,
        displacement,
        u32::from(displacement != 0),
        false,
        Register::None,
    )
}

/// `gs:[offset]`.
pub(crate) fn gs(offset: u32) -> MemoryOperand {
    MemoryOperand::new(
        Register::None,
        Register::None,
        1,
        i64::from(offset),
        8,
        false,
        Register::GS,
    )
}

/// The number of a general-purpose register of any width in machine code.
pub(crate) fn number(register: Register) -> u8 {
    register.full_register().number() as u8
}

impl<'e> Assembler<'e> {
    pub(crate) fn new(encoder: &'e mut Encoder, base: u64) -> Self {
        let code = encoder.take_buffer();
        Self {
            encoder,
            base,
            code,
            labels: [None; MAX_LABELS],
            label_count: 0,
            fixups: [(0, Label(0)); MAX_FIXUPS],
            fixup_count: 0,
            states: StateMap::default(),
            ways_out: WaysOut::default(),
            error: None,
        }
    }

    pub(crate) fn fail(&mut self, error: EmitError) {
        self.error.get_or_insert(error);
    }

    /// Appends an instruction.
    pub(crate) fn op(&mut self, instruction: Instruction) {
        if instruction.is_ip_rel_memory_operand() || instruction.near_branch_target() != 0 {
            self.ways_out.add_unknown();
        }
        let here = self.base.wrapping_add(self.code.len() as u64);
        self.encoder.set_buffer(mem::take(&mut self.code));
        let encoded = self.encoder.encode(&instruction, here);
        self.code = self.encoder.take_buffer();
        if encoded.is_err() {
            self.fail(EmitError::Encoding(instruction.code()));
        }
    }

    pub(crate) fn op0(&mut self, code: Code) {
        self.op(Instruction::with(code));
    }

    /// Register, register.
    pub(crate) fn rr(&mut self, code: Code, to: Register, from: Register) {
        if let Some(encoded) = encode::registers(code, to, from) {
            return self.raw(encoded.bytes());
        }
        self.built(code, Instruction::with2(code, to, from).ok());
    }

    /// Register, memory.
    pub(crate) fn rm(&mut self, code: Code, to: Register, from: MemoryOperand) {
        if let Some(encoded) = encode::memory(code, to, &from) {
            return self.raw(encoded.bytes());
        }
        self.built(code, Instruction::with2(code, to, from).ok());
    }

    /// Memory, register.
    pub(crate) fn mr(&mut self, code: Code, to: MemoryOperand, from: Register) {
        if let Some(encoded) = encode::memory(code, from, &to) {
            return self.raw(encoded.bytes());
        }
        self.built(code, Instruction::with2(code, to, from).ok());
    }

    /// Memory, immediate.
    pub(crate) fn mi(&mut self, code: Code, to: MemoryOperand, value: i32) {
        if let Some(encoded) = encode::memory_immediate(code, &to, value) {
            return self.raw(encoded.bytes());
        }
        self.built(code, Instruction::with2(code, to, value).ok());
    }

    /// Register, immediate.
    pub(crate) fn ri(&mut self, code: Code, to: Register, value: i32) {
        if let Some(encoded) = encode::register_immediate(code, to, value) {
            return self.raw(encoded.bytes());
        }
        self.built(code, Instruction::with2(code, to, value).ok());
    }

    /// Register = the same register and an immediate.
    pub(crate) fn rri(&mut self, code: Code, register: Register, value: i32) {
        self.built(
            code,
            Instruction::with3(code, register, register, value).ok(),
        );
    }

    pub(crate) fn r(&mut self, code: Code, register: Register) {
        self.built(code, Instruction::with1(code, register).ok());
    }

    pub(crate) fn m(&mut self, code: Code, memory: MemoryOperand) {
        self.built(code, Instruction::with1(code, memory).ok());
    }

    fn built(&mut self, code: Code, instruction: Option<Instruction>) {
        match instruction {
            Some(instruction) => self.op(instruction),
            None => self.fail(EmitError::Encoding(code)),
        }
    }

    /// Appends bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// `mov register, value`, in its shortest form.
    pub(crate) fn load_constant(&mut self, register: Register, value: u64) {
        if let Ok(value) = i32::try_from(value.cast_signed()) {
            self.ri(Code::Mov_rm64_imm32, register, value);
        } else {
            self.built(
                Code::Mov_r64_imm64,
                Instruction::with2(Code::Mov_r64_imm64, register, value).ok(),
            );
        }
    }

    pub(crate) fn save(&mut self, slot: ScratchSlot, register: Register) {
        self.mr(Code::Mov_rm64_r64, gs(slot.offset()), register);
    }

    pub(crate) fn load(&mut self, register: Register, slot: ScratchSlot) {
        self.rm(Code::Mov_r64_rm64, register, gs(slot.offset()));
    }

    /// Saves a register of the target to its slot: from here on the code may change it.
    pub(crate) fn spill(&mut self, register: Register) {
        self.save(ScratchSlot::Register(number(register)), register);
        self.states.spill(self.code.len(), number(register));
    }

    /// Gives a register back its value before the operation.
    pub(crate) fn reload(&mut self, register: Register) {
        self.load(register, ScratchSlot::Register(number(register)));
    }

    /// As `reload`, for good: from here on the register is the target's.
    pub(crate) fn restore(&mut self, register: Register) {
        self.reload(register);
        self.states.restore(self.code.len(), number(register));
    }

    /// The register has its value of after the operation, by other means.
    pub(crate) fn restored(&mut self, register: Register) {
        self.states.restore(self.code.len(), number(register));
    }

    /// Saves the flags to their slot. Needs RAX.
    pub(crate) fn spill_flags(&mut self) {
        self.save_flags(ScratchSlot::Flags);
        self.states.spill(self.code.len(), StateMap::FLAGS);
    }

    pub(crate) fn save_flags(&mut self, slot: ScratchSlot) {
        self.raw(&[LAHF]);
        self.raw(&SETO_AL);
        self.save(slot, Register::RAX);
    }

    /// Gives the flags back the value in a slot. Needs RAX.
    pub(crate) fn load_flags(&mut self, slot: ScratchSlot) {
        self.load(Register::RAX, slot);
        // AL is 0 or 1: the sum overflows if it is 1.
        self.raw(&ADD_AL_7F);
        self.raw(&[SAHF]);
    }

    pub(crate) fn restored_flags(&mut self) {
        self.states.restore(self.code.len(), StateMap::FLAGS);
    }

    /// Where the target's registers are now.
    pub(crate) fn state(&self) -> u32 {
        self.states.last()
    }

    pub(crate) fn label(&mut self) -> Label {
        let label = Label(self.label_count);
        if self.label_count + 1 < MAX_LABELS {
            self.label_count += 1;
        } else {
            self.fail(EmitError::TooLong);
        }
        label
    }

    /// The label is here, reached by falling through.
    pub(crate) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// The label is here, reached by jumps from where the registers were in `state`.
    pub(crate) fn bind_in(&mut self, label: Label, state: u32) {
        self.bind(label);
        self.states.set(self.code.len(), state);
    }

    /// The 32-bit displacement of a hand-made instruction that ends with it.
    pub(crate) fn displacement_to(&mut self, label: Label) {
        self.fix(label);
    }

    fn fix(&mut self, label: Label) {
        if let Some(fixup) = self.fixups.get_mut(self.fixup_count) {
            *fixup = (self.code.len(), label);
            self.fixup_count += 1;
        } else {
            self.fail(EmitError::TooLong);
        }
        self.raw(&[0; 4]);
    }

    pub(crate) fn jump_if(&mut self, condition: Condition, label: Label) {
        self.raw(&[0x0f, 0x80 | condition as u8]);
        self.fix(label);
    }

    pub(crate) fn jump(&mut self, label: Label) {
        self.raw(&[0xe9]);
        self.fix(label);
    }

    /// `lea register, [label]`.
    pub(crate) fn address_of(&mut self, register: Register, label: Label) {
        let extended = number(register) >> 3;
        self.raw(&[
            0x48 | extended << 2,
            0x8d,
            0x05 | (number(register) & 7) << 3,
        ]);
        self.fix(label);
    }

    /// A jump to code outside.
    pub(crate) fn jump_to(&mut self, target: u64) {
        let from = self.base.wrapping_add(self.code.len() as u64 + 5);
        if let Ok(displacement) = i32::try_from(target.wrapping_sub(from).cast_signed()) {
            self.raw(&[0xe9]);
            self.ways_out.add(self.code.len());
            self.raw(&displacement.to_le_bytes());
        } else {
            self.fail(EmitError::OutOfReach);
        }
    }

    /// Offset of the next instruction.
    pub(crate) fn position(&self) -> usize {
        self.code.len()
    }

    /// Resolves the labels and copies the code out.
    pub(crate) fn finish(mut self, out: &mut [u8]) -> Result<Assembled, EmitError> {
        self.error.map_or(Ok(()), Err)?;
        for (position, label) in &self.fixups[..self.fixup_count] {
            let target = self.labels[label.0].ok_or(EmitError::TooLong)?;
            let displacement = target.wrapping_sub(position + 4) as u32;
            self.code[*position..position + 4].copy_from_slice(&displacement.to_le_bytes());
        }
        let len_bytes = self.code.len();
        let out = out.get_mut(..len_bytes).ok_or(EmitError::TooLong)?;
        out.copy_from_slice(&self.code);
        Ok(Assembled {
            len_bytes,
            states: self.states,
            ways_out: self.ways_out,
        })
    }
}

impl Drop for Assembler<'_> {
    /// The next one gets the buffer.
    fn drop(&mut self) {
        self.code.clear();
        self.encoder.set_buffer(mem::take(&mut self.code));
    }
}
