//! The code around a snippet: it loads every register before and stores every one after.

use core::mem::offset_of;

use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

const XSAVE_LEN: usize = 0x3000;

/// The registers around a snippet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// In the order of their numbers.
    pub(crate) registers: [u64; 16],
    /// RFLAGS.
    pub(crate) flags: u64,
    /// The area of `xsave`.
    pub(crate) extended: Vec<u8>,
}

/// The memory that the frame loads and stores, at a fixed address below 2 GiB.
#[repr(C, align(64))]
pub(crate) struct Context {
    pub(crate) extended: [u8; XSAVE_LEN],
    pub(crate) registers: [u64; 16],
    pub(crate) flags: u64,
    pub(crate) host_stack: u64,
    pub(crate) entry: u64,
    pub(crate) stopped: u64,
    pub(crate) refills: u64,
    pub(crate) turns: u64,
}

const REGISTERS_AT: usize = offset_of!(Context, registers);
const FLAGS_AT: usize = offset_of!(Context, flags);
const HOST_STACK_AT: usize = offset_of!(Context, host_stack);
const ENTRY_AT: usize = offset_of!(Context, entry);
const STOPPED_AT: usize = offset_of!(Context, stopped);

/// The registers that the C calling convention requires to be preserved.
const SAVED: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

fn encode(
    at: u64,
    instructions: impl IntoIterator<Item = Result<Instruction, IcedError>>,
) -> Vec<u8> {
    let mut encoder = Encoder::new(64);
    let mut next = at;
    for instruction in instructions {
        next += encoder.encode(&instruction.unwrap(), next).unwrap() as u64;
    }
    encoder.take_buffer()
}

fn field(base: Register, offset: usize) -> MemoryOperand {
    MemoryOperand::with_base_displ(base, i64::try_from(offset).unwrap())
}

fn absolute(address: u64, size: u32) -> MemoryOperand {
    let address = address.cast_signed();
    MemoryOperand::new(
        Register::None,
        Register::None,
        1,
        address,
        size,
        false,
        Register::None,
    )
}

fn general(number: usize) -> Register {
    Register::RAX + number as u32
}

/// EDX:EAX = all components.
fn all_components() -> [Result<Instruction, IcedError>; 2] {
    [Register::EAX, Register::EDX]
        .map(|register| Instruction::with2(Code::Mov_r32_imm32, register, -1))
}

/// Called as a C function: loads the state and jumps to the entry.
pub(crate) fn prologue(at: u64, context: u64) -> Vec<u8> {
    let load = |number: usize| {
        let slot = field(Register::RAX, REGISTERS_AT + 8 * number);
        Instruction::with2(Code::Mov_r64_rm64, general(number), slot)
    };
    let save = SAVED.map(|register| Instruction::with1(Code::Push_r64, register));
    let stack = field(Register::RCX, HOST_STACK_AT);
    let vectors = [
        Instruction::with2(Code::Mov_r64_imm64, Register::RCX, context),
        Instruction::with2(Code::Mov_rm64_r64, stack, Register::RSP),
    ];
    let flags = [
        Instruction::with1(Code::Xrstor64_mem, MemoryOperand::with_base(Register::RCX)),
        Instruction::with2(Code::Mov_r64_rm64, Register::RAX, Register::RCX),
        Instruction::with1(Code::Push_rm64, field(Register::RAX, FLAGS_AT)),
        Ok(Instruction::with(Code::Popfq)),
    ];
    let enter = Instruction::with1(Code::Jmp_rm64, absolute(context + ENTRY_AT as u64, 4));
    let registers = (1..16).chain([0]).map(load);
    encode(
        at,
        save.into_iter()
            .chain(vectors)
            .chain(all_components())
            .chain(flags)
            .chain(registers)
            .chain([enter]),
    )
}

/// Stores the state and returns from the prologue's call.
pub(crate) fn epilogue(context: u64) -> Vec<u8> {
    let store = |number: usize| {
        let slot = field(Register::RAX, REGISTERS_AT + 8 * number);
        Instruction::with2(Code::Mov_rm64_r64, slot, general(number))
    };
    let first = [
        Instruction::with2(
            Code::Mov_moffs64_RAX,
            absolute(context + REGISTERS_AT as u64, 8),
            Register::RAX,
        ),
        Instruction::with2(Code::Mov_r64_imm64, Register::RAX, context),
    ];
    let flags = [
        Instruction::with2(
            Code::Mov_r64_rm64,
            Register::RSP,
            field(Register::RAX, HOST_STACK_AT),
        ),
        Ok(Instruction::with(Code::Pushfq)),
        Instruction::with1(Code::Pop_rm64, field(Register::RAX, FLAGS_AT)),
        Ok(Instruction::with(Code::Cld)),
        Instruction::with2(Code::Mov_r64_rm64, Register::RCX, Register::RAX),
    ];
    let vectors = [
        Instruction::with1(Code::Xsave64_mem, MemoryOperand::with_base(Register::RCX)),
        // The state that the host expects.
        Ok(Instruction::with(Code::Fninit)),
        Ok(Instruction::with(Code::VEX_Vzeroupper)),
    ];
    let mut restore = SAVED.map(|register| Instruction::with1(Code::Pop_r64, register));
    restore.reverse();
    let leave = Ok(Instruction::with(Code::Retnq));
    encode(
        0,
        first
            .into_iter()
            .chain((1..16).map(store))
            .chain(flags)
            .chain(all_components())
            .chain(vectors)
            .chain(restore)
            .chain([leave]),
    )
}

/// Notes that the run ended early, and jumps to the epilogue.
pub(crate) fn stop(at: u64, epilogue: u64, context: u64) -> Vec<u8> {
    let stopped = absolute(context + STOPPED_AT as u64, 4);
    let note = Instruction::with2(Code::Mov_rm64_imm32, stopped, 1);
    let leave = Instruction::with_branch(Code::Jmp_rel32_64, epilogue);
    encode(at, [note, leave])
}
