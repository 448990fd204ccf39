//! Functions of libpmemobj that do nothing but free an object with what belongs to it.
//!
//! When it closes a pool it does so for each of a thousand lanes, and writes zeros to each object before. In a
//! process that ends soon all that comes of it is a copy of each page. So such functions return at once in
//! executions, if it is certain that they do nothing else: the code is followed from its beginning to its end.
//! It may write to the object that is its argument, and to the stack; it may call `free`; and in the end it
//! must free the object.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use crate::lock::Lock;
use crate::{code, sys};

use super::memory;

/// Where such functions begin.
static FOUND: Lock<Vec<u64>> = Lock::new(Vec::new());

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Nobody knows.
    Other,
    /// The argument.
    Object,
    /// An address.
    Address(u64),
    /// The address of `free`.
    Free,
}

struct Walk {
    registers: [Value; 16],
    free: u64,
}

/// What an instruction means for the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Next,
    Freed,
    Unknown,
}

fn number(register: Register) -> Option<usize> {
    register
        .full_register()
        .is_gpr64()
        .then(|| register.full_register().number())
}

impl Walk {
    fn of(&self, register: Register) -> Value {
        number(register).map_or(Value::Other, |number| self.registers[number])
    }

    fn set(&mut self, register: Register, value: Value) {
        if let Some(number) = number(register) {
            self.registers[number] = value;
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
        let word = address.and_then(sys::read_own_word);
        if word == Some(self.free) {
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

    fn step(&mut self, instruction: &Instruction) -> Step {
        let writes_object = || {
            self.of(instruction.memory_base()) == Value::Object
                && instruction.memory_index() == Register::None
        };
        let known = match instruction.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Nop | Mnemonic::Pxor | Mnemonic::Xorps => true,
            Mnemonic::Push => instruction.op0_kind() == OpKind::Register,
            Mnemonic::Pop | Mnemonic::Xor if instruction.op0_kind() == OpKind::Register => {
                self.set(instruction.op0_register(), Value::Other);
                true
            }
            Mnemonic::Sub | Mnemonic::Add => instruction.op0_register() == Register::RSP,
            Mnemonic::Lea => {
                let value = if instruction.is_ip_rel_memory_operand() {
                    Value::Address(instruction.ip_rel_memory_address())
                } else {
                    Value::Other
                };
                self.set(instruction.op0_register(), value);
                true
            }
            Mnemonic::Mov if instruction.op0_kind() == OpKind::Register => {
                let value = match instruction.op1_kind() {
                    OpKind::Register => self.of(instruction.op1_register()),
                    OpKind::Memory => self.loaded(instruction),
                    _ => Value::Other,
                };
                self.set(instruction.op0_register(), value);
                instruction.op0_register() != Register::RSP
            }
            Mnemonic::Mov
            | Mnemonic::Movups
            | Mnemonic::Movaps
            | Mnemonic::Movdqu
            | Mnemonic::Movdqa
                if instruction.op0_kind() == OpKind::Memory =>
            {
                writes_object()
            }
            Mnemonic::Call if self.target(instruction) == Value::Free => {
                const KEPT: [usize; 6] = [3, 4, 5, 12, 13, 14];
                for (number, value) in self.registers.iter_mut().enumerate() {
                    if !KEPT.contains(&number) {
                        *value = Value::Other;
                    }
                }
                true
            }
            Mnemonic::Jmp if self.target(instruction) == Value::Free => {
                return if self.of(Register::RDI) == Value::Object {
                    Step::Freed
                } else {
                    Step::Unknown
                };
            }
            _ => false,
        };
        if known { Step::Next } else { Step::Unknown }
    }
}

/// Whether a function does nothing but free its argument and what belongs to that.
fn frees_only(bytes: &[u8], address: u64, free: u64) -> bool {
    let mut walk = Walk {
        registers: [Value::Other; 16],
        free,
    };
    walk.set(Register::RDI, Value::Object);
    let decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    for instruction in decoder {
        match walk.step(&instruction) {
            Step::Next => {}
            Step::Freed => return true,
            Step::Unknown => return false,
        }
    }
    false
}

/// Looks for such functions.
pub(super) fn find(free: u64) {
    let functions = memory::functions_of_library();
    for function in functions {
        // SAFETY: functions of loaded modules are readable.
        let bytes = unsafe { code::view(function.start, function.end - function.start) };
        if frees_only(bytes, function.start, free) {
            FOUND.with(|found| found.push(function.start));
        }
    }
}

/// Lets them return at once, in this process and in all that it forks.
pub(super) fn silence() {
    const RETURN: [u8; 1] = [0xc3];
    FOUND.with(|found| {
        code::replace(found.iter().map(|address| (*address, &RETURN[..])));
        found.clear();
    });
}
