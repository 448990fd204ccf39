//! The file in which the plugin of QEMU writes what a whole machine does to its persistent memory.
//!
//! Eight bytes of [`MAGIC`], then frames, everything little-endian: a kind and the length of what follows (4 bytes each),
//! and so many bytes, padded to eight. The order of frames is the order of execution. Addresses in records are offsets in
//! the persistent memory.

use crate::{Record, Records};

/// The first bytes of the file.
pub const MAGIC: [u8; 8] = *b"PFQEMU01";

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FrameKind {
    /// An event: the virtual processor (8 bytes), then one record. Its site is the number of a stack.
    Event = 1,
    /// A call stack: its number, then addresses of code, innermost first, 8 bytes each.
    Stack = 2,
    /// A line was read that this machine has not written: its offset, and the address of the code (8 bytes each).
    Load = 3,
    /// A flush whose address is not known, because a register has it that QEMU does not show: the address of the code.
    UnknownFlush = 4,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An event.
    Event {
        /// The virtual processor.
        processor: u64,
        /// The event.
        record: Record<'a>,
    },
    /// A call stack that events refer to.
    Stack {
        /// Its number.
        number: u64,
        /// Addresses of code, 8 bytes each, innermost first: see [`words`].
        addresses: &'a [u8],
    },
    /// A line of 64 bytes was read for the first time, and was not written before.
    Load {
        /// Its offset.
        offset: u64,
        /// The instruction.
        code: u64,
    },
    /// A flush whose address is not known.
    UnknownFlush {
        /// The instruction.
        code: u64,
    },
}

/// The length of the head of a frame.
pub const HEAD_LEN: usize = 8;

/// The head of a frame with so many bytes.
pub fn head(kind: FrameKind, len: u32) -> [u8; HEAD_LEN] {
    (u64::from(kind as u32) | u64::from(len) << 32).to_le_bytes()
}

/// Words of 8 bytes.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| {
        let mut copy = [0; 8];
        copy.copy_from_slice(word);
        u64::from_le_bytes(copy)
    })
}

/// The frames of a file. Ends at the first that is incomplete or of no known kind.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Reads a file; `None` if it is not one of this kind.
    pub fn new(file: &'a [u8]) -> Option<Self> {
        let rest = file.strip_prefix(&MAGIC)?;
        Some(Self { rest })
    }

    /// How many bytes are left: not zero at the end means that the file is damaged or incomplete.
    pub fn left(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.rest.split_at_checked(HEAD_LEN)?;
        let number = |at: usize| {
            head.get(at..at + 4)
                .and_then(|it| it.try_into().ok())
                .map(u32::from_le_bytes)
        };
        let len = number(4)? as usize;
        let payload = rest.get(..len)?;
        let rest = rest.get(len.next_multiple_of(8)..)?;
        let kinds = [
            FrameKind::Event,
            FrameKind::Stack,
            FrameKind::Load,
            FrameKind::UnknownFlush,
        ];
        let kind = number(0)?;
        let kind = kinds.into_iter().find(|it| *it as u32 == kind)?;
        let first = words(payload).next()?;
        let frame = match kind {
            FrameKind::Event => Frame::Event {
                processor: first,
                record: Records::new(payload.get(8..)?).next()?.ok()?,
            },
            FrameKind::Stack => Frame::Stack {
                number: first,
                addresses: payload.get(8..)?,
            },
            FrameKind::Load => Frame::Load {
                offset: first,
                code: words(payload).nth(1)?,
            },
            FrameKind::UnknownFlush => Frame::UnknownFlush { code: first },
        };
        self.rest = rest;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{Frame, FrameKind, Frames, MAGIC, head, words};
    use crate::{EventKind, FLAG_ADDRESS, Header, SiteId};
    use std::vec::Vec;

    fn frame(out: &mut Vec<u8>, kind: FrameKind, payload: &[u8]) {
        out.extend(head(kind, payload.len() as u32));
        out.extend(payload);
        out.resize(out.len().next_multiple_of(8), 0);
    }

    #[test]
    fn frames_come_out_as_they_went_in_and_an_incomplete_one_is_the_end() {
        let mut file = MAGIC.to_vec();
        frame(
            &mut file,
            FrameKind::Stack,
            &[7u64, 0x40_1000, 0x40_2000].map(u64::to_le_bytes).concat(),
        );
        let store = Header {
            kind: EventKind::StorePlain,
            flags: FLAG_ADDRESS,
            value_len: 3,
            site: SiteId(7),
        };
        let mut event = [1, store.word(), 5, 0x100].map(u64::to_le_bytes).concat();
        event.extend([9, 8, 7, 0, 0, 0, 0, 0]);
        frame(&mut file, FrameKind::Event, &event);
        frame(
            &mut file,
            FrameKind::Load,
            &[64u64, 0x40_3000].map(u64::to_le_bytes).concat(),
        );
        let all: Vec<_> = Frames::new(&file).expect("a file").collect();
        let Frame::Stack { number, addresses } = all[0] else {
            panic!("{:?}", all[0])
        };
        assert_eq!(
            (number, words(addresses).collect::<Vec<_>>()),
            (7, [0x40_1000, 0x40_2000].to_vec())
        );
        let Frame::Event { processor, record } = all[1] else {
            panic!("{:?}", all[1])
        };
        assert_eq!(
            (processor, record.address, record.value()),
            (1, Some(0x100), &[9, 8, 7][..])
        );
        let load = Frame::Load {
            offset: 64,
            code: 0x40_3000,
        };
        assert_eq!(all[2..], [load]);
        let mut cut = Frames::new(&file[..file.len() - 1]).expect("a file");
        assert_eq!(cut.by_ref().count(), 2);
        assert!(cut.left() > 0);
        assert!(Frames::new(b"something else").is_none());
    }
}
