//! A whole run of a target, step by step.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iced_x86::InstructionInfoFactory;
use libc::user_regs_struct;
use powerfail_model::{FenceKind, FlushKind, StoreKind};

use super::effect::{Effect, EffectKind, Range};
use super::event::{Seen, Site, What, join_strings};
use super::mappings::Mappings;
use super::process::{Process, Stop};

/// The longest instruction of the architecture.
const INSTRUCTION_LEN_MAX: usize = 15;
/// Far more than any target here takes; stops a target that hangs.
const STEPS_MAX: u64 = 30_000_000;
const ZERO_FLAG: u64 = 1 << 6;

/// Which part of a run is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// From the first mapping of a pool on.
    Whole,
    /// Between the writes of [`BEGIN`] and [`END`] by the target to any descriptor, for programs whose remaining part
    /// would take too many steps. No flush may be pending at the first.
    Marked,
}

pub(super) const BEGIN: &[u8] = b"begin";
pub(super) const END: &[u8] = b"end";

/// The effects of a run on its pools.
pub(crate) struct Observed {
    pub(crate) part: Part,
    pub(crate) events: Vec<Seen>,
    /// Instructions whose stores were joined.
    pub(super) strings: HashSet<Site>,
}

/// Runs a target. Every file in the folder that it maps shared and writable is a pool. It must exit
/// with zero, and have one thread.
pub(crate) fn observe(program: &Path, arguments: &[String], folder: &Path, part: Part) -> Observed {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PMEM_IS_PMEM_FORCE", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut run = Run {
        process: Process::start(command),
        folder,
        part,
        mappings: Mappings::default(),
        pools: Vec::new(),
        effects: HashMap::new(),
        info: InstructionInfoFactory::new(),
        is_pending: false,
        events: Vec::new(),
        strings: HashSet::new(),
        steps: 0,
    };
    if run.run_to_begin() {
        run.step_to_end();
    }
    Observed {
        part,
        events: join_strings(run.events, &run.strings),
        strings: run.strings,
    }
}

struct Run<'a> {
    process: Process,
    folder: &'a Path,
    part: Part,
    mappings: Mappings,
    /// In the order of their first mapping.
    pools: Vec<PathBuf>,
    /// The effect of the instruction at an address. Targets here neither unload nor change code.
    effects: HashMap<u64, Option<Effect>>,
    info: InstructionInfoFactory,
    /// Whether this thread has something that waits for a fence.
    is_pending: bool,
    events: Vec<Seen>,
    strings: HashSet<Site>,
    steps: u64,
}

fn check_end(code: i32) {
    assert_eq!(code, 0, "the target fails without powerfail, too");
}

