//! Asks a filter of system calls what it would do: runs programs of classic BPF as seccomp does.

/// An instruction of a filter: `struct sock_filter`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// How many words a filter sees: number, architecture, address of the instruction, six arguments.
const WORDS: usize = 16;
/// How many words a filter can store.
const SCRATCH: usize = 16;

/// Whether a filter lets a system call through. The arguments of the call count as zero. A program that the kernel would
/// refuse lets none through.
pub(crate) fn allows(program: &[Instruction], number: usize) -> bool {
    const ALLOW: u32 = 0x7fff_0000;
    const LOG: u32 = 0x7ffc_0000;
    const ACTION: u32 = 0xffff_0000;
    let result = run(program, number as u32);
    result.is_some_and(|result| [ALLOW, LOG].contains(&(result & ACTION)))
}

/// The registers of a filter.
#[derive(Default)]
struct Machine {
    accumulator: u32,
    index: u32,
    scratch: [u32; SCRATCH],
}

fn run(program: &[Instruction], number: u32) -> Option<u32> {
    const X86_64: u32 = 0xc000_003e;
    let mut words = [0; WORDS];
    (words[0], words[1]) = (number, X86_64);
    let mut machine = Machine::default();
    let mut next = 0;
    // Jumps only lead forward.
    while let Some(instruction) = program.get(next) {
        next += 1;
        let Instruction { code, value, .. } = *instruction;
        match code & 7 {
            0 => machine.accumulator = machine.load(code, value, &words)?,
            1 => machine.index = machine.load(code, value, &words)?,
            2 => *machine.scratch.get_mut(value as usize)? = machine.accumulator,
            3 => *machine.scratch.get_mut(value as usize)? = machine.index,
            4 => machine.accumulator = machine.calculate(code, value)?,
            5 => next += machine.jump(*instruction)?,
            6 if code & 0x18 == 0x10 => return Some(machine.accumulator),
            6 => return Some(value),
            _ if code & 0x80 != 0 => machine.accumulator = machine.index,
            _ => machine.index = machine.accumulator,
        }
    }
    None
}

impl Machine {
    fn load(&self, code: u16, value: u32, words: &[u32; WORDS]) -> Option<u32> {
        match code & 0xe0 {
            0x00 => Some(value),
            0x20 => words.get(value as usize / 4).copied(),
            0x60 => self.scratch.get(value as usize).copied(),
            0x80 => Some(4 * WORDS as u32),
            _ => None,
        }
    }

    fn operand(&self, code: u16, value: u32) -> u32 {
        if code & 8 == 0 { value } else { self.index }
    }

    fn calculate(&self, code: u16, value: u32) -> Option<u32> {
        let (left, right) = (self.accumulator, self.operand(code, value));
        Some(match code & 0xf0 {
            0x00 => left.wrapping_add(right),
            0x10 => left.wrapping_sub(right),
            0x20 => left.wrapping_mul(right),
            0x30 => left.checked_div(right)?,
            0x40 => left | right,
            0x50 => left & right,
            0x60 => left.checked_shl(right)?,
            0x70 => left.checked_shr(right)?,
            0x80 => left.wrapping_neg(),
            0xa0 => left ^ right,
            _ => return None,
        })
    }

    /// How many instructions are left out.
    fn jump(&self, instruction: Instruction) -> Option<usize> {
        let Instruction { code, value, .. } = instruction;
        let (left, right) = (self.accumulator, self.operand(code, value));
        let is_true = match code & 0xf0 {
            0x00 => return Some(value as usize),
            0x10 => left == right,
            0x20 => left > right,
            0x30 => left >= right,
            0x40 => left & right != 0,
            _ => return None,
        };
        Some(usize::from(if is_true {
            instruction.if_true
        } else {
            instruction.if_false
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: u16 = 0x20;
    const IS_EQUAL: u16 = 0x15;
    const IS_GREATER: u16 = 0x25;
    const HAS_BITS: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0001;

    fn of(words: &[(u16, u8, u8, u32)]) -> Vec<Instruction> {
        let of = |&(code, if_true, if_false, value): &(u16, u8, u8, u32)| Instruction {
            code,
            if_true,
            if_false,
            value,
        };
        words.iter().map(of).collect()
    }

    #[test]
    fn a_list_of_calls_that_are_allowed() {
        let few = of(&[
            (LOAD, 0, 0, 4),
            (IS_EQUAL, 1, 0, 0xc000_003e),
            (RETURN, 0, 0, 0),
            (LOAD, 0, 0, 0),
            (IS_EQUAL, 2, 0, 9),
            (IS_EQUAL, 1, 0, 231),
            (RETURN, 0, 0, ERRNO),
            (RETURN, 0, 0, ALLOW),
        ]);
        let allowed: Vec<usize> = (0..400).filter(|it| allows(&few, *it)).collect();
        assert_eq!(allowed, [9, 231]);
    }

    #[test]
    fn a_list_of_calls_that_are_not() {
        // Calls above 300, and those with bit 3, after some arithmetic that changes nothing.
        let most = of(&[
            (LOAD, 0, 0, 0),
            (0x02, 0, 0, 5), // to the scratch
            (0x07, 0, 0, 0), // to the index
            (0x0c, 0, 0, 0), // add the index
            (0x74, 0, 0, 1), // shift right
            (0x60, 0, 0, 5), // from the scratch
            (IS_GREATER, 2, 0, 300),
            (HAS_BITS, 1, 0, 8),
            (RETURN, 0, 0, ALLOW),
            (RETURN, 0, 0, 0),
        ]);
        for number in 0..400 {
            let is_allowed = number <= 300 && number & 8 == 0;
            assert_eq!(allows(&most, number), is_allowed, "{number}");
        }
    }

    #[test]
    fn what_the_kernel_would_refuse_allows_nothing() {
        assert!(!allows(&[], 1));
        assert!(!allows(&of(&[(LOAD, 0, 0, 400), (RETURN, 0, 0, ALLOW)]), 1));
        assert!(!allows(
            &of(&[(IS_EQUAL, 9, 9, 0), (RETURN, 0, 0, ALLOW)]),
            1
        ));
        assert!(!allows(&of(&[(0x34, 0, 0, 0), (RETURN, 0, 0, ALLOW)]), 1));
    }
}
