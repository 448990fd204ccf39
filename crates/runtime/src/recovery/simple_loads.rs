//! Loads that need no processor: what most instructions that meet a hidden page do is to fetch a word, or
//! to compare one. The handler does that itself, where the content is, and saves a second signal and four
//! changes of protection.
//!
//! # Safety
//!
//! Callers have the turn; the truth of each page of a pool is mapped.
#![allow(unsafe_code, reason = "reads the content of pages")]

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::platform::frame::{Frame, Greg};

use super::comparison::compare;
use super::pages::table_page;
use super::registers;
use super::state::{PAGE, State};

/// The flags that a comparison sets.
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
        mnemonic @ (Mnemonic::Cmp | Mnemonic::Test) => {
            let operand = |number| match instruction.op_kind(number) {
                OpKind::Memory => Some(loaded),
                OpKind::Register => registers::value(frame, instruction.op_register(number)),
                _ => instruction.try_immediate(number).ok(),
            };
            let (Some(one), Some(other)) = (operand(0), operand(1)) else {
                return false;
            };
            let status = compare(mnemonic == Mnemonic::Test, one, other, len) & STATUS;
            let flags = frame.get(Greg::Flags) & !STATUS;
            frame.set(Greg::Flags, flags | status);
            true
        }
        _ => false,
    }
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
