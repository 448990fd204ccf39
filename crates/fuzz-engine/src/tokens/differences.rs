//! Words that code compares without a branch for each part: it joins the differences of the parts with `or`, and looks
//! once whether anything is left. Compilers do that with short words whose length is known, `match` of Rust most of all.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::compared::{Place, is_immediate, text_of};

/// What a register holds.
#[derive(Clone, Copy)]
enum Value {
    /// This many bytes from there.
    Loaded(Place, usize),
    Constant(u64),
}

/// A part of the operand, and what it is compared with.
#[derive(Clone)]
struct Part {
    place: Place,
    bytes: Vec<u8>,
}

/// Follows straight code.
#[derive(Default)]
pub(super) struct Differences {
    registers: Vec<(Register, Value)>,
    parts: Vec<Part>,
    are_joined: bool,
}

impl Differences {
    /// Steps over an instruction. Returns the word that was compared if this one decides about it.
    pub(super) fn step(&mut self, instruction: &Instruction) -> Option<Vec<u8>> {
        if decides(instruction) || instruction.flow_control() != FlowControl::Next {
            let word = (decides(instruction) && self.are_joined).then(|| self.word());
            *self = Self::default();
            return word.flatten();
        }
        match instruction.mnemonic() {
            Mnemonic::Xor => self.parts.extend(self.difference(instruction)),
            Mnemonic::Or => self.are_joined |= self.parts.len() > 1,
            _ => {}
        }
        if instruction.op0_kind() == OpKind::Register
            && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
        {
            let register = instruction.op0_register().full_register();
            self.registers.retain(|(known, _)| *known != register);
            let value = moved(instruction);
            self.registers.extend(value.map(|value| (register, value)));
        }
        None
    }

    fn value(&self, register: Register) -> Option<Value> {
        let register = register.full_register();
        let mut known = self.registers.iter();
        known
            .find(|(it, _)| *it == register)
            .map(|(_, value)| *value)
    }

    /// The part that an exclusive or compares.
    fn difference(&self, instruction: &Instruction) -> Option<Part> {
        let mut operands = [0, 1].map(|operand| match instruction.op_kind(operand) {
            OpKind::Register => self.value(instruction.op_register(operand)),
            OpKind::Memory => {
                let len = instruction.memory_size().size();
                Place::of(instruction).map(|place| Value::Loaded(place, len))
            }
            kind if is_immediate(kind) => Some(Value::Constant(instruction.immediate(operand))),
            _ => None,
        });
        operands.sort_by_key(|operand| matches!(operand, Some(Value::Constant(_))));
        let [
            Some(Value::Loaded(place, len)),
            Some(Value::Constant(constant)),
        ] = operands
        else {
            return None;
        };
        let bytes = constant.to_le_bytes().get(..len)?.to_vec();
        Some(Part { place, bytes })
    }

    /// The parts in their order, if there is nothing between them. They may overlap.
    fn word(&self) -> Option<Vec<u8>> {
        let mut parts = self.parts.clone();
        parts.sort_by_key(|part| part.place.offset.cast_signed());
        let first = parts.first()?.place;
        let mut word = Vec::new();
        for Part { place, bytes } in parts {
            let at = usize::try_from(place.offset.wrapping_sub(first.offset)).ok()?;
            if place.base != first.base || at > word.len() {
                return None;
            }
            let known = (word.len() - at).min(bytes.len());
            if word[at..at + known] != bytes[..known] {
                return None;
            }
            word.extend_from_slice(&bytes[known..]);
        }
        text_of(&word)
    }
}

/// Whether an instruction depends on whether there is a difference.
fn decides(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Je | Mnemonic::Jne | Mnemonic::Sete | Mnemonic::Setne
    )
}

fn moved(instruction: &Instruction) -> Option<Value> {
    if !matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Movzx) {
        return None;
    }
    match instruction.op1_kind() {
        OpKind::Memory => {
            let len = instruction.memory_size().size();
            Place::of(instruction).map(|place| Value::Loaded(place, len))
        }
        kind if is_immediate(kind) || kind == OpKind::Immediate64 => {
            Some(Value::Constant(instruction.immediate(1)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::compared::compared;

    fn words(code: &[u8]) -> Vec<String> {
        let words = compared(code, 0x1000).into_iter();
        words.map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn parts_whose_differences_are_joined_are_a_word() {
        // movzx eax, word [r13]; xor eax, "se"; movzx ecx, byte [r13+2]; xor ecx, 't'; or cx, ax; jne +9
        let code = b"\x41\x0f\xb7\x45\0\x35se\0\0\x41\x0f\xb6\x4d\x02\x83\xf1t\x66\x09\xc1\x75\x09";
        assert!(words(code).contains(&"set".into()), "{:?}", words(code));
        // mov eax, "remo"; xor eax, [rdi]; mov ecx, "move"; xor ecx, [rdi+2]; or ecx, eax; sete al
        let code = b"\xb8remo\x33\x07\xb9move\x33\x4f\x02\x09\xc1\x0f\x94\xc0";
        assert!(words(code).contains(&"remove".into()), "{:?}", words(code));
    }

    #[test]
    fn parts_with_a_gap_are_no_word() {
        // movzx eax, word [r13]; xor eax, "se"; movzx ecx, byte [r13+3]; xor ecx, 't'; or cx, ax; jne +9
        let code = b"\x41\x0f\xb7\x45\0\x35se\0\0\x41\x0f\xb6\x4d\x03\x83\xf1t\x66\x09\xc1\x75\x09";
        assert_eq!(words(code), ["se", "t"]);
    }
}
