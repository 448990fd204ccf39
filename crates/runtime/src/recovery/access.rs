//! Which bytes an instruction reads and writes.
//!
//! As exact as the processor is: a masked instruction touches what its mask says, a gather what its
//! indices say, a string instruction one element, because it is run one element at a time.
//!
//! # Safety
//!
//! Only instructions that were just executed are read, so their bytes are mapped.
#![allow(unsafe_code, reason = "reads the code of the recovery")]

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};

use crate::patching::code;
use crate::platform::frame::Frame;

use super::registers;
use super::state::PAGE;

/// A range of bytes that an instruction touches.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) is_read: bool,
    pub(super) is_written: bool,
}

/// No instruction touches more ranges: elements of a masked vector.
pub(super) const MAX: usize = 66;

/// All that an instruction touches, reads by address first.
pub(super) struct Accesses {
    all: [Access; MAX],
    len: usize,
}

const NOTHING: Access = Access {
    address: 0,
    len: 0,
    is_read: false,
    is_written: false,
};

impl Accesses {
    pub(super) const NONE: Self = Self {
        all: [NOTHING; MAX],
        len: 0,
    };

    pub(super) fn as_slice(&self) -> &[Access] {
        &self.all[..self.len]
    }

    fn push(&mut self, access: Access) {
        if access.len == 0 {
            return;
        }
        if let Some(place) = self.all.get_mut(self.len) {
            *place = access;
            self.len += 1;
        }
    }

    /// Adds the elements that a mask selects.
    fn push_masked(&mut self, access: Access, element: u64, is_selected: impl Fn(usize) -> bool) {
        for number in 0..(access.len / element.max(1)) as usize {
            if is_selected(number) {
                self.push(Access {
                    address: access.address + number as u64 * element,
                    len: element,
                    ..access
                });
            }
        }
    }
}

/// Why what an instruction touches is not known.
pub(super) struct UnknownAccess(pub(super) Mnemonic);

/// Decodes the instruction at an address, which was just executed.
pub(super) fn decode(address: u64) -> Instruction {
    const LEN_MAX: u64 = 15;
    let in_page = LEN_MAX.min(PAGE - address % PAGE);
    // SAFETY: the page of an instruction that was executed is mapped.
    let bytes = unsafe { code::view(address, in_page) };
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    if !instruction.is_invalid() || in_page == LEN_MAX {
        return instruction;
    }
    // SAFETY: the instruction continues in the next page, so that is mapped, too.
    let bytes = unsafe { code::view(address, LEN_MAX) };
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode()
}

/// Whether an instruction only flushes a line, and the address in it.
pub(super) fn flushed(instruction: &Instruction, frame: &Frame) -> Option<u64> {
    let is_flush = matches!(
        instruction.mnemonic(),
        Mnemonic::Clflush | Mnemonic::Clflushopt | Mnemonic::Clwb
    );
    is_flush.then(|| {
        instruction
            .virtual_address(0, 0, |register, _, _| registers::value(frame, register))
            .unwrap_or(0)
    })
}

/// What an instruction touches.
pub(super) fn of(
    instruction: &Instruction,
    frame: &Frame,
    factory: &mut InstructionInfoFactory,
    out: &mut Accesses,
) -> Result<(), UnknownAccess> {
    out.len = 0;
    if instruction.is_string_instruction() {
        return string(instruction, frame, out);
    }
    let info = factory.info(instruction);
    for used in info.used_memory() {
        let (is_read, is_written) = match used.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::Write | OpAccess::CondWrite => (false, true),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            _ => continue,
        };
        if used.vsib_size() != 0 {
            indexed(instruction, frame, used, is_written, out)?;
            continue;
        }
        let len = used.memory_size().size() as u64;
        let address =
            used.try_virtual_address(0, |register, _, _| registers::value(frame, register));
        let (Some(address), true) = (address, len > 0) else {
            return Err(UnknownAccess(instruction.mnemonic()));
        };
        // Saved states leave some bytes as they are: what they write counts as read, too.
        let access = Access {
            address: far_bit(instruction, frame, used, address),
            len,
            is_read: is_read || len > 64,
            is_written,
        };
        push(instruction, frame, used, access, out);
    }
    let used = &mut out.all[..out.len];
    used.sort_unstable_by_key(|access| access.address);
    Ok(())
}

/// Adds an access, or what a mask leaves of it.
fn push(
    instruction: &Instruction,
    frame: &Frame,
    used: &UsedMemory,
    access: Access,
    out: &mut Accesses,
) {
    let is_operand = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    let element = used.memory_size().element_size() as u64;
    let by_vector = match instruction.mnemonic() {
        Mnemonic::Vmaskmovps | Mnemonic::Vpmaskmovd => Some((instruction.op1_register(), 4)),
        Mnemonic::Vmaskmovpd | Mnemonic::Vpmaskmovq => Some((instruction.op1_register(), 8)),
        Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu | Mnemonic::Maskmovq => {
            Some((instruction.op2_register(), 1))
        }
        _ => None,
    };
    if let Some((register, element)) = by_vector {
        let mask = registers::vector(frame, register);
        let selects = |number: usize| mask[((number + 1) * element - 1) % 64] & 0x80 != 0;
        out.push_masked(access, element as u64, selects);
        return;
    }
    let masked_by = instruction.op_mask();
    if masked_by == Register::None || !is_operand || element == 0 {
        out.push(access);
        return;
    }
    let mask = registers::mask(frame, masked_by);
    if is_packed(instruction.mnemonic()) {
        let count = (access.len / element).min(64);
        let selected = (mask & u64::MAX.checked_shr(64 - count as u32).unwrap_or(0)).count_ones();
        let len = u64::from(selected) * element;
        out.push(Access { len, ..access });
    } else if instruction.is_broadcast() {
        if mask != 0 {
            out.push(access);
        }
    } else if is_elementwise(instruction, access.len) {
        out.push_masked(access, element, |number| mask >> number.min(63) & 1 != 0);
    } else {
        // Reading is not bound to the mask: the whole operand.
        out.push(Access {
            is_read: true,
            ..access
        });
    }
}

