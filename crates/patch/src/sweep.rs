//! A sweep over code for the few instructions that must be patched before they run.
//!
//! Nearly all bytes of a library belong to no such instruction, and a look at two or three of them tells. Where a look
//! does not tell, it depends on where instructions begin, which only the instructions before can say. But not all of these
//! are needed: an instruction has at most 15 bytes, so among any 15 neighbouring bytes one begins. Sequences that begin at
//! each of the 15 soon meet, and where only one is left, that is where instructions begin in truth, as if all had been
//! decoded from the beginning of the function.
//!
//! ```text
//! .. | a window of 15 bytes | sequences that begin there meet ... | only one is left | decoded | the candidate
//! ```
//!
//! So this finds exactly what [`Classifier::scan`] finds; a test compares the two on the code of real libraries.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use powerfail_protocol::request;

use crate::classify::{Classifier, MAX_INSTRUCTION_LEN, Site, may_be_silent};
use crate::quick::{self, Quick, QuickKind};

/// How far before a candidate the first window is. Further ones are at multiples.
const DISTANCE: usize = 64;
/// How much longer the next way is.
const LONGER: usize = 4;
/// How many places are looked at together.
const BLOCK_LEN: usize = 16;
/// Operands in registers need no lock: the byte that says what the operands are is below this if one is memory.
const REGISTERS: u8 = 0xc0;
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];

impl Classifier {
    /// Shows every instruction of a function that must be patched before it runs, as [`Self::scan`] does. `code`, which
    /// lies at `address`, is all of the function.
    pub fn scan_silent(&mut self, code: &[u8], address: u64, mut visit: impl FnMut(Site)) {
        // Here an instruction begins.
        let mut known = 0;
        for_candidates(code, |at| {
            // A candidate among the bytes of an instruction that was decoded was seen then.
            if at >= known {
                known = self.settle(code, address, known, at, &mut visit);
            }
        });
    }

    /// How many instructions must be patched before they run, or call the kernel, in what may be no code: only those before
    /// the first bytes that are no instruction count.
    pub fn count_concerning(&mut self, code: &[u8], address: u64) -> usize {
        let is_system_call = |pair: &[u8]| pair == SYSTEM_CALL;
        let mut last = code.windows(SYSTEM_CALL.len()).rposition(is_system_call);
        for_candidates(code, |at| last = last.max(Some(at)));
        let Some(last) = last else { return 0 };
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut count = 0;
        while decoder.position() <= last {
            let at = decoder.position();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                break;
            }
            let mut is_silent = || self.classify(&code[at..], address + at as u64).is_silent();
            let concerns_us = instruction.mnemonic() == Mnemonic::Syscall
                || may_be_silent(&instruction) && is_silent();
            count += usize::from(concerns_us);
        }
        count
    }

    /// Finds out whether an instruction begins where a candidate is, and shows it if it must be patched. Gives the
    /// beginning of an instruction: one behind the candidate, or an earlier one if that is known to be none.
    fn settle(
        &mut self,
        code: &[u8],
        address: u64,
        known: usize,
        candidate: usize,
        visit: &mut impl FnMut(Site),
    ) -> usize {
        let mut at = match beginning_before(code, known, candidate) {
            Beginning::At(at) => at,
            Beginning::NoneAtCandidate => return known,
        };
        while at <= candidate {
            at += match quick::decode(&code[at..]) {
                Some(Quick { len_bytes, kind }) if kind != QuickKind::MaySilent => len_bytes,
                _ => self.scan_one(&code[at..], address + at as u64, &mut |scanned| {
                    if let Some(site) = scanned.silent {
                        visit(site);
                    }
                }),
            };
        }
        at
    }
}

/// What is known of the instructions before a candidate.
enum Beginning {
    /// One begins here, before the candidate.
    At(usize),
    /// The candidate is in the middle of an instruction that need not be patched.
    NoneAtCandidate,
}

fn beginning_before(code: &[u8], known: usize, candidate: usize) -> Beginning {
    let mut distance = DISTANCE;
    while known + distance < candidate {
        if let Some(beginning) = meet(code, candidate - distance, candidate) {
            return beginning;
        }
        distance *= LONGER;
    }
    Beginning::At(known)
}

