//! The registers of the target, which QEMU 7 does not show to plugins.
//!
//! While translated code runs, a register of the host (RBP) points to QEMU's state of the virtual processor, which begins with
//! the 16 general registers. Translated code calls us, so we find it. But the code keeps registers of the target in
//! registers of the host, and writes them back only where QEMU needs them: at the end of a block, and at each access to
//! memory, because it can fault. So registers are **exact** at the beginning of a block and at each access. For stores that is
//! all that is needed. A flush or a fence is no access for QEMU. If a register that is needed there was written since the
//! last exact place, a [`Plan`] copies the registers at that place, and computes what the few instructions in between
//! do to them. What it cannot compute is unknown, and an unknown address of a flush is an error with a name.

use iced_x86::{
    Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind, Register,
};

/// How many general registers there are.
pub(crate) const COUNT: usize = 16;
/// The number of RSP.
pub(crate) const RSP: usize = 4;
/// The number of RBP.
pub(crate) const RBP: usize = 5;

/// The general registers, in the order of their numbers.
pub(crate) type Values = [Option<u64>; COUNT];

/// QEMU's state of a virtual processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor(pub(crate) *const u64);

impl Processor {
    /// The registers that were exact last. Those that were written since may be newer or not.
    #[expect(unsafe_code, reason = "reads the state of QEMU")]
    pub(crate) fn registers(self) -> [u64; COUNT] {
        if self.0.is_null() {
            return [0; COUNT];
        }
        // SAFETY: the state of the virtual processor of the calling thread, which begins with these registers.
        unsafe { core::array::from_fn(|index| self.0.add(index).read_volatile()) }
    }
}

/// The number of a register, or of the one that it is a part of.
pub(crate) fn number(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

/// Which registers an instruction writes.
fn written(info: &mut InstructionInfoFactory, instruction: &Instruction) -> u16 {
    let writes = [
        OpAccess::Write,
        OpAccess::CondWrite,
        OpAccess::ReadWrite,
        OpAccess::ReadCondWrite,
    ];
    let used = info.info(instruction).used_registers();
    used.iter()
        .filter(|register| writes.contains(&register.access()))
        .filter_map(|register| number(register.register()))
        .fold(0, |mask, number| mask | 1 << number)
}

/// Whether QEMU accesses memory for an instruction.
fn accesses(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let is_hint = matches!(
        instruction.mnemonic(),
        Mnemonic::Nop
            | Mnemonic::Lea
            | Mnemonic::Clflush
            | Mnemonic::Clflushopt
            | Mnemonic::Clwb
            | Mnemonic::Cldemote
            | Mnemonic::Prefetch
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetchwt1
            | Mnemonic::Invlpg
    );
    let used = info.info(instruction).used_memory();
    !is_hint
        && used
            .iter()
            .any(|memory| memory.access() != OpAccess::NoMemAccess)
}

/// How the registers at an instruction are found.
#[derive(Debug)]
pub(crate) enum Source {
    /// Those that are needed are exact.
    Exact,
    /// They are copied at the instruction with this index of the block, when it accesses memory or, if it does not, before
    /// it is executed; and the plan continues from there.
    From { index: usize, is_access: bool },
}

/// What happens to registers between an exact place and an instruction.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The first of them may be the access at which registers were copied: they were before what it does to registers.
    pub(crate) steps: Vec<(Instruction, u16)>,
}

/// Finds out how the registers at the instruction `index` of a block are known. `needed` are those that must be.
pub(crate) fn source(
    info: &mut InstructionInfoFactory,
    block: &[Instruction],
    index: usize,
    needed: u16,
) -> (Source, Plan) {
    let before = &block[..index];
    let access = before
        .iter()
        .rposition(|instruction| accesses(info, instruction));
    let first = access.unwrap_or(0);
    let steps: Vec<(Instruction, u16)> = before[first..]
        .iter()
        .map(|step| (*step, written(info, step)))
        .collect();
    if steps.iter().all(|(_, mask)| mask & needed == 0) {
        return (Source::Exact, Plan::default());
    }
    let source = Source::From {
        index: first,
        is_access: access.is_some(),
    };
    (source, Plan { steps })
}

impl Plan {
    /// The registers after all steps.
    pub(crate) fn run(
        &self,
        start: [u64; COUNT],
        mut load: impl FnMut(u64, usize) -> Option<u64>,
    ) -> Values {
        let mut values = start.map(Some);
        for (instruction, mask) in &self.steps {
            if *mask == 0 {
                continue;
            }
            let result = step(instruction, &values, &mut load);
            for (index, value) in values.iter_mut().enumerate() {
                if mask & 1 << index != 0 {
                    *value = result.and_then(|results| results[index]);
                }
            }
        }
        values
    }
}

/// The address of the memory operand.
pub(crate) fn address(instruction: &Instruction, values: &Values) -> Option<u64> {
    let operand = (0..instruction.op_count())
        .find(|operand| instruction.op_kind(*operand) == OpKind::Memory)?;
    let base_is_flat = !matches!(instruction.memory_segment(), Register::FS | Register::GS);
    let address = instruction.virtual_address(operand, 0, |register, _, _| {
        if register.is_segment_register() {
            return base_is_flat.then_some(0);
        }
        let value = values[number(register)?]?;
        Some(if register.size() == 4 {
            value & 0xffff_ffff
        } else {
            value
        })
    })?;
    Some(address)
}

