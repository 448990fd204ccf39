//! Random cases: an instruction, a machine state, and registers such that the instruction addresses the memory of the
//! state.

use iced_x86::{Code, Encoder, EncodingKind, Instruction, Mnemonic, Register};
use powerfail_patch::{Action, Means, Site, StoreForm};

use crate::bench::Bench;
use crate::frame::State;
use crate::instances::{self, Memory};
use crate::machine::{Layout, MEMORY_LEN, Machine, SNIPPET_AT};
use crate::random::Random;

/// CF, PF, AF, ZF, SF and OF.
pub(crate) const STATUS_FLAGS: u64 = 0x8d5;
pub(crate) const DIRECTION_FLAG: u64 = 0x400;

/// A location for an instance's memory operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    pub(crate) address: u64,
    pub(crate) in_pool: bool,
}

/// One test case.
pub(crate) struct Case {
    pub(crate) code: Vec<u8>,
    pub(crate) site: Site,
    pub(crate) state: State,
    pub(crate) aim: Aim,
}

pub(crate) fn random_state(random: &mut Random) -> State {
    let mut extended = vec![0; Machine::xsave_len() as usize];
    random.fill(&mut extended);
    // Control words at their defaults, all x87 registers valid ones, nothing pending.
    extended[..32].fill(0);
    extended[..2].copy_from_slice(&0x37fu16.to_le_bytes());
    extended[4] = 0xff;
    extended[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    extended[28..32].copy_from_slice(&0xffffu32.to_le_bytes());
    for register in 0..8 {
        let at = 32 + 16 * register;
        extended[at + 7] |= 0x80;
        // Small numbers, so that conversions to integers give various results.
        let exponent = (0x3fff + random.below(40) as u16) | (random.next() as u16 & 0x8000);
        extended[at + 8..at + 10].copy_from_slice(&exponent.to_le_bytes());
        extended[at + 10..at + 16].fill(0);
    }
    extended[416..576].fill(0);
    extended[512..520].copy_from_slice(&(xcr0() & 0xe7).to_le_bytes());
    let mut registers = [0; 16];
    registers.fill_with(|| {
        if random.one_in(4) {
            random.below(64)
        } else {
            random.next()
        }
    });
    registers[4] = Machine::stack_address() + MEMORY_LEN as u64 / 2 + 8 * random.below(16);
    let flags =
        2 | random.next() & STATUS_FLAGS | if random.one_in(4) { DIRECTION_FLAG } else { 0 };
    State {
        registers,
        flags,
        extended,
    }
}

fn xcr0() -> u64 {
    let leaf = core::arch::x86_64::__cpuid_count(13, 0);
    u64::from(leaf.eax)
}

fn number(register: Register) -> usize {
    register.full_register().number()
}

/// A random memory operand that points to the target address, with the register values for it.
fn aim_operand(aim: Aim, state: &mut State, random: &mut Random, moffs: bool) -> Memory {
    let mut memory = Memory::simple();
    if moffs {
        return Memory {
            base: Register::None,
            displacement: aim.address,
            displacement_size: 8,
            ..memory
        };
    }
    let low = aim.address < 1 << 31;
    let narrow = low && random.one_in(8);
    let general = |random: &mut Random| {
        (if narrow { Register::EAX } else { Register::RAX }) + random.below(16) as u32
    };
    let mut target = aim.address;
    if !narrow && random.one_in(12) {
        memory.segment = Register::FS;
        target = target.wrapping_sub(Machine::fs_base());
    }
    let pick = random.below(10);
    if pick == 0 && memory.segment == Register::None && low {
        // Relative to the instruction: the encoder expects the target itself.
        return Memory {
            base: Register::RIP,
            displacement: target,
            displacement_size: 8,
            ..memory
        };
    }
    if pick == 1 && memory.segment == Register::None && low {
        return Memory {
            base: Register::None,
            displacement: target,
            displacement_size: 4,
            ..memory
        };
    }
    memory.displacement = match random.below(3) {
        0 => 0,
        1 => i64::from(random.next() as i8).cast_unsigned(),
        _ => i64::from(random.next() as i32).cast_unsigned(),
    };
    memory.displacement_size = u32::from(memory.displacement != 0);
    let mask = if narrow { 0xffff_ffff } else { u64::MAX };
    let garbage = |random: &mut Random| if narrow { random.next() << 32 } else { 0 };
    memory.base = general(random);
    let rest = target.wrapping_sub(memory.displacement);
    let index = general(random);
    if pick < 6 || number(index) == 4 || number(index) == number(memory.base) {
        state.registers[number(memory.base)] = rest & mask | garbage(random);
        return memory;
    }
    memory.index = index;
    memory.scale = random.pick(&[1, 2, 4, 8]);
    if pick == 6 && rest.is_multiple_of(u64::from(memory.scale)) {
        memory.base = Register::None;
        memory.displacement_size = 4;
        state.registers[number(index)] =
            ((rest & mask) / u64::from(memory.scale)) | garbage(random);
        return memory;
    }
    let index_value = random.next();
    state.registers[number(index)] = index_value;
    let scaled = index_value.wrapping_mul(u64::from(memory.scale));
    state.registers[number(memory.base)] = rest.wrapping_sub(scaled) & mask | garbage(random);
    memory
}

fn alignment(instruction: &Instruction, len: u64) -> u64 {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Movaps
        | M::Movapd
        | M::Movdqa
        | M::Movntps
        | M::Movntpd
        | M::Movntdq
        | M::Vmovaps
        | M::Vmovapd
        | M::Vmovdqa
        | M::Vmovdqa32
        | M::Vmovdqa64
        | M::Vmovntps
        | M::Vmovntpd
        | M::Vmovntdq
        | M::Vmovntdqa
        | M::Cmpxchg16b => len,
        // In the older encoding, all but a few require alignment.
        _ if len >= 16 && instruction.code().encoding() == EncodingKind::Legacy => {
            match instruction.mnemonic() {
                M::Movups | M::Movupd | M::Movdqu | M::Lddqu => 1,
                _ => len,
            }
        }
        // A locked operation across two lines is slow, and forbidden on some machines.
        _ if instruction.has_lock_prefix() || instruction.mnemonic() == M::Xchg => len.max(1),
        _ => 1,
    }
}