/// Follows the sequences of instructions that begin in the window from `from` on, until only one is left or they are
/// behind the candidate. `None`: they have not met, and the candidate may belong to an instruction of one of them.
fn meet(code: &[u8], from: usize, candidate: usize) -> Option<Beginning> {
    // The next instruction of each sequence, from `at`. The true sequence is among them.
    let mut pending: u32 = (1 << MAX_INSTRUCTION_LEN) - 1;
    let mut at = from;
    loop {
        let skipped = pending.trailing_zeros();
        pending >>= skipped;
        at += skipped as usize;
        if at > candidate {
            return Some(Beginning::NoneAtCandidate);
        }
        if pending == 1 {
            return Some(Beginning::At(at));
        }
        let (len_bytes, may_be_silent) = next(&code[at..]);
        if may_be_silent && at + len_bytes > candidate {
            return None;
        }
        pending = pending & !1 | 1 << len_bytes;
    }
}

/// The length of an instruction, as [`Classifier::scan`] has it, and whether it may be one that must be patched.
fn next(code: &[u8]) -> (usize, bool) {
    match quick::decode(code) {
        Some(Quick { len_bytes, kind }) if kind != QuickKind::MaySilent => (len_bytes, false),
        _ => {
            let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
            (instruction.len().max(1), true)
        }
    }
}

/// Shows the places in code at which an instruction that must be patched could have its opcode, or its lock: each such
/// instruction has one.
fn for_candidates(code: &[u8], mut show: impl FnMut(usize)) {
    let mut at = 0;
    let block = |at: usize| code.get(at..)?.first_chunk();
    while let (Some(first), Some(second)) = (block(at), block(at + 1)) {
        let mut found = candidates_in(first, second);
        while found != 0 {
            let place = at + found.trailing_zeros() as usize / 8;
            if is_candidate(code, place) {
                show(place);
            }
            found &= found - 1;
        }
        at += BLOCK_LEN;
    }
    for place in at..code.len() {
        if is_candidate(code, place) {
            show(place);
        }
    }
}

/// A byte that is not zero for each of the places at which two bytes look as those of a candidate do. Without a branch:
/// so the compiler looks at all places at once.
#[expect(
    clippy::needless_bitwise_bool,
    reason = "a branch would keep the compiler from it"
)]
fn candidates_in(first: &[u8; BLOCK_LEN], second: &[u8; BLOCK_LEN]) -> u128 {
    let mut found = [0; BLOCK_LEN];
    for ((found, first), second) in found.iter_mut().zip(first).zip(second) {
        let is_exchange = (first & 0xfe == 0x86) & (*second < REGISTERS);
        let is_flush_or_fence = (*first == 0x0f) & (*second == 0xae);
        let is_request = (*first == 0xc1) & (*second == 0xc7);
        *found = u8::from(is_exchange | is_flush_or_fence | is_request | (*first == 0xf0));
    }
    u128::from_le_bytes(found)
}

/// Whether the bytes at a place could be the opcode of an instruction that must be patched, or its lock.
fn is_candidate(code: &[u8], at: usize) -> bool {
    let byte = |behind: usize| code.get(at + behind).copied().unwrap_or(0);
    match byte(0) {
        0x86 | 0x87 => byte(1) < REGISTERS,
        // clwb, clflushopt, clflush, mfence and sfence.
        0x0f => byte(1) == 0xae && byte(2) & 0x38 >= 0x30,
        0xc1 => byte(1) == 0xc7 && at > 0 && code[at - 1..].starts_with(&request::SEQUENCE),
        0xf0 => is_lockable(&code[at + 1..]),
        _ => false,
    }
}