/// Whether elements in memory and bits of the mask belong together: the other operands have as many.
fn is_elementwise(instruction: &Instruction, len: u64) -> bool {
    let register = if instruction.op0_kind() == OpKind::Register {
        instruction.op0_register()
    } else {
        instruction.op1_register()
    };
    register.is_vector_register() && register.size() as u64 == len
        || register.is_vector_register() && instruction.memory_size().element_count() == 1
}

/// Whether selected elements lie one behind the other in memory.
fn is_packed(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Vpexpandb
            | Mnemonic::Vpexpandw
            | Mnemonic::Vpexpandd
            | Mnemonic::Vpexpandq
            | Mnemonic::Vexpandps
            | Mnemonic::Vexpandpd
            | Mnemonic::Vpcompressb
            | Mnemonic::Vpcompressw
            | Mnemonic::Vpcompressd
            | Mnemonic::Vpcompressq
            | Mnemonic::Vcompressps
            | Mnemonic::Vcompresspd
    )
}

/// The place of a bit whose number is in a register, and may lie beyond the operand.
fn far_bit(instruction: &Instruction, frame: &Frame, used: &UsedMemory, address: u64) -> u64 {
    let is_bit = matches!(
        instruction.mnemonic(),
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    );
    if !is_bit || instruction.op1_kind() != OpKind::Register {
        return address;
    }
    let len = used.memory_size().size() as i64;
    let number = registers::value(frame, instruction.op1_register()).unwrap_or(0);
    let number = match len {
        2 => i64::from(number as i16),
        4 => i64::from(number as i32),
        _ => number as i64,
    };
    address.wrapping_add_signed(number.div_euclid(8 * len) * len)
}

/// A gather or a scatter.
fn indexed(
    instruction: &Instruction,
    frame: &Frame,
    used: &UsedMemory,
    is_written: bool,
    out: &mut Accesses,
) -> Result<(), UnknownAccess> {
    let unknown = UnknownAccess(instruction.mnemonic());
    let element = used.memory_size().size();
    let data = if instruction.op0_kind() == OpKind::Register {
        instruction.op0_register()
    } else {
        instruction.op1_register()
    };
    if element == 0 || !data.is_vector_register() {
        return Err(unknown);
    }
    let count = (data.size() / element).min(used.index().size() / used.vsib_size() as usize);
    let by_vector = instruction.op2_kind() == OpKind::Register && instruction.op_count() == 3;
    let selected = |number: usize| {
        if by_vector {
            let mask = registers::vector(frame, instruction.op2_register());
            mask[((number + 1) * element - 1) % 64] & 0x80 != 0
        } else {
            registers::mask(frame, instruction.op_mask()) >> number & 1 != 0
        }
    };
    for number in (0..count).filter(|number| selected(*number)) {
        let index = |register: Register, lane: usize, size: usize| {
            if !register.is_vector_register() {
                return registers::value(frame, register);
            }
            let bytes = registers::vector(frame, register);
            let mut word = [0; 8];
            word[..size].copy_from_slice(bytes.get(lane * size..(lane + 1) * size)?);
            Some(u64::from_le_bytes(word))
        };
        let Some(address) = used.try_virtual_address(number, index) else {
            return Err(unknown);
        };
        out.push(Access {
            address,
            len: element as u64,
            is_read: !is_written,
            is_written,
        });
    }
    Ok(())
}

/// One element of a string instruction.
fn string(
    instruction: &Instruction,
    frame: &Frame,
    out: &mut Accesses,
) -> Result<(), UnknownAccess> {
    const RCX: u8 = 1;
    const RSI: u8 = 6;
    const RDI: u8 = 7;
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if repeats && frame.register(RCX) == 0 {
        return Ok(());
    }
    let len = instruction.memory_size().size() as u64;
    let range = |register: u8, is_read: bool| Access {
        address: frame.register(register),
        len,
        is_read,
        is_written: !is_read,
    };
    match instruction.mnemonic() {
        Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq => {
            out.push(range(RSI, true));
            out.push(range(RDI, false));
        }
        Mnemonic::Cmpsb | Mnemonic::Cmpsw | Mnemonic::Cmpsd | Mnemonic::Cmpsq => {
            out.push(range(RSI, true));
            out.push(range(RDI, true));
        }
        Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => {
            out.push(range(RDI, false));
        }
        Mnemonic::Scasb | Mnemonic::Scasw | Mnemonic::Scasd | Mnemonic::Scasq => {
            out.push(range(RDI, true));
        }
        Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => {
            out.push(range(RSI, true));
        }
        other => return Err(UnknownAccess(other)),
    }
    Ok(())
}
