//! Random instances of any instruction that has a memory operand, from the encoder's own table.

use iced_x86::{Code, CpuidFeature, Instruction, OpCodeOperandKind as Kind, OpKind, Register};

use crate::random::Random;

/// A memory operand before its registers have values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) base: Register,
    pub(crate) index: Register,
    pub(crate) scale: u32,
    pub(crate) displacement: u64,
    pub(crate) displacement_size: u32,
    pub(crate) segment: Register,
}

impl Memory {
    /// `[rsi]`.
    pub(crate) fn simple() -> Self {
        Self {
            base: Register::RSI,
            index: Register::None,
            scale: 1,
            displacement: 0,
            displacement_size: 0,
            segment: Register::None,
        }
    }
}

const BYTES: [Register; 20] = [
    Register::AL,
    Register::CL,
    Register::DL,
    Register::BL,
    Register::AH,
    Register::CH,
    Register::DH,
    Register::BH,
    Register::SPL,
    Register::BPL,
    Register::SIL,
    Register::DIL,
    Register::R8L,
    Register::R9L,
    Register::R10L,
    Register::R11L,
    Register::R12L,
    Register::R13L,
    Register::R14L,
    Register::R15L,
];

fn vector_index(kind: Kind) -> Option<Register> {
    match kind {
        Kind::mem_vsib32x | Kind::mem_vsib64x => Some(Register::XMM1),
        Kind::mem_vsib32y | Kind::mem_vsib64y => Some(Register::YMM1),
        Kind::mem_vsib32z | Kind::mem_vsib64z => Some(Register::ZMM1),
        _ => None,
    }
}

fn is_memory(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::mem_offs
            | Kind::mem
            | Kind::mem_mpx
            | Kind::mem_mib
            | Kind::r8_or_mem
            | Kind::r16_or_mem
            | Kind::r32_or_mem
            | Kind::r32_or_mem_mpx
            | Kind::r64_or_mem
            | Kind::r64_or_mem_mpx
            | Kind::mm_or_mem
            | Kind::xmm_or_mem
            | Kind::ymm_or_mem
            | Kind::zmm_or_mem
            | Kind::bnd_or_mem_mpx
            | Kind::k_or_mem
            | Kind::sibmem
    ) || vector_index(kind).is_some()
}

fn register(kind: Kind, code: Code, random: &mut Random) -> Option<Register> {
    // Vector registers 16 to 31 exist only where EVEX can encode them.
    let vectors = if code.encoding() == iced_x86::EncodingKind::EVEX {
        32
    } else {
        16
    };
    let general = random.below(16) as u32;
    let vector = random.below(vectors) as u32;
    Some(match kind {
        Kind::r8_reg | Kind::r8_opcode => random.pick(&BYTES),
        Kind::r16_reg | Kind::r16_reg_mem | Kind::r16_rm | Kind::r16_opcode => {
            Register::AX + general
        }
        Kind::r32_reg | Kind::r32_reg_mem | Kind::r32_rm | Kind::r32_opcode | Kind::r32_vvvv => {
            Register::EAX + general
        }
        Kind::r64_reg | Kind::r64_reg_mem | Kind::r64_rm | Kind::r64_opcode | Kind::r64_vvvv => {
            Register::RAX + general
        }
        Kind::seg_reg => random.pick(&[Register::ES, Register::DS, Register::FS, Register::SS]),
        Kind::k_reg | Kind::k_rm | Kind::k_vvvv => Register::K0 + random.below(8) as u32,
        Kind::kp1_reg => Register::K2,
        Kind::mm_reg | Kind::mm_rm => Register::MM0 + random.below(8) as u32,
        Kind::xmm_reg | Kind::xmm_rm | Kind::xmm_vvvv | Kind::xmm_is4 | Kind::xmm_is5 => {
            Register::XMM0 + vector
        }
        Kind::ymm_reg | Kind::ymm_rm | Kind::ymm_vvvv | Kind::ymm_is4 | Kind::ymm_is5 => {
            Register::YMM0 + vector
        }
        Kind::zmm_reg | Kind::zmm_rm | Kind::zmm_vvvv => Register::ZMM0 + vector,
        Kind::xmmp3_vvvv => Register::XMM4,
        Kind::zmmp3_vvvv => Register::ZMM4,
        Kind::cr_reg => Register::CR0,
        Kind::dr_reg => Register::DR0,
        Kind::tr_reg => Register::TR1,
        Kind::bnd_reg => Register::BND0,
        Kind::es => Register::ES,
        Kind::cs => Register::CS,
        Kind::ss => Register::SS,
        Kind::ds => Register::DS,
        Kind::fs => Register::FS,
        Kind::gs => Register::GS,
        Kind::al => Register::AL,
        Kind::cl => Register::CL,
        Kind::ax => Register::AX,
        Kind::dx => Register::DX,
        Kind::eax => Register::EAX,
        Kind::rax => Register::RAX,
        Kind::st0 => Register::ST0,
        Kind::sti_opcode => Register::ST1,
        Kind::tmm_reg | Kind::tmm_rm | Kind::tmm_vvvv => Register::TMM1,
        _ => return None,
    })
}

fn immediate(kind: Kind) -> Option<OpKind> {
    Some(match kind {
        Kind::imm4_m2z | Kind::imm8 | Kind::imm8_const_1 => OpKind::Immediate8,
        Kind::imm8sex16 => OpKind::Immediate8to16,
        Kind::imm8sex32 => OpKind::Immediate8to32,
        Kind::imm8sex64 => OpKind::Immediate8to64,
        Kind::imm16 => OpKind::Immediate16,
        Kind::imm32 => OpKind::Immediate32,
        Kind::imm32sex64 => OpKind::Immediate32to64,
        Kind::imm64 => OpKind::Immediate64,
        _ => return None,
    })
}

