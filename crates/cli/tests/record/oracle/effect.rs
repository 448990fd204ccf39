//! The effect of an instruction on memory, computed from its operands.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};
use libc::user_regs_struct;
use powerfail_model::{FenceKind, FlushKind, StoreKind};

use super::process::Process;

/// An instruction that is relevant for the oracle.
pub(super) struct Effect {
    pub(super) kind: EffectKind,
    /// Where it writes or flushes.
    memory: Vec<UsedMemory>,
    instruction: Instruction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EffectKind {
    Store(StoreKind),
    /// One element of a string operation per step.
    String,
    Masked(StoreKind, Mask),
    Flush(FlushKind),
    Fence(FenceKind),
    SystemCall,
}

/// Which elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask {
    register: MaskRegister,
    element_bytes: usize,
}

/// A register that selects elements, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MaskRegister {
    /// By the top bit of each element.
    Vector(usize),
    /// By one bit for each element (AVX-512).
    Opmask(usize),
}

/// A range of memory that an instruction is about to write or flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) len: usize,
}

impl Effect {
    /// None if the instruction neither writes, flushes nor orders memory.
    pub(super) fn of(code: &[u8], address: u64, info: &mut InstructionInfoFactory) -> Option<Self> {
        let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
        assert!(!instruction.is_invalid(), "{code:x?} at {address:#x}");
        let is_flush = matches!(
            instruction.mnemonic(),
            Mnemonic::Clflush | Mnemonic::Clflushopt | Mnemonic::Clwb
        );
        let memory: Vec<_> = info
            .info(&instruction)
            .used_memory()
            .iter()
            .filter(|memory| is_flush || is_write(memory.access()))
            .copied()
            .collect();
        let kind = kind(&instruction, memory.is_empty())?;
        Some(Self {
            kind,
            memory,
            instruction,
        })
    }

    pub(super) fn is_locked(&self) -> bool {
        self.kind == EffectKind::Store(StoreKind::Locked)
    }

    /// Whether the instruction changes nothing that it could store to, whatever is there.
    pub(super) fn is_neutral(&self) -> bool {
        let Ok(immediate) = self.instruction.try_immediate(1) else {
            return false;
        };
        let ones = 8 * self.instruction.memory_size().size() as u32;
        match format!("{:?}", self.instruction.mnemonic()).as_str() {
            "Add" | "Sub" | "Or" | "Xor" => immediate == 0,
            "And" => immediate.trailing_ones() >= ones,
            _ => false,
        }
    }

    /// Whether the instruction compares before it stores.
    pub(super) fn compares(&self) -> bool {
        matches!(
            self.instruction.mnemonic(),
            Mnemonic::Cmpxchg | Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b
        )
    }

    /// The ranges that it is about to write or flush.
    pub(super) fn ranges(&self, process: &Process, registers: &user_regs_struct) -> Vec<Range> {
        let instruction = &self.instruction;
        if self.kind == EffectKind::String {
            let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
            let is_over = repeats && registers.rcx == 0;
            let address = registers.rdi;
            let len = instruction.memory_size().size();
            return (!is_over)
                .then_some(Range { address, len })
                .into_iter()
                .collect();
        }
        let ranges = self.memory.iter().map(|memory| {
            let value = |register: Register, _, _| Some(register_value(registers, register));
            let address = memory.virtual_address(0, value).expect("known registers");
            let address = address.wrapping_add_signed(far_bit(instruction, registers));
            let len = memory.memory_size().size();
            Range { address, len }
        });
        match self.kind {
            EffectKind::Masked(_, mask) => ranges
                .flat_map(|range| selected(range, mask, process))
                .collect(),
            _ => ranges.collect(),
        }
    }
}

