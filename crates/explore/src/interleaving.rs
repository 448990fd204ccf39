//! In which order the threads of a recorded run did what they did.
//!
//! Two recordings of one workload show the same interleaving if the same code did the same to the same
//! places, thread by thread in the same order. Values do not count: they may be addresses or times. Nor
//! do the numbers of threads: they are named by the order in which they first did something.

use powerfail_model::{Event, EventIndex, ThreadIndex};
use powerfail_protocol::random::mix;
use powerfail_trace::{Body, Frame, RecordKind, StackId, Trace, TraceError};
use rustc_hash::FxHashMap;

/// What a recorded run shows of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interleaving {
    /// Equal for equal interleavings, and for no others but by an accident of 128 bits.
    pub digest: [u64; 2],
    /// Equal for runs that began with the same content of their pools.
    pub initial: [u64; 2],
}

impl Interleaving {
    /// That of a trace: one pass over it.
    pub fn of(trace: &Trace) -> Result<Self, TraceError> {
        let mut pass = Pass {
            trace,
            threads: FxHashMap::default(),
            stacks: FxHashMap::default(),
            digest: Digest::default(),
        };
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record()? {
            if !matches!(record.body, Body::Pm(_) | Body::VolatileFlush { .. }) {
                continue;
            }
            pass.add(record.thread, record.stack, &record.body);
        }
        Ok(Self {
            digest: pass.digest.0,
            initial: initial(trace)?,
        })
    }
}

/// Two sums that depend on the order of what is added.
#[derive(Clone, Copy, Default)]
struct Digest([u64; 2]);

impl Digest {
    fn add(&mut self, word: u64) {
        self.0[0] = mix(self.0[0] ^ mix(word.wrapping_add(1)));
        self.0[1] = mix(self.0[1].rotate_left(23).wrapping_add(mix(!word)));
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }
}

struct Pass<'t> {
    trace: &'t Trace,
    threads: FxHashMap<ThreadIndex, u64>,
    /// Of stacks that were met, their digests.
    stacks: FxHashMap<StackId, u64>,
    digest: Digest,
}

impl Pass<'_> {
    fn add(&mut self, thread: ThreadIndex, stack: StackId, body: &Body<'_>) {
        let next = self.threads.len() as u64;
        let thread = *self.threads.entry(thread).or_insert(next);
        let stack = self.stack(stack);
        self.digest.add(thread << 8 | RecordKind::of(body) as u64);
        self.digest.add(stack);
        match *body {
            Body::Pm(Event::Store { at, bytes, .. }) => {
                self.digest.add(u64::from(at.pool.0));
                self.digest.add(at.offset.0);
                self.digest.add(bytes.len() as u64);
            }
            Body::Pm(Event::Flush { at, .. }) => {
                self.digest.add(u64::from(at.pool.0));
                self.digest.add(at.offset.0);
            }
            Body::Pm(Event::Sync {
                pool,
                offset,
                len_bytes,
            }) => {
                self.digest.add(u64::from(pool.0));
                self.digest.add(offset.0);
                self.digest.add(len_bytes);
            }
            Body::Pm(Event::Resize { pool, len_bytes }) => {
                self.digest.add(u64::from(pool.0));
                self.digest.add(len_bytes);
            }
            _ => {}
        }
    }

    /// A number for a call stack that is the same in another recording of the same program.
    fn stack(&mut self, id: StackId) -> u64 {
        if let Some(known) = self.stacks.get(&id) {
            return *known;
        }
        let mut digest = Digest::default();
        for frame in self.trace.stack(id) {
            match frame {
                Frame::Module { module, offset } => {
                    if let Some(module) = self.trace.modules().get(module.0 as usize) {
                        digest.add_bytes(module.path.as_os_str().as_encoded_bytes());
                    }
                    digest.add(offset);
                }
                Frame::Absolute { address } => digest.add(address),
            }
        }
        self.stacks.insert(id, digest.0[0]);
        digest.0[0]
    }
}

fn initial(trace: &Trace) -> Result<[u64; 2], TraceError> {
    let mut digest = Digest::default();
    for pool in trace.pools() {
        digest.add(pool.len_bytes);
    }
    let mut runs = trace.initial_images();
    while let Some(run) = runs.next_run()? {
        digest.add(u64::from(run.pool.0));
        digest.add(run.offset.0);
        digest.add_bytes(run.bytes);
    }
    Ok(digest.0)
}
