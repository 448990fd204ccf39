//! Stores that have no trampoline, made to write to a buffer instead.
//!
//! At the fault of such an instruction the runtime puts the address of a buffer into one register,
//! lets the processor run the instruction on it with all other state as it is, and learns from the
//! buffer what would have been written. One that changes nothing but memory is run over zeros and
//! over ones: a bit that comes out the same was written. (`xsave` merges bits into its header, so
//! bits decide, not bytes.)

use iced_x86::{Encoder, Instruction, Mnemonic, OpKind, Register};
use powerfail_protocol::EventKind;

use crate::MAX_INSTRUCTION_LEN;
use crate::classify::{Action, Means, Site, StoreForm};

/// How an instruction with [`Means::Trap`] is run on a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Redirected {
    original: Instruction,
    moved: Option<Instruction>,
    pointer: Register,
    /// `StorePlain` or `StoreNonTemporal`.
    pub kind: EventKind,
    /// The most that it writes; zero if that depends on the processor (`xsave`).
    pub len_bytes: usize,
    /// Whether it can be run twice, and must be, because it does not write every byte.
    pub is_masked: bool,
}

impl Redirected {
    /// How a site is run on a buffer; `None` if its means are others.
    pub fn new(site: &Site) -> Option<Self> {
        let Action::Store(store) = site.action else {
            return None;
        };
        if site.means != Means::Trap {
            return None;
        }
        let original = site.instruction;
        let mut moved = original;
        let mnemonic = original.mnemonic();
        let (pointer, is_masked) = match store.form {
            StoreForm::Stack => (Register::RSI, false),
            StoreForm::State => (Register::RSI, !is_whole(mnemonic)),
            _ if mnemonic == Mnemonic::Movdir64b => (free_register(&original), false),
            _ if mnemonic == Mnemonic::Clzero => (Register::RAX, false),
            _ => (Register::RDI, true),
        };
        if original.op0_kind() == OpKind::Memory {
            moved.set_memory_base(pointer);
            moved.set_memory_index(Register::None);
            moved.set_memory_index_scale(1);
            moved.set_memory_displacement64(0);
            moved.set_memory_displ_size(0);
        } else if mnemonic == Mnemonic::Movdir64b {
            moved.set_op0_register(pointer);
        }
        if mnemonic != Mnemonic::Movdir64b {
            moved.set_segment_prefix(Register::None);
        }
        Some(Self {
            original,
            moved: (mnemonic != Mnemonic::Clzero).then_some(moved),
            pointer,
            kind: store.kind,
            len_bytes: store.len_bytes.into(),
            is_masked,
        })
    }

    /// The number of the register that has to hold the address of the buffer.
    pub fn pointer(&self) -> u8 {
        self.pointer.number() as u8
    }

    /// The instruction behind.
    pub fn next_address(&self) -> u64 {
        self.original.next_ip()
    }

    /// The code that writes to the buffer, to run at the address `at`. `None` if there is nothing
    /// to run because it writes zeros, or if what it refers to is out of reach from there.
    pub fn code(&self, at: u64) -> Option<([u8; MAX_INSTRUCTION_LEN], usize)> {
        let mut encoder = Encoder::try_new(64).ok()?;
        let len = encoder.encode(self.moved.as_ref()?, at).ok()?;
        let mut code = [0; MAX_INSTRUCTION_LEN];
        code.get_mut(..len)?
            .copy_from_slice(encoder.take_buffer().get(..len)?);
        Some((code, len))
    }

    /// Whether it writes nothing but zeros.
    pub fn writes_zeros(&self) -> bool {
        self.moved.is_none()
    }

    /// Where the instruction writes, given the general-purpose registers by their numbers and the
    /// base of FS.
    pub fn address(&self, register: impl Fn(u8) -> u64, fs_base: u64) -> u64 {
        const LINE: u64 = 64;
        match self.original.mnemonic() {
            Mnemonic::Clzero => return register(0) / LINE * LINE,
            Mnemonic::Movdir64b => return register(self.original.op0_register().number() as u8),
            _ => {}
        }
        let value = |used: Register, _, _| match used {
            Register::FS => Some(fs_base),
            used if used.is_segment_register() => Some(0),
            used => {
                let value = register(used.full_register().number() as u8);
                Some(if used.size() == 4 {
                    value & u64::from(u32::MAX)
                } else {
                    value
                })
            }
        };
        let address = self.original.virtual_address(0, 0, value).unwrap_or(0);
        // A pop computes its address with the stack pointer of after it has read.
        let by_stack = self.original.mnemonic() == Mnemonic::Pop
            && self.original.memory_base() == Register::RSP;
        let increment = if by_stack {
            self.original.stack_pointer_increment()
        } else {
            0
        };
        address.wrapping_add_signed(increment.into())
    }
}

