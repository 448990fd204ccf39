//! The workload: operations made of steps, with nodes, a log and a header.

use std::io::Write;

use powerfail_model::{
    Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};
use powerfail_protocol::random::Random;
use powerfail_trace::{
    Body, Frame, Meta, Module, ModuleIndex, Pool, PoolKind, Result, StackId, Thread, TraceSize,
    TraceWriter, WriterOptions,
};

/// How many code locations cause events.
pub const SITE_COUNT: u32 = 150;
/// How many threads there are.
pub const THREAD_COUNT: u32 = 4;
/// The length of the pool.
pub const POOL_BYTES: u64 = 1 << 30;

const NODE_BYTES: u64 = 256;
const LOG_START: u64 = 4096;
const LOG_BYTES: u64 = 16 << 20;
const NODES_START: u64 = 32 << 20;
const NODE_COUNT: u64 = (POOL_BYTES - NODES_START) / NODE_BYTES;
const POOL_ADDRESS: u64 = 0x7f3a_4000_0000;

/// A sequence of events that can be iterated repeatedly without cost.
#[derive(Debug)]
pub struct Workload {
    items: Vec<Item>,
    payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    thread: u8,
    site: u8,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Store {
        kind: StoreKind,
        offset: u64,
        start: usize,
        len: usize,
    },
    Clwb {
        offset: u64,
    },
    Sfence,
}

/// One line of code in an operation.
#[derive(Clone, Copy)]
struct Step {
    site: u8,
    action: Action,
    area: Area,
    /// The field of the node or of the header that it writes.
    field: u64,
    /// The probability in percent that an operation executes this step.
    percent: u64,
    /// The maximum number of repetitions in one operation.
    repeats: u64,
}

#[derive(Clone, Copy)]
enum Action {
    Store { len: usize, value: Value },
    Clwb,
    Sfence,
}

#[derive(Clone, Copy)]
enum Area {
    Node(usize),
    Log,
    Header,
}

#[derive(Clone, Copy)]
enum Value {
    Pointer,
    Small,
    Word,
    Zero,
}

impl Workload {
    /// `event_count` events from `seed`.
    pub fn index_inserts(event_count: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let operations = operations(&mut random);
        let mut generator = Generator {
            workload: Self {
                items: Vec::with_capacity(event_count + 1024),
                payload: Vec::with_capacity(event_count * 8),
            },
            random,
            thread: 0,
            log_tail: LOG_START,
            recent: [0; 16],
            nodes: [0; 3],
        };
        while generator.workload.items.len() < event_count {
            // A few operations are frequent, many are rare.
            let choice = generator.random.below(operations.len() as u64);
            let limit = generator.random.below(choice + 1);
            if let Some(operation) = usize::try_from(limit).ok().and_then(|n| operations.get(n)) {
                generator.run(operation);
            }
        }
        let mut workload = generator.workload;
        workload.items.truncate(event_count);
        workload
    }

    /// How many events there are.
    pub const fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The events, each with its thread and its site, which counts from zero to [`SITE_COUNT`].
    pub fn events(&self) -> impl Iterator<Item = (ThreadIndex, u32, Event<'_>)> {
        self.items.iter().map(|item| {
            let at = |offset| Place::new(PoolIndex(0), PoolOffset(offset));
            let event = match item.what {
                What::Store {
                    kind,
                    offset,
                    start,
                    len,
                } => Event::Store {
                    kind,
                    at: at(offset),
                    bytes: &self.payload[start..start + len],
                },
                What::Clwb { offset } => Event::Flush {
                    kind: FlushKind::Clwb,
                    at: at(offset),
                },
                What::Sfence => Event::Fence(FenceKind::Sfence),
            };
            (
                ThreadIndex(u32::from(item.thread)),
                u32::from(item.site),
                event,
            )
        })
    }

    /// Writes all events as a trace.
    pub fn write<W: Write>(&self, sink: W, options: WriterOptions) -> Result<TraceSize> {
        let mut writer = TraceWriter::new(sink, &Meta::default(), options)?;
        writer.define_pool(&Pool {
            path: "/mnt/pmem/index".into(),
            kind: PoolKind::File,
            len_bytes: POOL_BYTES,
            address: POOL_ADDRESS,
        })?;
        writer.define_module(&Module {
            path: "/usr/bin/index".into(),
            build_id: vec![0xab; 20],
            load_address: 0x5555_5555_0000,
            len_bytes: 1 << 20,
            function: None,
        })?;
        for thread in 0..THREAD_COUNT {
            writer.define_thread(&Thread {
                os_id: 1000 + thread,
                name: None,
            })?;
        }
        // Every site is reached through main and one of a few operations.
        let mut stacks = Vec::new();
        for site in 0..u64::from(SITE_COUNT) {
            let frame = |offset| Frame::Module {
                module: ModuleIndex(0),
                offset,
            };
            let frames = [0x4000 + site * 13, 0x2000 + (site / 12) * 64, 0x1000].map(frame);
            stacks.push(writer.intern_stack(&frames)?);
        }
        for (thread, site, event) in self.events() {
            let stack = stacks.get(site as usize).copied().unwrap_or(StackId::NONE);
            writer.append(thread, stack, Body::Pm(event))?;
        }
        writer.finish(&[])
    }
}