/// The registers after one instruction; `None` if that is not known.
fn step(
    instruction: &Instruction,
    values: &Values,
    load: &mut impl FnMut(u64, usize) -> Option<u64>,
) -> Option<Values> {
    let mut after = *values;
    match instruction.mnemonic() {
        Mnemonic::Push => {
            after[RSP] = Some(values[RSP]?.wrapping_sub(8));
            return Some(after);
        }
        Mnemonic::Pop => {
            let from = values[RSP]?;
            after[RSP] = Some(from.wrapping_add(8));
            if instruction.op0_kind() == OpKind::Register {
                after[number(instruction.op0_register())?] = load(from, 8);
            }
            return Some(after);
        }
        Mnemonic::Leave => {
            let from = values[RBP]?;
            after[RSP] = Some(from.wrapping_add(8));
            after[RBP] = load(from, 8);
            return Some(after);
        }
        _ => {}
    }
    let to = instruction.op0_register();
    let size = to.size();
    if instruction.op0_kind() != OpKind::Register || size < 4 {
        return None;
    }
    let mut operand = |index: u32| -> Option<u64> {
        match instruction.op_kind(index) {
            OpKind::Register => {
                let register = instruction.op_register(index);
                let value = values[number(register)?]?;
                // The second byte of a register.
                let is_high = matches!(
                    register,
                    Register::AH | Register::BH | Register::CH | Register::DH
                );
                Some(cut(
                    if is_high { value >> 8 } else { value },
                    register.size(),
                ))
            }
            OpKind::Memory => {
                let size = instruction.memory_size().size();
                load(address(instruction, values)?, size)
            }
            _ => Some(instruction.immediate(index)),
        }
    };
    let value = match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx => operand(1)?,
        Mnemonic::Movsx | Mnemonic::Movsxd => {
            let from = if instruction.op1_kind() == OpKind::Register {
                instruction.op1_register().size()
            } else {
                instruction.memory_size().size()
            };
            let shift = 64 - 8 * from as u32;
            ((operand(1)? << shift).cast_signed() >> shift).cast_unsigned()
        }
        Mnemonic::Lea => address(instruction, values)?,
        Mnemonic::Add => operand(0)?.wrapping_add(operand(1)?),
        Mnemonic::Sub => operand(0)?.wrapping_sub(operand(1)?),
        Mnemonic::And => operand(0)? & operand(1)?,
        Mnemonic::Or => operand(0)? | operand(1)?,
        // A register with itself: zero, whatever it holds.
        Mnemonic::Xor
            if instruction.op1_kind() == OpKind::Register && to == instruction.op1_register() =>
        {
            0
        }
        Mnemonic::Xor => operand(0)? ^ operand(1)?,
        Mnemonic::Inc => operand(0)?.wrapping_add(1),
        Mnemonic::Dec => operand(0)?.wrapping_sub(1),
        Mnemonic::Neg => operand(0)?.wrapping_neg(),
        Mnemonic::Not => !operand(0)?,
        Mnemonic::Shl | Mnemonic::Sal => operand(0)? << shift(instruction, size, values)?,
        Mnemonic::Shr => operand(0)? >> shift(instruction, size, values)?,
        Mnemonic::Sar => {
            let above = 64 - 8 * size as u32;
            let signed = (operand(0)? << above).cast_signed() >> above;
            (signed >> shift(instruction, size, values)?).cast_unsigned()
        }
        Mnemonic::Imul if instruction.op_count() == 2 => operand(0)?.wrapping_mul(operand(1)?),
        Mnemonic::Imul if instruction.op_count() == 3 => operand(1)?.wrapping_mul(operand(2)?),
        _ => return None,
    };
    after[number(to)?] = Some(cut(value, size));
    Some(after)
}

/// By how much a shift shifts.
fn shift(instruction: &Instruction, size: usize, values: &Values) -> Option<u32> {
    let count = match instruction.op1_kind() {
        OpKind::Register => values[number(instruction.op1_register())?]?,
        _ => instruction.immediate(1),
    };
    Some((count & if size == 8 { 63 } else { 31 }) as u32)
}

/// The low bytes of a value.
pub(crate) fn cut(value: u64, size: usize) -> u64 {
    if size >= 8 {
        value
    } else {
        value & ((1 << (8 * size)) - 1)
    }
}

/// The registers that an instruction needs for the address of its memory, and the two that a call stack needs.
pub(crate) fn needed(instruction: &Instruction) -> u16 {
    let of_address = [instruction.memory_base(), instruction.memory_index()];
    of_address
        .into_iter()
        .filter_map(number)
        .chain([RSP, RBP])
        .fold(0, |mask, number| mask | 1 << number)
}

/// What a compare-and-exchange writes if it succeeds: the register, or none for those of two registers.
pub(crate) fn exchanged(instruction: &Instruction) -> Option<(Register, usize)> {
    match instruction.mnemonic() {
        Mnemonic::Cmpxchg => {
            let register = instruction.op1_register();
            Some((register, register.size()))
        }
        Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b => {
            let size = if instruction.memory_size() == MemorySize::UInt128 {
                16
            } else {
                8
            };
            Some((Register::None, size))
        }
        _ => None,
    }
}

/// The bytes that a compare-and-exchange writes if it succeeds.
pub(crate) fn exchange_bytes(
    (register, size): (Register, usize),
    registers: &[u64; COUNT],
) -> Vec<u8> {
    const RCX: usize = 1;
    const RBX: usize = 3;
    let mut bytes = Vec::with_capacity(size);
    match number(register) {
        Some(number) => {
            let is_high = matches!(
                register,
                Register::AH | Register::BH | Register::CH | Register::DH
            );
            let value = if is_high {
                registers[number] >> 8
            } else {
                registers[number]
            };
            bytes.extend_from_slice(&value.to_le_bytes()[..size]);
        }
        None => {
            bytes.extend_from_slice(&registers[RBX].to_le_bytes()[..size / 2]);
            bytes.extend_from_slice(&registers[RCX].to_le_bytes()[..size / 2]);
        }
    }
    bytes
}