fn can_lock(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Add
            | M::Or
            | M::Adc
            | M::Sbb
            | M::And
            | M::Sub
            | M::Xor
            | M::Inc
            | M::Dec
            | M::Neg
            | M::Not
            | M::Bts
            | M::Btr
            | M::Btc
            | M::Xadd
            | M::Xchg
            | M::Cmpxchg
            | M::Cmpxchg8b
            | M::Cmpxchg16b
    )
}

/// A random case of an instruction, or nothing if this attempt cannot be encoded or needs no trampoline.
pub(crate) fn random_case(bench: &mut Bench, code: Code, random: &mut Random) -> Option<Case> {
    let case = random_instance(bench, code, random, |random| random.below(0x1000))?;
    (case.site.means == Means::Trampoline).then_some(case)
}

/// Like `random_case`, for any instruction, at a given offset in a page.
pub(crate) fn random_instance(
    bench: &mut Bench,
    code: Code,
    random: &mut Random,
    offset: impl Fn(&mut Random) -> u64,
) -> Option<Case> {
    let mut state = random_state(random);
    let sample = instances::build(code, Memory::simple(), random)?;
    let moffs = matches!(
        code,
        Code::Mov_moffs8_AL
            | Code::Mov_moffs16_AX
            | Code::Mov_moffs32_EAX
            | Code::Mov_moffs64_RAX
            | Code::Mov_AL_moffs8
            | Code::Mov_AX_moffs16
            | Code::Mov_EAX_moffs32
            | Code::Mov_RAX_moffs64
    );
    let locked = can_lock(sample.mnemonic()) && random.one_in(2);
    let in_pool = !random.one_in(5);
    let region = if in_pool {
        bench.layout.pool()
    } else {
        Machine::volatile_address()
    };
    let mut locked_sample = sample;
    locked_sample.set_has_lock_prefix(locked);
    let step = alignment(&locked_sample, sample.memory_size().size() as u64);
    let offset = 0x1000 + offset(random) / step * step;
    let aim = Aim {
        address: region + offset,
        in_pool,
    };
    let memory = aim_operand(aim, &mut state, random, moffs);
    let mut instruction = instances::build(code, memory, random)?;
    instruction.set_has_lock_prefix(locked);
    if code.op_code().can_use_op_mask_register() && random.one_in(2) {
        instruction.set_op_mask(Register::K1 + random.below(7) as u32);
    }
    let mut bit_offset = 0;
    if bench_form(bench, &instruction) == Some(StoreForm::FarBit) {
        bit_offset = aim_bit(&instruction, &mut state, random)?;
    }
    let is_string = matches!(
        bench_form(bench, &instruction),
        Some(StoreForm::String { .. })
    );
    if is_string {
        instruction.set_segment_prefix(Register::None);
        instruction.set_has_rep_prefix(random.one_in(2));
        aim_string(
            aim,
            &mut state,
            random,
            bench.layout,
            instruction.has_rep_prefix(),
        );
    }
    let aim = Aim {
        address: aim.address.wrapping_add(bit_offset),
        ..aim
    };
    let mut encoder = Encoder::new(64);
    encoder
        .encode(&instruction, Machine::code_address(SNIPPET_AT))
        .ok()?;
    let bytes = encoder.take_buffer();
    let site = bench
        .classifier
        .classify(&bytes, Machine::code_address(SNIPPET_AT));
    Some(Case {
        code: bytes,
        site,
        state,
        aim,
    })
}

