//! Random workloads and recoveries. They use few addresses and few values, so that lines are shared, loads cross
//! lines, and contents repeat.

use powerfail_explore::Random;
use powerfail_model::{Atomicity, Domain, FlushKind, Rules, StoreKind};

use crate::machine::{Effect, Instruction, Program};
use crate::workload::Workload;

pub(crate) const DOMAINS: [Domain; 3] = [Domain::Adr, Domain::Eadr, Domain::PageCache];

pub(crate) fn all_rules() -> impl Iterator<Item = Rules> {
    DOMAINS.into_iter().flat_map(|domain| {
        [Atomicity::Store, Atomicity::Word]
            .into_iter()
            .map(move |atomicity| Rules { domain, atomicity })
    })
}

pub(crate) struct Generator {
    random: Random,
    line_bytes: u64,
    lines: u64,
}

impl Generator {
    pub(crate) fn new(rules: Rules, lines: u64, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            line_bytes: rules.domain.line_bytes() as u64,
            lines,
        }
    }

    pub(crate) fn pool_len(&self) -> usize {
        (self.lines * self.line_bytes) as usize
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.below(of.len() as u64) as usize]
    }

    /// An address for this many bytes: near the start or the end of a line, sometimes across it.
    fn place(&mut self, len: u64) -> u64 {
        let line = self.below(self.lines) * self.line_bytes;
        let at = match self.below(4) {
            0 => line + self.line_bytes - 1 - self.below(8),
            1 => line + 8 * self.below(2),
            _ => line + self.below(20),
        };
        at.min(self.pool_len() as u64 - len)
    }

    fn bytes(&mut self, longest: u64) -> Vec<u8> {
        let len = match self.below(4) {
            0 => 1 + self.below(longest),
            1 => 8,
            _ => 1 + self.below(4),
        };
        (0..len).map(|_| self.below(3) as u8).collect()
    }

    fn store_kind(&mut self) -> StoreKind {
        self.pick(&[
            StoreKind::Plain,
            StoreKind::Plain,
            StoreKind::Plain,
            StoreKind::NonTemporal,
            StoreKind::NonTemporal,
            StoreKind::Locked,
            StoreKind::System,
        ])
    }

    fn flush_kind(&mut self) -> FlushKind {
        self.pick(&[FlushKind::Clflush, FlushKind::Clwb, FlushKind::Clflushopt])
    }

    pub(crate) fn workload(&mut self, len: u64) -> Workload {
        let effects = (0..len).map(|_| {
            let thread = u32::from(self.below(5) == 0);
            let effect = match self.below(10) {
                0..=5 => {
                    let bytes = self.bytes(20);
                    let at = self.place(bytes.len() as u64);
                    Effect::Store(self.store_kind(), at, bytes)
                }
                6 | 7 => {
                    let at = self.place(1);
                    Effect::Flush(self.flush_kind(), at)
                }
                8 => Effect::Fence,
                _ => Effect::Sync(self.place(1), 1 + self.below(self.line_bytes)),
            };
            (thread, effect)
        });
        effects.collect()
    }

    /// A recovery with loads and branches, and with stores if it is `writing`.
    pub(crate) fn recovery(&mut self, len: usize, writing: bool) -> Program {
        let mut program = Vec::with_capacity(len);
        for at in 0..len {
            let instruction = match self.below(if writing { 16 } else { 9 }) {
                0..=4 => {
                    let len = match self.below(5) {
                        0 => 1 + self.below(64),
                        _ => self.pick(&[1, 2, 4, 8, 16]),
                    };
                    Instruction::Load {
                        at: self.place(len),
                        len: len as usize,
                    }
                }
                5 => Instruction::LoadAt {
                    base: self.below(8),
                    scale: self.pick(&[1, 4, self.line_bytes / 2]),
                    entries: 3,
                    len: self.pick(&[1, 2, 8]),
                },
                6 | 7 => Instruction::JumpIf {
                    byte: self.below(8) as usize,
                    value: self.below(3) as u8,
                    to: at + 1 + self.below((len - at) as u64) as usize,
                },
                8 => Instruction::Stop(self.below(3) as u8),
                9..=11 => {
                    let bytes = self.bytes(12);
                    Instruction::Store {
                        kind: self.store_kind(),
                        at: self.place(bytes.len() as u64),
                        bytes,
                    }
                }
                12 => Instruction::StoreRegister { at: self.place(64) },
                13 => Instruction::Flush {
                    kind: self.flush_kind(),
                    at: self.place(1),
                },
                14 => Instruction::Fence,
                _ => Instruction::Sync {
                    at: self.place(1),
                    len: 1 + self.below(self.line_bytes),
                },
            };
            program.push(instruction);
        }
        program
    }
}
