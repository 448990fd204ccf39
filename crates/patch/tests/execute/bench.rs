//! A machine, a classifier and an emitter, configured for each other.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use powerfail_patch::{Classifier, Emitter, EmitterSettings, MAX_TRAMPOLINE_LEN, Trampoline};

use crate::cases::Case;
use crate::expect::SITE;
use crate::machine::{Layout, Machine, SNIPPET_AT, TRAMPOLINE_AT};

/// A machine with an emitter for it.
pub(crate) struct Bench {
    pub(crate) machine: Machine,
    pub(crate) layout: Layout,
    pub(crate) classifier: Classifier,
    pub(crate) emitter: Emitter,
}

/// A trampoline in the memory of the machine.
pub(crate) struct Written {
    pub(crate) at: u64,
    pub(crate) code: Vec<u8>,
    pub(crate) emitted: Trampoline,
}

impl Bench {
    pub(crate) fn new(layout: Layout, change: impl FnOnce(&mut EmitterSettings)) -> Self {
        let mut settings = EmitterSettings::new(layout.window());
        change(&mut settings);
        let mut machine = Machine::new(layout);
        let mut emitter = Emitter::new(settings);
        let mut stub = [0; 512];
        let len = emitter
            .emit_refill_stub(Machine::stub_address(), Machine::xsave_len(), &mut stub)
            .unwrap();
        machine.write_code(Machine::stub_address(), &stub[..len]);
        Self {
            machine,
            layout,
            classifier: Classifier::new(),
            emitter,
        }
    }

    /// Writes the instruction and the jump to the end.
    pub(crate) fn write_snippet(&mut self, code: &[u8]) -> u64 {
        let at = Machine::code_address(SNIPPET_AT);
        self.machine.write_code(at, code);
        let end = at + code.len() as u64;
        self.write_jump(end, Machine::exit_address());
        at
    }

    /// Writes the instruction of a case, and its trampoline.
    pub(crate) fn write_trampoline(&mut self, case: &Case) -> Written {
        let at = Machine::code_address(TRAMPOLINE_AT);
        let mut code = vec![0; MAX_TRAMPOLINE_LEN];
        let emitted = self
            .emitter
            .emit(&case.site, SITE, at, false, &mut code)
            .unwrap();
        code.truncate(emitted.len_bytes);
        self.write_snippet(&case.code);
        self.machine.write_code(at, &code);
        Written { at, code, emitted }
    }

    pub(crate) fn write_jump(&mut self, at: u64, target: u64) {
        let displacement = (target.wrapping_sub(at + 5)) as u32;
        self.machine.write_code(at, &[0xe9]);
        self.machine.write_code(at + 1, &displacement.to_le_bytes());
    }
}

/// The instructions of a trampoline.
pub(crate) fn decode(code: &[u8], at: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, code, at, DecoderOptions::NONE)
        .into_iter()
        .collect()
}

/// Whether a jump that replaces an instruction would cover another one that is a jump target.
pub(crate) fn is_jumped_over(instruction: &Instruction, all: &[Instruction]) -> bool {
    let covered = instruction.ip() + 1..instruction.ip() + 5;
    all.iter()
        .any(|other| covered.contains(&other.near_branch_target()))
}