fn bench_form(bench: &mut Bench, instruction: &Instruction) -> Option<StoreForm> {
    let mut encoder = Encoder::new(64);
    encoder
        .encode(instruction, Machine::code_address(SNIPPET_AT))
        .ok()?;
    match bench.classifier.classify(&encoder.take_buffer(), 0).action {
        Action::Store(store) => Some(store.form),
        _ => None,
    }
}

/// Gives the register with the bit number a value that stays within the memory, and returns the resulting distance of
/// the operand. Nothing if the register is part of the address.
fn aim_bit(instruction: &Instruction, state: &mut State, random: &mut Random) -> Option<u64> {
    let bit = instruction.op1_register();
    let own = bit.full_register();
    if own == instruction.memory_base().full_register()
        || own == instruction.memory_index().full_register()
    {
        return None;
    }
    let value = random.below(8000).cast_signed() - 4000;
    let (mask, bits) = match bit.size() {
        2 => (0xffff, 16),
        4 => (0xffff_ffff, 32),
        _ => (u64::MAX, 64),
    };
    // Bits above the operand size are ignored.
    state.registers[number(own)] = value.cast_unsigned() & mask | random.next() & !mask;
    Some((value.div_euclid(bits) * (bits / 8)).cast_unsigned())
}

/// Source, destination and count of a string operation: disjoint, overlapping, forward, backward.
fn aim_string(aim: Aim, state: &mut State, random: &mut Random, layout: Layout, repeats: bool) {
    state.registers[7] = aim.address;
    let distance = random.below(40).wrapping_sub(20);
    state.registers[6] = match random.below(3) {
        0 => aim.address.wrapping_add(distance),
        1 => layout.pool() + 0x1800 + random.below(64),
        _ => Machine::volatile_address() + 0x1800,
    };
    let most = random.pick(&[0, 1, 3, 40, 300]);
    state.registers[1] = if repeats {
        random.below(most + 1)
    } else {
        random.next()
    };
}
