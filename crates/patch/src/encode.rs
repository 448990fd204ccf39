//! Machine code of the instructions that trampolines are mostly made of.
//!
//! A trampoline has some two hundred instructions, and a recording begins with a thousand trampolines. The encoder of
//! iced knows every instruction, and takes its time for each. This knows moves, arithmetic and comparisons of 4 and 8
//! bytes, and leaves all others to it. Both write the same bytes; a test compares them.

use iced_x86::{Code, MemoryOperand, Register};

/// The longest that this writes: segment, REX, two bytes of opcode, operands, displacement, immediate.
const LEN_MAX: usize = 14;

/// Machine code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Encoded {
    bytes: [u8; LEN_MAX],
    len: usize,
}

impl Encoded {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn add(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn add_word(&mut self, word: i32) {
        self.bytes[self.len..self.len + 4].copy_from_slice(&word.to_le_bytes());
        self.len += 4;
    }
}

/// What is written for an operation, before its operands.
struct Form {
    /// Operands have 8 bytes, not 4.
    is_wide: bool,
    /// Behind `0f`.
    is_second: bool,
    opcode: u8,
}

const fn form(is_wide: bool, opcode: u8) -> Form {
    Form {
        is_wide,
        is_second: false,
        opcode,
    }
}

const fn second(is_wide: bool, opcode: u8) -> Form {
    Form {
        is_wide,
        is_second: true,
        opcode,
    }
}

/// Operations on a register and on memory or another register; whether the register is what is written to, so that it
/// comes first.
fn of_two(code: Code) -> Option<(Form, bool)> {
    let (form, register_first) = match code {
        Code::Mov_r64_rm64 => (form(true, 0x8b), true),
        Code::Mov_r32_rm32 => (form(false, 0x8b), true),
        Code::Lea_r64_m => (form(true, 0x8d), true),
        Code::Add_r64_rm64 => (form(true, 0x03), true),
        Code::Sub_r64_rm64 => (form(true, 0x2b), true),
        Code::Xor_r64_rm64 => (form(true, 0x33), true),
        Code::Xor_r32_rm32 => (form(false, 0x33), true),
        Code::Cmp_r64_rm64 => (form(true, 0x3b), true),
        Code::Mov_rm64_r64 => (form(true, 0x89), false),
        Code::Mov_rm32_r32 => (form(false, 0x89), false),
        Code::Cmp_rm64_r64 => (form(true, 0x39), false),
        Code::Test_rm64_r64 => (form(true, 0x85), false),
        Code::Xadd_rm64_r64 => (second(true, 0xc1), false),
        Code::Cmpxchg_rm64_r64 => (second(true, 0xb1), false),
        Code::Cmpxchg_rm32_r32 => (second(false, 0xb1), false),
        _ => return None,
    };
    Some((form, register_first))
}

/// Operations on memory or a register and an immediate: what stands in the place of the register, and whether the
/// immediate has one byte, not 4.
fn of_immediate(code: Code) -> Option<(Form, u8, bool)> {
    let (form, extension, is_short) = match code {
        Code::Mov_rm64_imm32 => (form(true, 0xc7), 0, false),
        Code::Mov_rm32_imm32 => (form(false, 0xc7), 0, false),
        Code::Add_rm64_imm8 => (form(true, 0x83), 0, true),
        Code::Or_rm32_imm8 => (form(false, 0x83), 1, true),
        Code::And_rm64_imm8 => (form(true, 0x83), 4, true),
        Code::Cmp_rm64_imm8 => (form(true, 0x83), 7, true),
        Code::Cmp_rm32_imm8 => (form(false, 0x83), 7, true),
        Code::Add_rm32_imm32 => (form(false, 0x81), 0, false),
        Code::And_rm32_imm32 => (form(false, 0x81), 4, false),
        Code::Cmp_rm64_imm32 => (form(true, 0x81), 7, false),
        Code::Cmp_rm32_imm32 => (form(false, 0x81), 7, false),
        Code::Test_rm32_imm32 => (form(false, 0xf7), 0, false),
        Code::Shl_rm64_imm8 => (form(true, 0xc1), 4, true),
        Code::Shr_rm64_imm8 => (form(true, 0xc1), 5, true),
        Code::Shr_rm32_imm8 => (form(false, 0xc1), 5, true),
        _ => return None,
    };
    Some((form, extension, is_short))
}

/// The number of a register of 4 or 8 bytes.
fn number(register: Register) -> Option<u8> {
    (register.is_gpr32() || register.is_gpr64()).then(|| register.number() as u8)
}

/// A register, register operand: both are registers.
pub(crate) fn registers(code: Code, to: Register, from: Register) -> Option<Encoded> {
    let (form, register_first) = of_two(code)?;
    if code == Code::Lea_r64_m {
        return None;
    }
    let (to, from) = (number(to)?, number(from)?);
    let (register, other) = if register_first {
        (to, from)
    } else {
        (from, to)
    };
    let mut out = Encoded::default();
    begin(&mut out, &form, register, 0, other);
    out.add(0xc0 | (register & 7) << 3 | other & 7);
    Some(out)
}

/// A register and memory, in the order that the operation has.
pub(crate) fn memory(code: Code, register: Register, memory: &MemoryOperand) -> Option<Encoded> {
    let (form, _) = of_two(code)?;
    with_memory(&form, number(register)?, memory)
}

/// Memory and an immediate.
pub(crate) fn memory_immediate(code: Code, memory: &MemoryOperand, value: i32) -> Option<Encoded> {
    let (form, extension, is_short) = of_immediate(code)?;
    let mut out = with_memory(&form, extension, memory)?;
    add_immediate(&mut out, value, is_short)?;
    Some(out)
}

/// A register and an immediate.
pub(crate) fn register_immediate(code: Code, register: Register, value: i32) -> Option<Encoded> {
    let (form, extension, is_short) = of_immediate(code)?;
    let register = number(register)?;
    let mut out = Encoded::default();
    begin(&mut out, &form, 0, 0, register);
    out.add(0xc0 | extension << 3 | register & 7);
    add_immediate(&mut out, value, is_short)?;
    Some(out)
}

fn add_immediate(out: &mut Encoded, value: i32, is_short: bool) -> Option<()> {
    if is_short {
        let value = i8::try_from(value).ok()?;
        out.add(value.cast_unsigned());
    } else {
        out.add_word(value);
    }
    Some(())
}

/// Prefix and opcode, for registers in the three places.
fn begin(out: &mut Encoded, form: &Form, register: u8, index: u8, base: u8) {
    let rex = u8::from(form.is_wide) << 3 | register >> 3 << 2 | index >> 3 << 1 | base >> 3;
    if rex != 0 {
        out.add(0x40 | rex);
    }
    if form.is_second {
        out.add(0x0f);
    }
    out.add(form.opcode);
}

fn with_memory(form: &Form, register: u8, memory: &MemoryOperand) -> Option<Encoded> {
    // In the place of a base: another byte follows. In that byte, the index and the base that stand for none.
    const MORE: u8 = 4;
    const NO_INDEX: u8 = 4;
    const NO_BASE: u8 = 5;
    let mut out = Encoded::default();
    match memory.segment_prefix {
        Register::None => {}
        Register::GS => out.add(0x65),
        _ => return None,
    }
    let place = (register & 7) << 3;
    let displacement = i32::try_from(memory.displacement).ok()?;
    if memory.base == Register::None {
        // An address of 32 bits has another prefix.
        if memory.index != Register::None || memory.scale != 1 || memory.displ_size != 8 {
            return None;
        }
        begin(&mut out, form, register, 0, 0);
        out.add(place | MORE);
        out.add(NO_INDEX << 3 | NO_BASE);
        out.add_word(displacement);
        return Some(out);
    }
    if !memory.base.is_gpr64() || memory.is_broadcast {
        return None;
    }
    let base = memory.base.number() as u8;
    let index = match memory.index {
        Register::None if memory.scale == 1 => None,
        Register::None | Register::RSP => return None,
        index if index.is_gpr64() => Some(index.number() as u8),
        _ => return None,
    };
    let is_short = i8::try_from(displacement).is_ok();
    let mode: u8 = match memory.displ_size {
        0 if displacement != 0 => return None,
        0 if base & 7 == NO_BASE => 1,
        0 => 0,
        1 if is_short => 1,
        1 | 8 => 2,
        _ => return None,
    };
    begin(&mut out, form, register, index.unwrap_or(0), base);
    if index.is_some() || base & 7 == MORE {
        let index = index.map_or(NO_INDEX, |index| index & 7);
        let scale = memory.scale.trailing_zeros() as u8;
        out.add(mode << 6 | place | MORE);
        out.add(scale << 6 | index << 3 | base & 7);
    } else {
        out.add(mode << 6 | place | base & 7);
    }
    match mode {
        0 => {}
        1 => out.add((displacement as i8).cast_unsigned()),
        _ => out.add_word(displacement),
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};

    use super::{
        Encoded, memory, memory_immediate, of_immediate, of_two, register_immediate, registers,
    };

    fn general(number: u32, is_wide: bool) -> Register {
        let first = if is_wide {
            Register::RAX
        } else {
            Register::EAX
        };
        first + number
    }

    /// Compares what was written, if anything was, with what iced writes.
    fn compare(encoder: &mut Encoder, ours: Option<Encoded>, instruction: Instruction) -> bool {
        let Some(ours) = ours else { return false };
        encoder
            .encode(&instruction, 0x1000)
            .expect("an instruction");
        let theirs = encoder.take_buffer();
        assert_eq!(ours.bytes(), theirs, "{instruction:?}");
        true
    }

    fn places() -> Vec<MemoryOperand> {
        let registers = || (0..16).map(|number| general(number, true));
        let mut places = Vec::new();
        let segments = [Register::None, Register::GS, Register::FS];
        for segment in segments {
            for displacement in [0, 0x7f, -129] {
                let alone = MemoryOperand::new(
                    Register::None,
                    Register::None,
                    1,
                    displacement,
                    8,
                    false,
                    segment,
                );
                places.push(alone);
                for base in registers() {
                    let mut add = |index, scale| {
                        for displ_size in [0, 1, 8] {
                            if displ_size == 0 && displacement != 0 {
                                continue;
                            }
                            let place = MemoryOperand::new(
                                base,
                                index,
                                scale,
                                displacement,
                                displ_size,
                                false,
                                segment,
                            );
                            places.push(place);
                        }
                    };
                    add(Register::None, 1);
                    for index in [Register::RAX, Register::R12] {
                        add(index, 1);
                        add(index, 8);
                    }
                }
            }
        }
        places
    }

    #[test]
    fn all_is_written_as_iced_writes_it() {
        let mut encoder = Encoder::new(64);
        let places = places();
        let (mut operations, mut written, mut left) = (0, 0, 0);
        let mut count = |is_written: bool| {
            written += usize::from(is_written);
            left += usize::from(!is_written);
        };
        for code in Code::values() {
            if let Some((form, register_first)) = of_two(code) {
                operations += 1;
                for register in [0, 4, 9].map(|number| general(number, form.is_wide)) {
                    for place in &places {
                        let instruction = if register_first {
                            Instruction::with2(code, register, *place)
                        } else {
                            Instruction::with2(code, *place, register)
                        };
                        let instruction = instruction.expect("these operands");
                        count(compare(
                            &mut encoder,
                            memory(code, register, place),
                            instruction,
                        ));
                    }
                    for other in (0..16).map(|number| general(number, form.is_wide)) {
                        let ours = registers(code, register, other);
                        assert_eq!(ours.is_none(), code == Code::Lea_r64_m);
                        if ours.is_some() {
                            let instruction = Instruction::with2(code, register, other);
                            compare(&mut encoder, ours, instruction.expect("these operands"));
                        }
                    }
                }
            }
            if let Some((form, _, is_short)) = of_immediate(code) {
                operations += 1;
                let values: &[i32] = if is_short {
                    &[0, 1, 7, 63]
                } else {
                    &[0, -1, 0x7654_3210]
                };
                for value in values {
                    for place in &places {
                        let instruction = Instruction::with2(code, *place, *value);
                        let ours = memory_immediate(code, place, *value);
                        count(compare(
                            &mut encoder,
                            ours,
                            instruction.expect("these operands"),
                        ));
                    }
                    for register in (0..16).map(|number| general(number, form.is_wide)) {
                        let instruction = Instruction::with2(code, register, *value);
                        let ours = register_immediate(code, register, *value);
                        let instruction = instruction.expect("these operands");
                        assert!(compare(&mut encoder, ours, instruction), "{code:?}");
                    }
                }
            }
        }
        assert_eq!(operations, 30);
        // Those with FS.
        assert!(written > left, "{written} are written, {left} are left");
    }

    #[test]
    fn what_does_not_fit_is_left() {
        let far = MemoryOperand::with_base_displ_size(Register::RAX, 1 << 40, 1);
        assert!(memory(Code::Mov_r64_rm64, Register::RAX, &far).is_none());
        let beside = MemoryOperand::with_base_displ(Register::RIP, 0x2000);
        assert!(memory(Code::Mov_r64_rm64, Register::RAX, &beside).is_none());
        assert!(register_immediate(Code::Add_rm64_imm8, Register::RAX, 300).is_none());
        assert!(registers(Code::Mov_r64_rm64, Register::AX, Register::CX).is_none());
    }
}
