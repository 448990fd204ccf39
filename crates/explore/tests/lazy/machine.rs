//! A small language for recoveries: they load, branch on loaded values, store, flush and stop.

use powerfail_model::{
    Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};

pub(crate) const POOL: PoolIndex = PoolIndex(0);
pub(crate) const THREAD: ThreadIndex = ThreadIndex(0);

pub(crate) fn place(offset: u64) -> Place {
    Place::new(POOL, PoolOffset(offset))
}

/// An instruction. Jumps go forward only, so that every program stops.
#[derive(Clone, Debug)]
pub(crate) enum Instruction {
    /// Loads bytes into the register.
    Load {
        at: u64,
        len: usize,
    },
    /// Loads bytes from an address that depends on the register.
    LoadAt {
        base: u64,
        scale: u64,
        entries: u64,
        len: usize,
    },
    /// Jumps if a byte of the register has a value.
    JumpIf {
        byte: usize,
        value: u8,
        to: usize,
    },
    Store {
        kind: StoreKind,
        at: u64,
        bytes: Vec<u8>,
    },
    /// Stores the register.
    StoreRegister {
        at: u64,
    },
    Flush {
        kind: FlushKind,
        at: u64,
    },
    Fence,
    Sync {
        at: u64,
        len: u64,
    },
    Stop(u8),
}

pub(crate) type Program = Vec<Instruction>;

/// Everything that is observable from outside and inside: the loaded values, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Behaviour {
    pub(crate) loaded: Vec<Vec<u8>>,
    pub(crate) outcome: u8,
}

/// The effects of a recovery on its pool.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Store(StoreKind, u64, Vec<u8>),
    Flush(FlushKind, u64),
    Fence,
    Sync(u64, u64),
}

impl Effect {
    pub(crate) fn event(&self) -> Event<'_> {
        match self {
            Self::Store(kind, at, bytes) => Event::Store {
                kind: *kind,
                at: place(*at),
                bytes,
            },
            Self::Flush(kind, at) => Event::Flush {
                kind: *kind,
                at: place(*at),
            },
            Self::Fence => Event::Fence(FenceKind::Sfence),
            Self::Sync(at, len) => Event::Sync {
                pool: POOL,
                offset: PoolOffset(*at),
                len_bytes: *len,
            },
        }
    }
}

/// An effect, and how many loads and choices were made before it.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) effect: Effect,
    pub(crate) loads: usize,
    pub(crate) choices: usize,
}

/// The memory that a program runs on.
pub(crate) trait Memory {
    fn load(&mut self, at: u64, out: &mut [u8]);
    fn store(&mut self, at: u64, bytes: &[u8]);
    /// How many choices were made so far.
    fn choices(&self) -> usize;
}

/// Memory with fixed content.
pub(crate) struct Plain(pub(crate) Vec<u8>);

impl Memory for Plain {
    fn load(&mut self, at: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.0[at as usize..at as usize + out.len()]);
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn choices(&self) -> usize {
        0
    }
}

/// Runs a program to its end.
pub(crate) fn run(program: &Program, memory: &mut dyn Memory) -> (Behaviour, Vec<Logged>) {
    let mut loaded: Vec<Vec<u8>> = Vec::new();
    let mut log = Vec::new();
    let mut register = vec![0];
    let mut next = 0;
    let outcome = loop {
        let Some(instruction) = program.get(next) else {
            break 0;
        };
        next += 1;
        let effect = match instruction {
            Instruction::Load { at, len } => {
                register = vec![0; *len];
                memory.load(*at, &mut register);
                loaded.push(register.clone());
                continue;
            }
            Instruction::LoadAt {
                base,
                scale,
                entries,
                len,
            } => {
                let entry = u64::from(register[0]) % entries;
                register = vec![0; *len];
                memory.load(base + entry * scale, &mut register);
                loaded.push(register.clone());
                continue;
            }
            Instruction::JumpIf { byte, value, to } => {
                if register[byte % register.len()] == *value {
                    next = *to;
                }
                continue;
            }
            Instruction::Stop(outcome) => break *outcome,
            Instruction::Store { kind, at, bytes } => Effect::Store(*kind, *at, bytes.clone()),
            Instruction::StoreRegister { at } => {
                Effect::Store(StoreKind::Plain, *at, register.clone())
            }
            Instruction::Flush { kind, at } => Effect::Flush(*kind, *at),
            Instruction::Fence => Effect::Fence,
            Instruction::Sync { at, len } => Effect::Sync(*at, *len),
        };
        if let Effect::Store(_, at, bytes) = &effect {
            memory.store(*at, bytes);
        }
        log.push(Logged {
            effect,
            loads: loaded.len(),
            choices: memory.choices(),
        });
    };
    (Behaviour { loaded, outcome }, log)
}
