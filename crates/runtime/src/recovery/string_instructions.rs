//! `movs` and `stos` on hidden pages, many elements at a time.
//!
//! Compilers make these of copies and of clearing memory. A single step for each element would be far too slow
//! before they have a trampoline, and wherever that cannot continue by itself. So a handler does as many elements
//! as it can: as long as source and destination are lines of which nothing is to be decided, or no pool at
//! all. The instruction continues at the first that is something else, which then is stepped.
//!
//! # Safety
//!
//! Callers have the turn. The truth of each page of a pool is mapped; other memory is read and written by the
//! kernel, which fails where nothing is mapped.
#![allow(unsafe_code, reason = "copies elements for the recovery")]

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::platform::frame::{Frame, Greg};
use crate::platform::number::PROCESS_VM_WRITEV;
use crate::platform::sys;

use super::access_table;
use super::state::{PAGE, State};

const RAX: u8 = 0;
const RCX: u8 = 1;
const RSI: u8 = 6;
const RDI: u8 = 7;
const DIRECTION_FLAG: u64 = 1 << 10;

/// Where bytes of the recovery are, and how many of them lie together.
#[derive(Clone, Copy)]
struct Run {
    address: u64,
    len: u64,
    /// It is the truth of a page, which is always mapped; else memory that the recovery may not have.
    is_truth: bool,
}

impl State {
    /// Does what it can of a string instruction that has faulted. Whether that was anything.
    pub(super) fn run_string(&mut self, frame: &Frame, instruction: &Instruction) -> bool {
        let copies = match instruction.mnemonic() {
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq => true,
            Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => false,
            _ => return false,
        };
        let is_wide = instruction.op0_kind() == OpKind::MemoryESRDI
            && (!copies || instruction.op1_kind() == OpKind::MemorySegRSI);
        let is_flat = matches!(
            instruction.segment_prefix(),
            Register::None | Register::DS | Register::ES | Register::SS | Register::CS
        );
        if !is_wide || !is_flat || frame.get(Greg::Flags) & DIRECTION_FLAG != 0 {
            return false;
        }
        let size = instruction.memory_size().size() as u64;
        let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let mut left = if repeats { frame.register(RCX) } else { 1 };
        let before = left;
        while left > 0 {
            let done = self.run_piece(frame, copies, size, left);
            if done == 0 {
                break;
            }
            left -= done;
            frame.set_register(RDI, frame.register(RDI) + done * size);
            if copies {
                frame.set_register(RSI, frame.register(RSI) + done * size);
            }
        }
        if left == before {
            return false;
        }
        if repeats {
            frame.set_register(RCX, left);
        }
        if left == 0 {
            frame.set(Greg::Rip, instruction.next_ip());
        }
        true
    }

    /// Some elements that lie together. How many.
    fn run_piece(&mut self, frame: &Frame, copies: bool, size: u64, left: u64) -> u64 {
        let most = left.saturating_mul(size);
        let Some(to) = self.run_at(frame.register(RDI), most, true) else {
            return 0;
        };
        let mut buffer = [0; PAGE as usize];
        let mut len = to.len;
        if copies {
            let source = frame.register(RSI);
            let Some(from) = self.run_at(source, most, false) else {
                return 0;
            };
            len = len.min(from.len);
            // Behind its own source an element is not what it was before.
            let distance = frame.register(RDI).wrapping_sub(source);
            if distance < len {
                len = distance;
            }
            len -= len % size;
            if !load(from, &mut buffer[..len as usize]) {
                return 0;
            }
        } else {
            len -= len % size;
            let value = frame.register(RAX).to_le_bytes();
            for element in buffer[..len as usize].chunks_exact_mut(size as usize) {
                element.copy_from_slice(&value[..size as usize]);
            }
        }
        if store(&buffer[..len as usize], to) {
            len / size
        } else {
            0
        }
    }

    /// The bytes at an address that can be used without looking, up to `most` and to the end of the page.
    fn run_at(&mut self, address: u64, most: u64, is_store: bool) -> Option<Run> {
        let most = most.min(PAGE - address % PAGE);
        let direct = Run {
            address,
            len: most,
            is_truth: false,
        };
        let Some(index) = self.mapping_at(address) else {
            return Some(direct);
        };
        let mapping = &self.mappings[index];
        let offset = (mapping.offset + (address - mapping.address)) / PAGE * PAGE;
        if mapping.own.contains(&offset) {
            return Some(direct);
        }
        if !self.is_stepped(mapping.pool, offset) {
            let is_seen = is_store && self.is_logged && !mapping.is_private;
            return (!is_seen).then_some(direct);
        }
        let (truth, len) = access_table::movable(address, most, is_store)?;
        Some(Run {
            address: truth,
            len,
            is_truth: true,
        })
    }
}

/// Moves bytes between a buffer of ours and memory that the recovery may not have. Whether it has.
fn transfer(number: usize, buffer: u64, address: u64, len: u64) -> bool {
    let own = [buffer, len];
    let other = [address, len];
    let arguments = [
        sys::getpid() as usize,
        own.as_ptr() as usize,
        1,
        other.as_ptr() as usize,
        1,
        0,
    ];
    // SAFETY: the kernel checks the addresses; the buffer is as long as the caller says.
    let done = unsafe { sys::call(number, arguments) };
    done == len as isize
}

fn load(from: Run, buffer: &mut [u8]) -> bool {
    if !from.is_truth {
        let to = buffer.as_mut_ptr() as u64;
        let number = sys::number::PROCESS_VM_READV;
        return transfer(number, to, from.address, buffer.len() as u64);
    }
    // SAFETY: the truth of a page is mapped, and there is as much of it.
    let source = unsafe { core::slice::from_raw_parts(from.address as *const u8, buffer.len()) };
    buffer.copy_from_slice(source);
    true
}

fn store(buffer: &[u8], to: Run) -> bool {
    if !to.is_truth {
        let from = buffer.as_ptr() as u64;
        return transfer(PROCESS_VM_WRITEV, from, to.address, buffer.len() as u64);
    }
    // SAFETY: the truth of a page is mapped, there is as much of it, and nothing else uses it now.
    let place = unsafe { core::slice::from_raw_parts_mut(to.address as *mut u8, buffer.len()) };
    place.copy_from_slice(buffer);
    true
}