fn implied(kind: Kind) -> Option<OpKind> {
    Some(match kind {
        Kind::seg_rSI => OpKind::MemorySegRSI,
        Kind::es_rDI => OpKind::MemoryESRDI,
        Kind::seg_rDI => OpKind::MemorySegRDI,
        Kind::br16_1 | Kind::br16_2 | Kind::br32_1 | Kind::br32_4 | Kind::br64_1 | Kind::br64_4 => {
            OpKind::NearBranch64
        }
        _ => return None,
    })
}

/// An instance of an instruction with random operands and this memory operand, or nothing if it
/// does not exist in 64-bit mode.
pub(crate) fn build(code: Code, memory: Memory, random: &mut Random) -> Option<Instruction> {
    let table = code.op_code();
    if !table.is_instruction() || !table.mode64() {
        return None;
    }
    let mut instruction = Instruction::default();
    instruction.set_code(code);
    for (operand, kind) in (0..).zip(table.op_kinds().iter().copied()) {
        if is_memory(kind) {
            instruction.set_op_kind(operand, OpKind::Memory);
            instruction.set_memory_base(memory.base);
            instruction.set_memory_index(vector_index(kind).unwrap_or(memory.index));
            instruction.set_memory_index_scale(memory.scale);
            instruction.set_memory_displacement64(memory.displacement);
            instruction.set_memory_displ_size(memory.displacement_size);
            instruction.set_segment_prefix(memory.segment);
        } else if let Some(register) = register(kind, code, random) {
            instruction.set_op_kind(operand, OpKind::Register);
            instruction.set_op_register(operand, register);
        } else if let Some(immediate) = immediate(kind) {
            let is_second = operand > 0
                && matches!(
                    instruction.op_kind(operand - 1),
                    OpKind::Immediate8 | OpKind::Immediate16
                );
            instruction.set_op_kind(
                operand,
                if is_second {
                    OpKind::Immediate8_2nd
                } else {
                    immediate
                },
            );
            let value = if kind == Kind::imm8_const_1 {
                1
            } else if kind == Kind::imm4_m2z {
                0
            } else if matches!(immediate, OpKind::Immediate8) {
                random.below(256) as i32
            } else {
                i32::from(random.next() as i8)
            };
            instruction.set_immediate_i32(operand, value);
        } else {
            instruction.set_op_kind(operand, implied(kind)?);
        }
    }
    if table.require_op_mask_register() {
        instruction.set_op_mask(Register::K1 + random.below(7) as u32);
    }
    Some(instruction)
}

/// Whether this machine executes the instruction.
pub(crate) fn runs_here(code: Code) -> bool {
    code.cpuid_features().iter().all(|feature| has(*feature))
}

fn has(feature: CpuidFeature) -> bool {
    use CpuidFeature as F;
    match feature {
        F::INTEL8086
        | F::INTEL186
        | F::INTEL286
        | F::INTEL386
        | F::INTEL486
        | F::X64
        | F::FPU
        | F::FPU287
        | F::FPU387
        | F::CX8
        | F::CMOV
        | F::MMX
        | F::SSE
        | F::SSE2
        | F::CLFSH => true,
        F::SSE3 => is_x86_feature_detected!("sse3"),
        F::SSSE3 => is_x86_feature_detected!("ssse3"),
        F::SSE4_1 => is_x86_feature_detected!("sse4.1"),
        F::SSE4_2 => is_x86_feature_detected!("sse4.2"),
        F::AES => is_x86_feature_detected!("aes"),
        F::PCLMULQDQ => is_x86_feature_detected!("pclmulqdq"),
        F::SHA => is_x86_feature_detected!("sha"),
        F::FMA => is_x86_feature_detected!("fma"),
        F::BMI1 => is_x86_feature_detected!("bmi1"),
        F::BMI2 => is_x86_feature_detected!("bmi2"),
        F::LZCNT => is_x86_feature_detected!("lzcnt"),
        F::POPCNT => is_x86_feature_detected!("popcnt"),
        F::ADX => is_x86_feature_detected!("adx"),
        F::SSE4A => is_x86_feature_detected!("sse4a"),
        F::AVX => is_x86_feature_detected!("avx"),
        F::AVX2 => is_x86_feature_detected!("avx2"),
        F::F16C => is_x86_feature_detected!("f16c"),
        F::MOVBE => is_x86_feature_detected!("movbe"),
        F::CMPXCHG16B => is_x86_feature_detected!("cmpxchg16b"),
        F::AVX512F => is_x86_feature_detected!("avx512f"),
        F::AVX512BW => is_x86_feature_detected!("avx512bw"),
        F::AVX512DQ => is_x86_feature_detected!("avx512dq"),
        F::AVX512VL => is_x86_feature_detected!("avx512vl"),
        F::AVX512_VBMI2 => is_x86_feature_detected!("avx512vbmi2"),
        F::AVX512_FP16 => is_x86_feature_detected!("avx512fp16"),
        F::CLFLUSHOPT => leaf_7_ebx() & 1 << 23 != 0,
        F::CLWB => leaf_7_ebx() & 1 << 24 != 0,
        F::MOVDIRI => leaf_7_ecx() & 1 << 27 != 0,
        _ => false,
    }
}

fn leaf_7_ebx() -> u32 {
    core::arch::x86_64::__cpuid_count(7, 0).ebx
}

fn leaf_7_ecx() -> u32 {
    core::arch::x86_64::__cpuid_count(7, 0).ecx
}
