//! What fuzzing needs to know of executions: paths of operations on persistent memory, and what host and target
//! share while the target is repeated.
//!
//! # PM paths
//!
//! An *operation* is a store, flush or fence on a pool or a mark of a library call, named by a hash of where
//! the instruction is: [`Operation::of_site`], or with all callers [`Operation::of_stack`]. A *location* is a
//! transition between two operations of a thread ([`Path::step`]); how often each was taken is counted in a
//! map of [`MAP_LEN`] counters. All of this is pure, so that host and runtime count alike.
//!
//! # Repeating a target
//!
//! The target stops twice. At *level 1*, before it first touches the directory of its pool, it becomes the
//! *root*: for each image a *template* is forked. The template stops at *level 2*, before it first touches its
//! input: for each input a child is forked. Both are [`ForkServer`]s: they wait for an order of the host, fork, wait
//! for the end of the child and report how it ended. All of that is in the [`Area`], behind the chunks of the
//! shared file.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::shared::file_len;

/// Counters of a map. A power of two.
pub const MAP_LEN: usize = 1 << 16;

/// What a hash begins with.
const FIRST: u64 = 0xcbf2_9ce4_8422_2325;
/// Spreads bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mixed(hash: u64, word: u64) -> u64 {
    let sum = (hash ^ word).wrapping_mul(FACTOR);
    sum ^ sum >> 29
}

/// A module, by the name of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleHash(u64);

impl ModuleHash {
    /// Code that belongs to no module.
    pub const NONE: Self = Self(FIRST);

    /// The module with this path. Directories do not count: the same program elsewhere is the same.
    pub fn of_path(path: &[u8]) -> Self {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let words = name.iter().map(|byte| u64::from(*byte));
        Self(words.fold(FIRST, mixed))
    }
}

/// A place in code: a module and the distance from where it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodePlace {
    /// The module.
    pub module: ModuleHash,
    /// The distance; an address if there is no module.
    pub offset: u64,
}

impl CodePlace {
    /// The place at an offset in the module with this path, or at an address in no module.
    pub fn new(module_path: Option<&[u8]>, offset: u64) -> Self {
        Self {
            module: module_path.map_or(ModuleHash::NONE, ModuleHash::of_path),
            offset,
        }
    }
}

/// An operation on persistent memory, as paths see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation(pub u32);

impl Operation {
    /// The operation of an instruction, whatever its callers.
    pub fn of_site(place: CodePlace) -> Self {
        Self::of_stack(core::iter::once(place))
    }

    /// The operation of an instruction with all who called it, innermost first.
    pub fn of_stack(places: impl IntoIterator<Item = CodePlace>) -> Self {
        let hash = places.into_iter().fold(FIRST, |hash, place| {
            mixed(mixed(hash, place.module.0), place.offset)
        });
        Self((hash ^ hash >> 32) as u32)
    }
}

/// How far a thread is on its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    previous: u32,
}

impl Path {
    /// The next operation of the thread: the location that it is, an index in a map.
    pub const fn step(&mut self, operation: Operation) -> usize {
        let location = operation.0 ^ self.previous;
        self.previous = operation.0 >> 1;
        location as usize & (MAP_LEN - 1)
    }
}

/// Counts a location. A counter that is full stays full.
pub fn count(map: &mut [u8], location: usize) {
    if let Some(counter) = map.get_mut(location) {
        *counter = counter.saturating_add(1);
    }
}

