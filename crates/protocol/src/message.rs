//! Messages of the runtime to the host about anything but events, over a socket that preserves message boundaries.
//!
//! A message is a [`MessageHeader`] and a text of the length it names (a path, a build-id, a
//! sentence). A message about something is sent before the first record that refers to it, so a
//! host that examines the chunks first and then empties the socket knows everything it needs.
//!
//! A process inherits a socket. If it closes that, or its parent did, it connects to the host again.

/// The longest text of a message; paths of the kernel are shorter.
pub const TEXT_MAX: usize = 4096;

/// Functions of programs that an interpreter executes have addresses that no code has: these bits, a hash of the function,
/// and room for [`FUNCTION_LINES`] lines.
pub const FUNCTION: u64 = 8 << 60;
/// How many lines can be told apart in the file of such a function.
pub const FUNCTION_LINES: u64 = 1 << 20;

/// How many words say what is to be known of an instruction: see [`MessageKind::Site`].
pub const SITE_WORDS: usize = 4;

/// The beginning of every message.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageHeader {
    /// A [`MessageKind`] as a number.
    pub kind: u32,
    /// How many bytes of text follow.
    pub text_len: u32,
    /// Meaning depends on the kind.
    pub words: [u64; 5],
}

impl MessageHeader {
    /// Its length in bytes.
    pub const LEN: usize = 48;

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.text_len.to_le_bytes());
        for (word, place) in self.words.iter().zip(bytes[8..].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads the beginning of a message.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let mut words = [0; 5];
        for (word, at) in words.iter_mut().zip((8..).step_by(8)) {
            *word = u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?);
        }
        Some(Self {
            kind: number(0)?,
            text_len: number(4)?,
            words,
        })
    }
}

/// The instructions that a message is about: see [`MessageKind::Site`].
pub fn sites_of(words: [u64; 5], text: &[u8]) -> impl Iterator<Item = [u64; SITE_WORDS]> {
    let [id, address, len_bytes, tactic, _] = words;
    let further = text.chunks_exact(8 * SITE_WORDS).map(|site| {
        let mut words = [0; SITE_WORDS];
        for (word, bytes) in words.iter_mut().zip(site.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    });
    core::iter::once([id, address, len_bytes, tactic]).chain(further)
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MessageKind {
    /// A process has started: protocol version, process id. Text: its executable.
    Hello = 1,
    /// A thread has started: number, thread id of the system, process id, and, if the process was just
    /// forked, the process that it was forked from (else 0).
    ThreadStart = 2,
    /// A thread has ended: number. It appends nothing any more.
    ThreadEnd = 3,
    /// A module is loaded: address, length, length of the build-id in bytes, length of the name of a function. Text:
    /// build-id, function, path. With a name, it is a function of a program that an interpreter executes: its path is that
    /// of the source, and its offsets are lines ([`FUNCTION`]).
    Module = 4,
    /// An instruction that can append records: site, address, length, [`SiteTactic`] as a number. Text: the same of further
    /// ones, [`SITE_WORDS`] words each.
    Site = 5,
    /// A file is about to be mapped as a pool: address in the window, length, offset in the file,
    /// slot of the thread, 1 if the target asks for `MAP_SYNC` and gets the mapping without it. The descriptor of the file comes with the message (`SCM_RIGHTS`). Text:
    /// its path. The thread waits for a [`crate::shared::Reply`] in its slot before it maps.
    PoolMap = 6,
    /// A range of the window is no longer mapped: address, length.
    PoolUnmap = 7,
    /// The recording lacks something. Text: a sentence.
    Warning = 8,
    /// The target did something that cannot be recorded, and ends now. Text: a sentence.
    Fatal = 9,
    /// A call stack: its number, the number of its site. Text: return addresses, innermost first, 8
    /// bytes each.
    Stack = 10,
    /// The process is about to execute another program, which says hello if it can be recorded. Text: its path or
    /// name.
    Exec = 17,
    /// The program was not executed after all.
    ExecFailed = 18,
    /// The process has started another one: its process id. Text: the path or name of its program.
    Spawned = 19,
    /// What a program is given that is executed next: process id (0: that of the sender), and whether these are variables
    /// (1) or arguments (0). Text: some of them, each with a zero behind it. Comes before [`Self::Exec`] and
    /// [`Self::Spawned`].
    ExecWords = 20,
    /// A file that such a program can write to, because its descriptor is inherited: process id as before, device, inode.
    ExecFile = 21,
    /// A regular file that this process has not mapped as a pool is written with a system call, for the first time: device,
    /// inode, 0. Or it gets another name: device, inode, 1 if this is of interest only if it was written. Text: its path.
    Wrote = 22,
    /// A directory that is not in a tree is about to change: slot of the thread. Text: its path. The thread waits for a
    /// [`crate::shared::Reply`] in its slot: whether it is in a tree from now on.
    TreeAsk = 23,
    /// The part of a pool at an address is mapped elsewhere too, or longer: address, new address,
    /// new length, the stamp from which on that holds.
    PoolMove = 16,
}

impl MessageKind {
    /// The kind with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [
            Self::Hello,
            Self::ThreadStart,
            Self::ThreadEnd,
            Self::Module,
            Self::Site,
            Self::PoolMap,
            Self::PoolUnmap,
            Self::Warning,
            Self::Fatal,
            Self::Stack,
            Self::PoolMove,
            Self::Exec,
            Self::ExecFailed,
            Self::Spawned,
            Self::ExecWords,
            Self::ExecFile,
            Self::Wrote,
            Self::TreeAsk,
        ]
        .into_iter()
        .find(|kind| *kind as u32 == number)
    }
}

/// How the trampoline of a site is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SiteTactic {
    /// By a fault or a breakpoint at every execution.
    Trap = 0,
    /// By a jump in the place of the instruction.
    Jump = 1,
    /// By a jump that shares bytes with what follows.
    Pun = 2,
    /// By a jump for which another instruction had to move.
    Eviction = 3,
    /// By the runtime itself: a system call.
    System = 4,
}

#[cfg(test)]
mod tests {
    use super::{MessageHeader, MessageKind, sites_of};

    #[test]
    fn one_message_is_about_many_sites() {
        let further = [5u64, 6, 7, 8, 9, 10, 11, 12].map(u64::to_le_bytes);
        let mut sites = sites_of([1, 2, 3, 4, 0], further.as_flattened());
        assert_eq!(sites.next(), Some([1, 2, 3, 4]));
        assert_eq!(sites.next(), Some([5, 6, 7, 8]));
        assert_eq!(sites.next(), Some([9, 10, 11, 12]));
        assert_eq!(sites.next(), None);
        assert_eq!(sites_of([1, 2, 3, 4, 0], &[0; 31]).count(), 1);
    }

    #[test]
    fn headers_survive_their_bytes() {
        let header = MessageHeader {
            kind: 6,
            text_len: 77,
            words: [1, u64::MAX, 3, 4, 5],
        };
        assert_eq!(MessageHeader::from_bytes(&header.to_bytes()), Some(header));
        assert_eq!(MessageHeader::from_bytes(&header.to_bytes()[..47]), None);
        assert_eq!(MessageKind::from_number(6), Some(MessageKind::PoolMap));
        assert_eq!(MessageKind::from_number(11), None);
    }
}
