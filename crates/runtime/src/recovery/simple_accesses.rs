//! Accesses that need no processor: what most instructions that meet a hidden page do is to fetch a word, to compare
//! or add one, or to put one there. The handler does that itself, where the content is, and saves a second signal and two
//! changes of protection.
//!
//! # Safety
//!
//! Callers have the turn; the truth of each page of a pool is mapped.
#![allow(unsafe_code, reason = "reads and writes the content of pages")]

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::platform::frame::{Frame, Greg};

use super::arithmetic::{Operation, compute};
use super::pages::table_page;
use super::registers;
use super::state::{PAGE, State};

/// The flags that arithmetic sets.
const STATUS: u64 = 0x8d5;

impl State {
    /// Does the instruction that faulted, if it only loads; what it observes is decided. False if it has to
    /// run by itself.
    pub(super) fn load_simply(&mut self, frame: &Frame, instruction: &Instruction) -> bool {
        let [access] = self.step.accesses.as_slice() else {
            return false;
        };
        let access = *access;
        if self.step.shown_count != 1 || access.is_written || !access.is_read {
            return false;
        }
        let page = self.step.shown[0];
        let at = access.address.wrapping_sub(page.address);
        if page.truth == 0 || at.saturating_add(access.len) > PAGE {
            return false;
        }
        // SAFETY: the content of the page, all of which is mapped.
        let bytes = unsafe { crate::patching::code::view(page.truth + at, access.len) };
        let mut word = [0; 8];
        let Some(start) = word.get_mut(..bytes.len()) else {
            return false;
        };
        start.copy_from_slice(bytes);
        if !perform(frame, instruction, u64::from_le_bytes(word), access.len) {
            return false;
        }
        frame.set(Greg::Rip, instruction.next_ip());
        self.step.shown_count = 0;
        if let Some(index) = table_page(page.pool, page.offset) {
            let is_open = self.pages[index].open > 0;
            self.maybe_settle(index, is_open);
        }
        true
    }
}

impl State {
    /// Does the instruction that faulted, if it only stores a word that no other process sees and that is not logged. False
    /// if it has to run by itself.
    pub(super) fn store_simply(&mut self, frame: &Frame, instruction: &Instruction) -> bool {
        let [access] = self.step.accesses.as_slice() else {
            return false;
        };
        let access = *access;
        let page = self.step.shown[0];
        let is_own = self.is_private && !self.is_logged && !self.has_company;
        if self.step.shown_count != 1
            || access.is_read
            || !access.is_written
            || !is_own
            || page.truth == 0
            || self.mappings[page.mapping].is_private
        {
            return false;
        }
        let at = access.address.wrapping_sub(page.address);
        let end = at.saturating_add(access.len);
        let Some(value) = stored(frame, instruction).filter(|_| end <= PAGE) else {
            return false;
        };
        let value = value.to_le_bytes();
        let Some(bytes) = value.get(..access.len as usize) else {
            return false;
        };
        let place = (page.truth + at) as *mut u8;
        // SAFETY: the content of the page is private memory of ours, all of which is mapped.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        frame.set(Greg::Rip, instruction.next_ip());
        self.step.shown_count = 0;
        if let Some(index) = table_page(page.pool, page.offset) {
            let was_open = self.pages[index].open > 0;
            self.overwritten(index, at, end);
            self.maybe_settle(index, was_open);
        }
        true
    }
}

/// What an instruction stores, if it is one of the simple ones.
fn stored(frame: &Frame, instruction: &Instruction) -> Option<u64> {
    if instruction.mnemonic() != Mnemonic::Mov || instruction.op0_kind() != OpKind::Memory {
        return None;
    }
    match instruction.op1_kind() {
        OpKind::Register => {
            let register = instruction.op1_register();
            let is_general = register.full_register().is_gpr64();
            is_general.then(|| registers::value(frame, register))?
        }
        _ => instruction.try_immediate(1).ok(),
    }
}

/// Does with what is loaded what the instruction does. False if it is none of the simple ones.
fn perform(frame: &Frame, instruction: &Instruction, loaded: u64, len: u64) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx => {
            is_loaded_to_register(instruction) && set(frame, instruction.op0_register(), loaded)
        }
        Mnemonic::Movsx | Mnemonic::Movsxd => {
            let shift = 64 - 8 * len as u32;
            let extended = ((loaded << shift) as i64 >> shift) as u64;
            is_loaded_to_register(instruction) && set(frame, instruction.op0_register(), extended)
        }
        Mnemonic::Cmp => calculate(frame, instruction, Operation::Subtract, loaded, len).is_some(),
        Mnemonic::Test => calculate(frame, instruction, Operation::And, loaded, len).is_some(),
        Mnemonic::Add => calculate_to_register(frame, instruction, Operation::Add, loaded, len),
        Mnemonic::Sub => {
            calculate_to_register(frame, instruction, Operation::Subtract, loaded, len)
        }
        Mnemonic::And => calculate_to_register(frame, instruction, Operation::And, loaded, len),
        Mnemonic::Or => calculate_to_register(frame, instruction, Operation::Or, loaded, len),
        Mnemonic::Xor => {
            calculate_to_register(frame, instruction, Operation::ExclusiveOr, loaded, len)
        }
        _ => false,
    }
}

/// Sets the flags of an operation on what is loaded and another operand, in their order; the result.
fn calculate(
    frame: &Frame,
    instruction: &Instruction,
    operation: Operation,
    loaded: u64,
    len: u64,
) -> Option<u64> {
    let operand = |number| match instruction.op_kind(number) {
        OpKind::Memory => Some(loaded),
        OpKind::Register => registers::value(frame, instruction.op_register(number)),
        _ => instruction.try_immediate(number).ok(),
    };
    let (result, flags) = compute(operation, operand(0)?, operand(1)?, len);
    frame.set(
        Greg::Flags,
        frame.get(Greg::Flags) & !STATUS | flags & STATUS,
    );
    Some(result)
}

/// The same, with the result in the register that is its first operand.
fn calculate_to_register(
    frame: &Frame,
    instruction: &Instruction,
    operation: Operation,
    loaded: u64,
    len: u64,
) -> bool {
    let register = instruction.op0_register();
    is_loaded_to_register(instruction)
        && register.full_register().is_gpr64()
        && calculate(frame, instruction, operation, loaded, len)
            .is_some_and(|result| set(frame, register, result))
}

fn is_loaded_to_register(instruction: &Instruction) -> bool {
    instruction.op_count() == 2
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Memory
}

/// Puts a value into a general-purpose register, as the processor would.
fn set(frame: &Frame, register: Register, value: u64) -> bool {
    let full = register.full_register();
    if !full.is_gpr64() {
        return false;
    }
    let number = full.number() as u8;
    let before = frame.register(number);
    let is_high = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    let after = match register.size() {
        1 if is_high => before & !0xff00 | (value & 0xff) << 8,
        1 => before & !0xff | value & 0xff,
        2 => before & !0xffff | value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    };
    frame.set_register(number, after);
    true
}