/// Whether what is behind a lock can be locked.
fn is_lockable(code: &[u8]) -> bool {
    let is_prefix = |byte: &&u8| matches!(**byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(is_prefix).count();
    let opcode = |behind: usize| code.get(prefixes + behind).copied().unwrap_or(REGISTERS);
    let (takes_memory, operands) = match opcode(0) {
        0x0f => {
            let is_one = matches!(
                opcode(1),
                0xab | 0xb0 | 0xb1 | 0xb3 | 0xba | 0xbb | 0xc0 | 0xc1 | 0xc7
            );
            (is_one, opcode(2))
        }
        first => {
            let is_one = matches!(first, 0x80..=0x83 | 0x86 | 0x87 | 0xf6 | 0xf7 | 0xfe | 0xff)
                || first < 0x40 && first & 7 < 2;
            (is_one, opcode(1))
        }
    };
    takes_memory && operands < REGISTERS
}

#[cfg(test)]
mod tests {

    use crate::mapped_code::mapped_code;

    use super::Classifier;

    const ADDRESS: u64 = 0x5000_0000;

    /// What both find in some bytes.
    fn compare(classifier: &mut Classifier, code: &[u8]) -> usize {
        let mut all = Vec::new();
        classifier.scan(code, ADDRESS, |scanned| {
            all.extend(scanned.silent.map(|site| (site.address(), site.bytes)));
        });
        let mut found = Vec::new();
        classifier.scan_silent(code, ADDRESS, |site| {
            found.push((site.address(), site.bytes));
        });
        assert_eq!(found, all);
        all.len()
    }

    #[test]
    fn all_is_found_in_real_code() {
        let mut classifier = Classifier::new();
        let found: usize = mapped_code()
            .iter()
            .map(|code| {
                // In pieces that begin in the middle of instructions, too.
                let pieces = code.chunks(1021).chain(code.chunks(40_013));
                pieces
                    .map(|piece| compare(&mut classifier, piece))
                    .sum::<usize>()
                    + compare(&mut classifier, code)
            })
            .sum();
        assert!(found > 2000, "{found}");
    }

    #[test]
    fn all_is_found_among_random_bytes() {
        // Those that sites are made of, more often than others.
        const OFTEN: [u8; 16] = [
            0x0f, 0xae, 0xf0, 0x66, 0x87, 0x07, 0xf8, 0x48, 0xc1, 0xc7, 0xb1, 0x3e, 0x86, 0x30,
            0x8b, 0xf3,
        ];
        let mut classifier = Classifier::new();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u32
        };
        let mut found = 0;
        for round in 0..400 {
            let code: Vec<u8> = (0..2000)
                .map(|_| {
                    let number = next();
                    if number % 8 < round % 8 {
                        OFTEN[(number >> 8) as usize % OFTEN.len()]
                    } else {
                        (number >> 8) as u8
                    }
                })
                .collect();
            found += compare(&mut classifier, &code);
        }
        assert!(found > 10_000, "{found}");
    }

    #[test]
    fn what_may_be_no_code_is_counted_to_its_end() {
        let mut classifier = Classifier::new();
        let mut count = |code: &[u8]| {
            let (mut expected, mut is_code) = (0, true);
            classifier.scan_strictly(code, ADDRESS, |scanned| {
                is_code &= scanned.is_valid;
                let concerns_us = scanned.is_system_call || scanned.silent.is_some();
                expected += usize::from(is_code && concerns_us);
            });
            assert_eq!(classifier.count_concerning(code, ADDRESS), expected);
            expected
        };
        for code in mapped_code() {
            for piece in code.chunks(4099).step_by(7) {
                count(piece);
            }
        }
        // syscall; lock dec dword [rdi]; sfence; no instruction; sfence.
        let code = [
            0x0f, 0x05, 0xf0, 0xff, 0x0f, 0x0f, 0xae, 0xf8, 0x06, 0x0f, 0xae, 0xf8,
        ];
        assert_eq!(count(&code), 3);
        assert_eq!(count(&code[2..5]), 1);
        assert_eq!(count(&[]), 0);
    }

    #[test]
    fn requests_are_found() {
        let mut code = vec![0x90; 300];
        code[100..119].copy_from_slice(&powerfail_protocol::request::SEQUENCE);
        // The same bytes within a constant.
        code[200..202].copy_from_slice(&[0x48, 0xb8]);
        code[202..210].copy_from_slice(&powerfail_protocol::request::SEQUENCE[..8]);
        assert_eq!(compare(&mut Classifier::new(), &code), 1);
    }
}
