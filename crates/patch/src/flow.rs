//! Whether the flags matter after an instruction.
//!
//! Saving and restoring them is a noticeable part of a trampoline, and most stores are followed by
//! an instruction that overwrites them all.

use iced_x86::{Decoder, DecoderOptions, FlowControl, RflagsBits};

const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::PF
    | RflagsBits::CF;
const MAX_LOOK_AHEAD: usize = 12;

/// Whether all status flags are overwritten before any is read, by the instructions at the
/// beginning of `code` (what follows the site, as the target had it). Gives up, and says that they
/// matter, at the first branch, call, return or unknown instruction.
pub fn flags_are_dead(code: &[u8], address: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut live = STATUS;
    for _ in 0..MAX_LOOK_AHEAD {
        if !decoder.can_decode() {
            return false;
        }
        let instruction = decoder.decode();
        if instruction.is_invalid()
            || instruction.flow_control() != FlowControl::Next
            || instruction.rflags_read() & live != 0
        {
            return false;
        }
        live &= !(instruction.rflags_written()
            | instruction.rflags_cleared()
            | instruction.rflags_set());
        // A flag that the manual leaves undefined may be left alone by the processor. That of the
        // logical operations is not: processors clear it.
        if is_logical(&instruction) {
            live &= !RflagsBits::AF;
        }
        // A shift by a count of zero writes no flags at all.
        if has_variable_count(&instruction) {
            live = STATUS;
        }
        if live == 0 {
            return true;
        }
    }
    false
}

fn is_logical(instruction: &iced_x86::Instruction) -> bool {
    use iced_x86::Mnemonic as M;
    matches!(instruction.mnemonic(), M::And | M::Or | M::Xor | M::Test)
}

fn has_variable_count(instruction: &iced_x86::Instruction) -> bool {
    use iced_x86::Mnemonic as M;
    let shifts = matches!(
        instruction.mnemonic(),
        M::Rol | M::Ror | M::Rcl | M::Rcr | M::Shl | M::Sal | M::Shr | M::Sar | M::Shld | M::Shrd
    );
    // The repeated comparisons write none either if their count is zero.
    shifts || instruction.has_rep_prefix() || instruction.has_repne_prefix()
}

#[cfg(test)]
mod tests {
    use super::flags_are_dead;

    #[test]
    fn overwritten_before_read() {
        assert!(flags_are_dead(&[0x48, 0x01, 0xd8], 0)); // add rax, rbx
        assert!(flags_are_dead(&[0x48, 0x89, 0xd8, 0x48, 0x39, 0xd8], 0)); // mov; cmp
        assert!(flags_are_dead(&[0x85, 0xc0, 0x74, 0x00], 0)); // test; je
    }

    #[test]
    fn live_or_unknown() {
        assert!(!flags_are_dead(&[], 0));
        assert!(!flags_are_dead(&[0x74, 0x00], 0)); // je
        assert!(!flags_are_dead(&[0xc3], 0)); // ret
        assert!(!flags_are_dead(&[0x48, 0x11, 0xd8], 0)); // adc reads CF
        assert!(!flags_are_dead(&[0x48, 0xff, 0xc0, 0x74, 0x00], 0)); // inc leaves CF; je
        assert!(!flags_are_dead(&[0x48, 0xd3, 0xe0, 0xc3], 0)); // shl rax, cl; ret
        assert!(!flags_are_dead(&[0x0f, 0xbc, 0xc3, 0xc3], 0)); // bsf leaves most undefined; ret
    }
}