/// The bucket of a counter, as AFL has them: one bit for each range of counts that is distinguished, none for zero.
pub const fn bucket(count: u8) -> u8 {
    match count {
        0..=2 => count,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}

/// Gives every counter of a map its bucket.
pub fn classify(map: &mut [u8]) {
    for part in map.chunks_mut(8) {
        if part.iter().any(|counter| *counter > 2) {
            for counter in part {
                *counter = bucket(*counter);
            }
        }
    }
}

/// Where every process of the target maps the [`Area`].
pub const AREA_ADDRESS: u64 = 0x1900_0000_0000;
/// Offset in the area of what was noted: addresses of instructions.
pub const NOTES_AT: u64 = 32 * 1024;
/// How many instructions can be noted.
pub const NOTES_MAX: usize = 4096;
/// Offset in the area of the map of branches, of [`BRANCHES_LEN`] counters.
pub const BRANCHES_AT: u64 = NOTES_AT + 8 * NOTES_MAX as u64;
/// Counters of the map of branches.
pub const BRANCHES_LEN: usize = MAP_LEN;
/// Offset in the area of observations.
pub const OBSERVATIONS_AT: u64 = BRANCHES_AT + BRANCHES_LEN as u64;
/// How many observations are kept.
pub const OBSERVATIONS_MAX: usize = 1024;
/// Bytes that are kept of each operand.
pub const OPERAND_MAX: usize = 62;
/// Offset in the area of the input, if it comes as arguments.
pub const ARGUMENTS_AT: u64 =
    OBSERVATIONS_AT + (OBSERVATIONS_MAX * size_of::<Observation>()) as u64;
/// Bytes that an input can have as arguments; a zero follows.
pub const ARGUMENTS_MAX: usize = 32 * 1024 - 1;
/// Length of the area.
pub const AREA_LEN: u64 = ARGUMENTS_AT + ARGUMENTS_MAX as u64 + 1;
/// Room for a path in the area.
pub const PATH_MAX: usize = 4096;

/// Where the area is in the shared file, behind all chunks: what [`crate::shared::RecordingControl::area_at`] is then.
pub const fn area_offset(chunk_count: u32) -> u64 {
    file_len(chunk_count)
}

/// What can be asked of a repeated target: bits of [`Area::flags`].
pub mod flag {
    /// The input is standard input.
    pub const STDIN: u32 = 1;
    /// The input is a file.
    pub const FILE: u32 = 2;
    /// The input is arguments.
    pub const ARGUMENTS: u32 = 4;
    /// The target stops nowhere: the process is one execution.
    pub const THROUGH: u32 = 8;
    /// Time, randomness and numbers of processes are fixed.
    pub const DERANDOMISE: u32 = 16;
    /// Sockets of the target are fed from its input.
    pub const DESOCK: u32 = 32;
    /// What the target does with its input is noted. May change from one execution to the next.
    pub const OBSERVE: u32 = 64;
}

/// What the target did with something that may come from its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ObservedKind {
    /// It compared two operands, either of which may come from the input.
    Compared = 1,
    /// It sought the other operand in a text.
    Sought = 2,
    /// It split a text at each of the bytes of the other operand. A text that is empty is the one before.
    Split = 3,
    /// It read a number at the beginning of a text; there is no other operand.
    Number = 4,
    /// It read a text with a format of `scanf`. A text that is empty is a stream.
    Scanned = 5,
    /// It read its arguments with these letters of `getopt`.
    Options = 6,
}

impl ObservedKind {
    /// The kind with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Compared,
            2 => Self::Sought,
            3 => Self::Split,
            4 => Self::Number,
            5 => Self::Scanned,
            6 => Self::Options,
            _ => return None,
        })
    }
}

/// One thing that the target did with something that may come from its input.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// An [`ObservedKind`], as a number.
    pub kind: u8,
    /// How many bytes of `text` are set.
    pub text_len: u8,
    /// How many bytes of `other` are set.
    pub other_len: u8,
    /// Zero.
    pub spare: u8,
    /// What may come from the input.
    pub text: [u8; OPERAND_MAX],
    /// What the program has: the other operand, delimiters, or a format.
    pub other: [u8; OPERAND_MAX],
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// It runs, or is not there.
    Away = 0,
    /// It waits for an order, for the first time.
    Reached = 1,
    /// It has several threads, so it cannot fork: it waits to be ended, or to go on.
    Crowded = 2,
    /// It waits for the end of what it forked.
    Forked = 3,
    /// What it forked has ended; it waits for an order.
    Ended = 4,
    /// It could not fork.
    Failed = 5,
}

/// What a server is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ForkOrder {
    /// Fork; what is forked stops at the next level.
    Fork = 1,
    /// Fork; what is forked stops nowhere.
    ForkThrough = 2,
    /// End.
    Stop = 3,
}

/// A process that waits at a level.
#[repr(C)]
#[derive(Debug)]
pub struct ForkServer {
    /// Futex of the server: grows with each order.
    pub orders: AtomicU32,
    /// The last [`ForkOrder`], as a number.
    pub order: AtomicU32,
    /// Its [`Phase`], as a number.
    pub phase: AtomicU32,
    /// Its number in the system.
    pub process: AtomicU32,
    /// What it has forked last.
    pub child: AtomicU32,
    /// How that ended, as `waitpid` says it.
    pub status: AtomicU32,
}