/// Whether an instruction that saves state writes every byte, and cannot be run twice.
fn is_whole(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Fnsave | Mnemonic::Fsave | Mnemonic::Fnstenv | Mnemonic::Fstenv
    )
}

/// A register that the source of `movdir64b` does not use.
fn free_register(instruction: &Instruction) -> Register {
    let used = [instruction.memory_base(), instruction.memory_index()].map(Register::full_register);
    [Register::RSI, Register::RDI, Register::RBX]
        .into_iter()
        .find(|register| !used.contains(register))
        .unwrap_or(Register::RSI)
}

#[cfg(test)]
mod tests {
    use super::Redirected;
    use crate::Classifier;

    fn redirected(code: &[u8]) -> Redirected {
        let site = Classifier::new().classify(code, 0x1000);
        Redirected::new(&site).expect("a store without a trampoline")
    }

    fn moved(code: &[u8]) -> (Vec<u8>, u8) {
        let redirected = redirected(code);
        let (bytes, len) = redirected.code(0x1000).expect("something to run");
        (bytes[..len].to_vec(), redirected.pointer())
    }

    /// Each register holds its number times 0x100.
    fn address(code: &[u8]) -> u64 {
        redirected(code).address(|number| u64::from(number) * 0x100, 0x9_0000)
    }

    #[test]
    fn memory_operands_are_replaced() {
        // pop [rbx + 8 * rcx + 4]; xsave [rsp + 64]; fnstenv fs:[rax]; pop word [rax].
        assert_eq!(moved(&[0x8f, 0x44, 0xcb, 4]), (vec![0x8f, 0x06], 6));
        let xsave = [0x0f, 0xae, 0x64, 0x24, 0x40];
        assert_eq!(moved(&xsave), (vec![0x0f, 0xae, 0x26], 6));
        assert_eq!(moved(&[0x64, 0xd9, 0x30]), (vec![0xd9, 0x36], 6));
        assert_eq!(moved(&[0x66, 0x8f, 0x00]), (vec![0x66, 0x8f, 0x06], 6));
    }

    #[test]
    fn address_registers_are_replaced() {
        // maskmovdqu xmm1, xmm2 with an FS prefix; movdir64b rax, [rsi + 8].
        let masked = [0x64, 0x66, 0x0f, 0xf7, 0xca];
        assert_eq!(moved(&masked), (vec![0x66, 0x0f, 0xf7, 0xca], 7));
        let direct = [0x66, 0x0f, 0x38, 0xf8, 0x46, 8];
        assert_eq!(
            moved(&direct),
            (vec![0x66, 0x0f, 0x38, 0xf8, 0x7e, 8], 7),
            "the source keeps its register"
        );
    }

    #[test]
    fn addresses() {
        assert_eq!(address(&[0x8f, 0x44, 0xcb, 4]), 0x300 + 8 * 0x100 + 4);
        assert_eq!(
            address(&[0x8f, 0x44, 0x24, 4]),
            0x400 + 4 + 8,
            "pop [rsp + 4]"
        );
        assert_eq!(address(&[0x66, 0x8f, 0x04, 0x24]), 0x402, "pop word [rsp]");
        assert_eq!(address(&[0x64, 0x66, 0x0f, 0xf7, 0xca]), 0x9_0700);
        assert_eq!(address(&[0x66, 0x0f, 0x38, 0xf8, 0x46, 8]), 0);
        assert_eq!(address(&[0x0f, 0x01, 0xfc]), 0, "clzero");
        assert!(redirected(&[0x0f, 0x01, 0xfc]).writes_zeros());
    }

    #[test]
    fn what_can_be_run_twice() {
        for (code, is_masked) in [
            (&[0x8f, 0x00][..], false),
            (&[0xdd, 0x30], false),
            (&[0xd9, 0x30], false),
            (&[0x0f, 0xae, 0x00], true),
            (&[0x0f, 0xae, 0x20], true),
            (&[0x0f, 0xc7, 0x20], true),
            (&[0x0f, 0xf7, 0xca], true),
        ] {
            assert_eq!(redirected(code).is_masked, is_masked, "{code:02x?}");
        }
    }
}
