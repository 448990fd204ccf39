//! Whether a function does nothing but free an object with what belongs to it.
//!
//! Its code is followed as a processor would, from the beginning to the end, but with what is known instead of
//! values: the argument is an object, and registers hold places in it, addresses, or something unknown. It may
//! write to places in the object, it may call `free`, and in the end it must go on to `free` with the object. A
//! loop is followed turn by turn, so only those are understood that compare places in the object. Whatever is
//! not understood makes the answer no.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// No object is longer: what is written farther from its beginning may be something else.
const OBJECT_LEN_MAX: u64 = 1 << 16;
/// So many instructions are followed.
const STEPS_MAX: usize = 1 << 14;

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Unknown.
    Other,
    /// The address of a place in the argument: so far from its beginning.
    Object(u64),
    /// An address.
    Address(u64),
    /// The address of `free`.
    Free,
}

/// What an instruction means for the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Next,
    To(u64),
    Freed,
    Unknown,
}

struct Walk<Word> {
    registers: [Value; 16],
    /// The places that the instruction before has compared.
    compared: Option<(u64, u64)>,
    free: u64,
    /// The word at an address, if there is one.
    word: Word,
}

fn number(register: Register) -> Option<usize> {
    register
        .full_register()
        .is_gpr64()
        .then(|| register.full_register().number())
}

/// The distance that an instruction adds to a register, or takes from it.
fn distance(instruction: &Instruction) -> Option<u64> {
    let is_constant = matches!(
        instruction.op1_kind(),
        OpKind::Immediate8to64 | OpKind::Immediate32to64
    );
    let distance = is_constant.then(|| instruction.immediate(1))?;
    Some(if instruction.mnemonic() == Mnemonic::Sub {
        distance.wrapping_neg()
    } else {
        distance
    })
}

impl<Word: Fn(u64) -> Option<u64>> Walk<Word> {
    fn of(&self, register: Register) -> Value {
        number(register).map_or(Value::Other, |number| self.registers[number])
    }

    /// A register gets a value. Whether that is understood: the stack pointer stays on the stack.
    fn set(&mut self, register: Register, value: Value) -> bool {
        if register.full_register() == Register::RSP {
            return false;
        }
        if let Some(number) = number(register) {
            // A part of an address is none.
            self.registers[number] = if register.is_gpr64() {
                value
            } else {
                Value::Other
            };
        }
        true
    }

    /// The place in the object that a memory operand is.
    fn place(&self, instruction: &Instruction) -> Option<u64> {
        match self.of(instruction.memory_base()) {
            Value::Object(at)
                if instruction.memory_index() == Register::None
                    && instruction.segment_prefix() == Register::None =>
            {
                Some(at.wrapping_add(instruction.memory_displacement64()))
            }
            _ => None,
        }
    }

    /// What lies at a memory operand: whether that is the address of `free`.
    fn loaded(&self, instruction: &Instruction) -> Value {
        let address = if instruction.is_ip_rel_memory_operand() {
            Some(instruction.ip_rel_memory_address())
        } else {
            match self.of(instruction.memory_base()) {
                Value::Address(address) if instruction.memory_index() == Register::None => {
                    Some(address.wrapping_add(instruction.memory_displacement64()))
                }
                _ => None,
            }
        };
        if address.and_then(&self.word) == Some(self.free) {
            Value::Free
        } else {
            Value::Other
        }
    }

    fn target(&self, instruction: &Instruction) -> Value {
        match instruction.op0_kind() {
            OpKind::Register => self.of(instruction.op0_register()),
            OpKind::Memory => self.loaded(instruction),
            _ => Value::Other,
        }
    }