impl Run<'_> {
    /// Runs at full speed to the entry or exit of a wanted system call. Returns false if the process ends before.
    fn run_to(&mut self, mut is_wanted: impl FnMut(&mut Self) -> bool) -> bool {
        let mut signal = 0;
        loop {
            let stop = self.process.to_system_call(signal);
            signal = 0;
            match stop {
                Stop::Ended(code) => {
                    check_end(code);
                    return false;
                }
                Stop::Signal(number) => signal = number,
                Stop::SystemCall if is_wanted(self) => return true,
                Stop::SystemCall | Stop::Step => {}
            }
        }
    }

    /// Runs to the part that is compared. Returns false if the process ends before.
    fn run_to_begin(&mut self) -> bool {
        match self.part {
            Part::Whole => self.run_to(|run| {
                if run.process.registers().orig_rax == libc::SYS_mmap as u64 {
                    run.look_at_mappings();
                }
                !run.pools.is_empty()
            }),
            Part::Marked => {
                let has_begun = self.run_to(|run| {
                    let registers = run.process.registers();
                    run.writes(registers.orig_rax, &registers, BEGIN)
                });
                self.look_at_mappings();
                has_begun
            }
        }
    }

    /// Whether a system call with this number and these registers writes a text.
    fn writes(&self, number: u64, registers: &user_regs_struct, text: &[u8]) -> bool {
        number == libc::SYS_write as u64
            && registers.rdx == text.len() as u64
            && self.process.read(registers.rsi, text.len()) == text
    }

    fn look_at_mappings(&mut self) {
        self.mappings = Mappings::of(self.process.id());
        for pool in self.mappings.pools_in(self.folder) {
            if !self.pools.iter().any(|known| known == pool) {
                self.pools.push(pool.to_owned());
            }
        }
    }

    fn step_to_end(&mut self) {
        loop {
            let address = self.process.instruction_pointer();
            // Taken out temporarily, so that it can be read while events are added.
            let effect = match self.effects.remove(&address) {
                Some(effect) => effect,
                None => {
                    let code = self.process.read(address, INSTRUCTION_LEN_MAX);
                    Effect::of(&code, address, &mut self.info)
                }
            };
            let is_over = match &effect {
                None => self.step(),
                Some(effect) => self.step_with(effect, address),
            };
            if is_over {
                return;
            }
            self.effects.insert(address, effect);
        }
    }

    /// Executes one instruction. Returns true if the process has ended.
    fn step(&mut self) -> bool {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the target does not end");
        match self.process.step(0) {
            Stop::Step => false,
            Stop::Ended(code) => {
                check_end(code);
                true
            }
            other => panic!("the oracle does not know what to do at {other:?}"),
        }
    }

    /// Executes one instruction that may be relevant.
    fn step_with(&mut self, effect: &Effect, address: u64) -> bool {
        let before = self.process.registers();
        let ranges = effect.ranges(&self.process, &before);
        let in_pool: Vec<_> = ranges
            .iter()
            .filter_map(|range| {
                let (pool, offset) = self.mappings.in_pool(range.address, &self.pools)?;
                assert!(range.len > 0, "the oracle does not know its length");
                Some((*range, pool, offset))
            })
            .collect();
        if effect.kind == EffectKind::SystemCall
            && self.part == Part::Marked
            && self.writes(before.rax, &before, END)
        {
            self.run_to(|_| false);
            return true;
        }
        if self.step() {
            return true;
        }
        match effect.kind {
            EffectKind::SystemCall => self.after_system_call(&before),
            EffectKind::Fence(kind) => self.fence(kind, address),
            EffectKind::Flush(kind) => {
                // Also for volatile memory: the recorder does not check the address.
                self.is_pending |= kind != FlushKind::Clflush;
                for (_, pool, offset) in in_pool {
                    self.flush(kind, pool, offset, address);
                }
            }
            _ if effect.is_locked() => self.locked(effect, &in_pool, address),
            EffectKind::Store(kind) | EffectKind::Masked(kind, _) => {
                self.store(kind, &in_pool, address);
            }
            EffectKind::String => {
                if !in_pool.is_empty() {
                    self.strings.insert(self.mappings.site(address));
                }
                self.store(StoreKind::Plain, &in_pool, address);
            }
        }
        false
    }

    fn after_system_call(&mut self, before: &user_regs_struct) {
        let changes = [libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap];
        if changes.contains(&before.rax.cast_signed()) {
            self.look_at_mappings();
        }
    }

    fn push(&mut self, what: What, address: u64) {
        let site = self.mappings.site(address);
        self.events.push(Seen { what, site });
    }

    fn fence(&mut self, kind: FenceKind, address: u64) {
        self.is_pending = false;
        self.push(What::Fence(kind), address);
    }

    fn flush(&mut self, kind: FlushKind, pool: usize, offset: u64, address: u64) {
        self.is_pending |= kind != FlushKind::Clflush;
        self.push(What::Flush { kind, pool, offset }, address);
    }

    fn store(&mut self, kind: StoreKind, ranges: &[(Range, usize, u64)], address: u64) {
        for (range, pool, offset) in ranges {
            let bytes = self.process.read(range.address, range.len);
            assert_eq!(bytes.len(), range.len, "a pool is readable");
            self.is_pending |= kind == StoreKind::NonTemporal;
            let store = What::Store {
                kind,
                pool: *pool,
                offset: *offset,
                bytes,
            };
            self.push(store, address);
        }
    }

    fn locked(&mut self, effect: &Effect, in_pool: &[(Range, usize, u64)], address: u64) {
        let has_failed = || effect.compares() && self.process.registers().eflags & ZERO_FLAG == 0;
        if in_pool.is_empty() {
            if effect.is_neutral() {
                self.fence(FenceKind::Mfence, address);
            } else if self.is_pending {
                self.fence(FenceKind::Locked, address);
            }
        } else if has_failed() {
            self.fence(FenceKind::Locked, address);
        } else {
            self.is_pending = false;
            self.store(StoreKind::Locked, in_pool, address);
        }
    }
}