fn is_write(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

fn kind(instruction: &Instruction, writes_nothing: bool) -> Option<EffectKind> {
    let name = format!("{:?}", instruction.mnemonic());
    match name.as_str() {
        "Clflush" => return Some(EffectKind::Flush(FlushKind::Clflush)),
        "Clflushopt" => return Some(EffectKind::Flush(FlushKind::Clflushopt)),
        "Clwb" => return Some(EffectKind::Flush(FlushKind::Clwb)),
        "Sfence" => return Some(EffectKind::Fence(FenceKind::Sfence)),
        "Mfence" => return Some(EffectKind::Fence(FenceKind::Mfence)),
        "Syscall" => return Some(EffectKind::SystemCall),
        _ => {}
    }
    if writes_nothing {
        return None;
    }
    if instruction.is_string_instruction() {
        return Some(EffectKind::String);
    }
    let is_byte_mask = name.starts_with("Maskmov") || name == "Vmaskmovdqu";
    let is_exchange = instruction.mnemonic() == Mnemonic::Xchg;
    let store = if instruction.has_lock_prefix() || is_exchange {
        StoreKind::Locked
    } else if name.starts_with("Movnt") || name.starts_with("Vmovnt") || is_byte_mask {
        StoreKind::NonTemporal
    } else {
        StoreKind::Plain
    };
    let masked = |operand, element_bytes| {
        let register = MaskRegister::Vector(instruction.op_register(operand).number());
        let mask = Mask {
            register,
            element_bytes,
        };
        EffectKind::Masked(store, mask)
    };
    if instruction.has_op_mask() {
        let mask = Mask {
            register: MaskRegister::Opmask(instruction.op_mask().number()),
            element_bytes: instruction.memory_size().element_size(),
        };
        return Some(EffectKind::Masked(store, mask));
    }
    Some(match name.as_str() {
        "Vmaskmovps" | "Vpmaskmovd" => masked(1, 4),
        "Vmaskmovpd" | "Vpmaskmovq" => masked(1, 8),
        "Maskmovdqu" | "Vmaskmovdqu" => masked(2, 1),
        _ => EffectKind::Store(store),
    })
}

/// For a bit operation with the bit number in a register: the distance of the accessed bytes from its operand.
fn far_bit(instruction: &Instruction, registers: &user_regs_struct) -> i64 {
    let is_bit = matches!(
        instruction.mnemonic(),
        Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    );
    if !is_bit || instruction.op1_kind() != OpKind::Register {
        return 0;
    }
    let register = instruction.op1_register();
    let len = register.size().cast_signed() as i64;
    let unused = 64 - 8 * len;
    let number = register_value(registers, register).cast_signed() << unused >> unused;
    number.div_euclid(8 * len) * len
}

/// The runs of bytes that a mask selects.
fn selected(range: Range, mask: Mask, process: &Process) -> Vec<Range> {
    let is_selected: Box<dyn Fn(usize) -> bool> = match mask.register {
        MaskRegister::Vector(number) => {
            let value = process.vector(number);
            Box::new(move |at| value[at + mask.element_bytes - 1] & 0x80 != 0)
        }
        MaskRegister::Opmask(number) => {
            let bits = process.opmask(number);
            Box::new(move |at| bits >> (at / mask.element_bytes) & 1 != 0)
        }
    };
    let mut runs: Vec<Range> = Vec::new();
    for at in (0..range.len).step_by(mask.element_bytes) {
        if !is_selected(at) {
            continue;
        }
        let address = range.address + at as u64;
        match runs.last_mut() {
            Some(run) if run.address + run.len as u64 == address => run.len += mask.element_bytes,
            _ => runs.push(Range {
                address,
                len: mask.element_bytes,
            }),
        }
    }
    runs
}

fn register_value(registers: &user_regs_struct, register: Register) -> u64 {
    let full = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        other => panic!("the oracle does not know {other:?}"),
    };
    match register.size() {
        4 => full & 0xffff_ffff,
        2 if register.is_gpr() => full & 0xffff,
        _ => full,
    }
}