/// The operations of the workload: their steps are fixed, their execution varies.
fn operations(random: &mut Random) -> Vec<Vec<Step>> {
    let mut operations = Vec::new();
    let mut site = 0;
    for _ in 0..12 {
        let mut steps = Vec::new();
        for number in 0..27u64 {
            // Persist points come at the end of each group of stores.
            let action = match number % 9 {
                6 => Action::Clwb,
                7 => Action::Sfence,
                8 if number == 26 => Action::Sfence,
                _ => store(random),
            };
            let area = match random.below(10) {
                0..=5 => Area::Node(usize::try_from(number / 9).unwrap_or(0)),
                6..=8 => Area::Log,
                _ => Area::Header,
            };
            let is_store = matches!(action, Action::Store { .. });
            steps.push(Step {
                // Some helper functions are shared by all operations.
                site: if percent(random, 45) {
                    site = (site + 1) % 120;
                    site
                } else {
                    120 + u8::try_from(random.below(30)).unwrap_or(0)
                },
                action,
                area,
                field: random.below(16) * 8,
                percent: if percent(random, 80) { 100 } else { 60 },
                repeats: if is_store && percent(random, 6) { 6 } else { 1 },
            });
        }
        operations.push(steps);
    }
    operations
}

/// True in `percent` of 100 cases.
const fn percent(random: &mut Random, percent: u64) -> bool {
    random.below(100) < percent
}

fn store(random: &mut Random) -> Action {
    let len = match random.below(100) {
        0..88 => 8,
        88..93 => 4,
        93..95 => 1,
        95..97 => 16,
        97..99 => 32,
        _ => 64,
    };
    let value = match random.below(100) {
        0..35 => Value::Pointer,
        35..70 => Value::Small,
        70..90 => Value::Word,
        _ => Value::Zero,
    };
    Action::Store { len, value }
}

struct Generator {
    workload: Workload,
    random: Random,
    thread: u8,
    log_tail: u64,
    /// Nodes that were used lately.
    recent: [u64; 16],
    /// The nodes of the current operation.
    nodes: [u64; 3],
}

impl Generator {
    fn run(&mut self, steps: &[Step]) {
        if percent(&mut self.random, 5) {
            self.thread = if percent(&mut self.random, 60) {
                0
            } else {
                u8::try_from(self.random.below(u64::from(THREAD_COUNT))).unwrap_or(0)
            };
        }
        for slot in 0..self.nodes.len() {
            let victim = usize::try_from(self.random.below(16)).unwrap_or(0);
            self.nodes[slot] = if percent(&mut self.random, 60) {
                self.recent[victim]
            } else {
                self.random.below(NODE_COUNT)
            };
            self.recent[victim] = self.nodes[slot];
        }
        for step in steps {
            if percent(&mut self.random, step.percent) {
                let repeats = if step.repeats > 1 {
                    1 + self.random.below(step.repeats)
                } else {
                    1
                };
                for turn in 0..repeats {
                    self.step(step, turn);
                }
            }
        }
    }

    fn step(&mut self, step: &Step, turn: u64) {
        let len = match step.action {
            Action::Store { len, .. } => len,
            _ => 0,
        };
        let offset = match step.area {
            Area::Node(slot) => {
                let node = NODES_START + self.nodes[slot.min(2)] * NODE_BYTES;
                node + (step.field + turn * len as u64) % NODE_BYTES
            }
            Area::Log => {
                let offset = self.log_tail;
                self.log_tail += len as u64;
                if self.log_tail > LOG_START + LOG_BYTES {
                    self.log_tail = LOG_START;
                }
                offset
            }
            Area::Header => step.field,
        };
        let what = match step.action {
            Action::Store { value, .. } => {
                let start = self.workload.payload.len();
                while self.workload.payload.len() < start + len {
                    let word = self.value(value).to_le_bytes();
                    let room = start + len - self.workload.payload.len();
                    self.workload
                        .payload
                        .extend_from_slice(&word[..room.min(8)]);
                }
                What::Store {
                    kind: if len == 64 {
                        StoreKind::NonTemporal
                    } else {
                        StoreKind::Plain
                    },
                    offset,
                    start,
                    len,
                }
            }
            Action::Clwb => What::Clwb {
                offset: offset & !63,
            },
            Action::Sfence => What::Sfence,
        };
        self.workload.items.push(Item {
            thread: self.thread,
            site: step.site,
            what,
        });
    }

    fn value(&mut self, value: Value) -> u64 {
        match value {
            Value::Pointer => {
                POOL_ADDRESS + NODES_START + self.random.below(NODE_COUNT) * NODE_BYTES
            }
            Value::Small => {
                let bound = 1 << self.random.below(11);
                self.random.below(bound)
            }
            Value::Word => self.random.word(),
            Value::Zero => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_what_it_claims_to_be() {
        let workload = Workload::index_inserts(100_000, 1);
        assert_eq!(workload.len(), 100_000);
        let share = |wanted: fn(&Event<'_>) -> bool| {
            let count = workload.events().filter(|(_, _, event)| wanted(event));
            count.count() / 1000
        };
        assert!((74..=78).contains(&share(|event| matches!(event, Event::Store { .. }))));
        assert!((9..=11).contains(&share(|event| matches!(event, Event::Flush { .. }))));
        assert!((12..=16).contains(&share(|event| matches!(event, Event::Fence(_)))));
        assert!(
            workload
                .events()
                .all(|(thread, site, _)| { thread.0 < THREAD_COUNT && site < SITE_COUNT })
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_events() {
        let one = Workload::index_inserts(5000, 3);
        let other = Workload::index_inserts(5000, 3);
        assert!(one.events().eq(other.events()));
    }
}