/// What host and target share beside chunks. Everything is zero at first.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Area {
    /// Bits of [`flag`].
    pub flags: AtomicU32,
    /// Futex of the host: grows with each change of a phase, and when the host is needed.
    pub host: AtomicU32,
    /// The process at level 1.
    pub root: ForkServer,
    /// The process at level 2.
    pub template: ForkServer,
    /// How many messages the target has sent on its socket.
    pub messages: AtomicU32,
    /// How many instructions were noted.
    pub note_count: AtomicU32,
    /// Not zero: the target did something to the directory of its pool that records do not show.
    pub disorder: AtomicU32,
    /// How many threads wait for a chunk.
    pub starving: AtomicU32,
    /// How many guards of branches the target has; no guards, no map.
    pub guards: AtomicU32,
    /// How many observations were made; the last [`OBSERVATIONS_MAX`] are there.
    pub observations: AtomicU32,
    /// Length of the input, if it comes as arguments.
    pub arguments_len: AtomicU32,
    /// Length of [`Area::directory`].
    pub directory_len: AtomicU32,
    /// Length of [`Area::input`].
    pub input_len: AtomicU32,
    /// Device of the file that is the input.
    pub input_device: AtomicU64,
    /// Its inode.
    pub input_inode: AtomicU64,
    /// Path of the directory of the pool, without links.
    pub directory: [u8; PATH_MAX],
    /// Path of the file that is the input.
    pub input: [u8; PATH_MAX],
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{
        AREA_ADDRESS, AREA_LEN, Area, CodePlace, MAP_LEN, ModuleHash, NOTES_AT, Operation, Path,
        bucket, classify, count,
    };
    use crate::chunk;
    use crate::shared::{CHUNKS_ADDRESS, CHUNKS_MAX, CONTROL_ADDRESS};
    use std::vec;

    #[test]
    fn everything_has_its_place() {
        assert!(size_of::<Area>() as u64 <= NOTES_AT);
        assert!(CHUNKS_ADDRESS + CHUNKS_MAX as u64 * chunk::ALIGNMENT <= AREA_ADDRESS);
        const { assert!(AREA_ADDRESS + AREA_LEN <= CONTROL_ADDRESS) };
        assert_eq!(AREA_LEN % 4096, 0);
    }

    #[test]
    fn operations_are_told_apart_by_what_names_them() {
        let place = |path: &[u8], offset| CodePlace {
            module: ModuleHash::of_path(path),
            offset,
        };
        let (store, caller) = (place(b"/usr/lib/libpmem.so.1", 8), place(b"kv", 9));
        assert_eq!(
            Operation::of_site(store),
            Operation::of_site(place(b"elsewhere/libpmem.so.1", 8))
        );
        assert_ne!(
            Operation::of_site(store),
            Operation::of_site(place(b"libpmem.so.1", 9))
        );
        assert_ne!(
            Operation::of_site(store),
            Operation::of_stack([store, caller])
        );
        assert_ne!(
            Operation::of_stack([caller, store]),
            Operation::of_stack([store, caller])
        );
    }

    #[test]
    fn a_path_has_a_direction() {
        let [first, second] = [0x1_2345, 0x6_789a].map(Operation);
        let walk = |operations: [Operation; 2]| {
            let mut path = Path::default();
            operations.map(|operation| path.step(operation))
        };
        assert_eq!(walk([first, second]), [0x2345, 0x789a ^ 0x91a2]);
        assert_ne!(walk([first, second]), walk([second, first]));
        assert_ne!(walk([first, first])[1], 0, "a loop is a location");
    }

    #[test]
    fn buckets_are_those_of_afl() {
        let first = [0, 1, 2, 3, 4, 8, 16, 32, 128];
        for count in 0..=255_u8 {
            let expected = first.iter().rposition(|first| *first <= count).unwrap();
            assert_eq!(
                bucket(count),
                if expected == 0 {
                    0
                } else {
                    1 << (expected - 1)
                },
                "{count}"
            );
        }
    }

    #[test]
    fn every_counter_of_a_map_gets_its_bucket() {
        let mut map = vec![0; MAP_LEN];
        for _ in 0..300 {
            count(&mut map, 7);
        }
        count(&mut map, MAP_LEN);
        assert_eq!(map[7], 255, "full, and it stays full");
        for number in 0..=u8::MAX {
            map[1000 + usize::from(number)] = number;
        }
        let before = map.clone();
        classify(&mut map);
        assert!(
            before
                .iter()
                .zip(&map)
                .all(|(count, class)| bucket(*count) == *class)
        );
        let expected = [0, 1, 2, 4, 8, 8, 8, 8, 16];
        assert_eq!(map[1000..1009], expected);
        assert_eq!(
            [15, 16, 31, 32, 127, 128].map(bucket),
            [16, 32, 32, 64, 64, 128]
        );
    }
}