    /// What an instruction computes that has a register to put it in.
    fn computed(&self, instruction: &Instruction) -> Value {
        match instruction.mnemonic() {
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                Value::Address(instruction.ip_rel_memory_address())
            }
            Mnemonic::Lea => self.place(instruction).map_or(Value::Other, Value::Object),
            Mnemonic::Add | Mnemonic::Sub => {
                match (self.of(instruction.op0_register()), distance(instruction)) {
                    (Value::Object(at), Some(distance)) => Value::Object(at.wrapping_add(distance)),
                    _ => Value::Other,
                }
            }
            Mnemonic::Mov => match instruction.op1_kind() {
                OpKind::Register => self.of(instruction.op1_register()),
                OpKind::Memory => self.loaded(instruction),
                _ => Value::Other,
            },
            _ => Value::Other,
        }
    }

    /// A conditional jump.
    const fn only_if(known: bool) -> Step {
        if known { Step::Next } else { Step::Unknown }
    }

    fn step(&mut self, instruction: &Instruction) -> Step {
        let compared = self.compared.take();
        let is_register = instruction.op0_kind() == OpKind::Register;
        match instruction.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Nop | Mnemonic::Pxor | Mnemonic::Xorps => Step::Next,
            Mnemonic::Push => Self::only_if(is_register),
            Mnemonic::Sub | Mnemonic::Add if instruction.op0_register() == Register::RSP => {
                Self::only_if(distance(instruction).is_some())
            }
            Mnemonic::Pop
            | Mnemonic::Xor
            | Mnemonic::Sub
            | Mnemonic::Add
            | Mnemonic::Lea
            | Mnemonic::Mov
                if is_register =>
            {
                let value = self.computed(instruction);
                Self::only_if(self.set(instruction.op0_register(), value))
            }
            Mnemonic::Mov
            | Mnemonic::Movups
            | Mnemonic::Movaps
            | Mnemonic::Movdqu
            | Mnemonic::Movdqa
                if instruction.op0_kind() == OpKind::Memory =>
            {
                Self::only_if(
                    self.place(instruction)
                        .is_some_and(|at| at < OBJECT_LEN_MAX),
                )
            }
            Mnemonic::Cmp if is_register && instruction.op1_kind() == OpKind::Register => {
                let [one, other] = [instruction.op0_register(), instruction.op1_register()];
                if let (Value::Object(one), Value::Object(other)) = (self.of(one), self.of(other)) {
                    self.compared = Some((one, other));
                }
                Self::only_if(one.is_gpr64())
            }
            Mnemonic::Je | Mnemonic::Jne => match compared {
                Some((one, other))
                    if (one == other) == (instruction.mnemonic() == Mnemonic::Je) =>
                {
                    Step::To(instruction.near_branch_target())
                }
                Some(_) => Step::Next,
                None => Step::Unknown,
            },
            Mnemonic::Call if self.target(instruction) == Value::Free => {
                const KEPT: [usize; 6] = [3, 4, 5, 12, 13, 14];
                for (number, value) in self.registers.iter_mut().enumerate() {
                    if !KEPT.contains(&number) {
                        *value = Value::Other;
                    }
                }
                Step::Next
            }
            Mnemonic::Jmp
                if self.target(instruction) == Value::Free
                    && self.of(Register::RDI) == Value::Object(0) =>
            {
                Step::Freed
            }
            _ => Step::Unknown,
        }
    }
}

/// Whether a function does nothing but free its argument and what belongs to that. `word` gives the word at an
/// address of which the code knows where it is.
pub(crate) fn frees_only(
    bytes: &[u8],
    address: u64,
    free: u64,
    word: impl Fn(u64) -> Option<u64>,
) -> bool {
    let mut walk = Walk {
        registers: [Value::Other; 16],
        compared: None,
        free,
        word,
    };
    walk.set(Register::RDI, Value::Object(0));
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    for _ in 0..STEPS_MAX {
        if !decoder.can_decode() {
            return false;
        }
        match walk.step(&decoder.decode()) {
            Step::Next => {}
            Step::To(target) => {
                let at = target.wrapping_sub(address);
                if at >= bytes.len() as u64 || decoder.set_position(at as usize).is_err() {
                    return false;
                }
                decoder.set_ip(target);
            }
            Step::Freed => return true,
            Step::Unknown => return false,
        }
    }
    false
}
