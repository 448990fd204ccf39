//! The layout of an event in a chunk, and how to read it.
//!
//! Little-endian, every field at a multiple of eight bytes:
//!
//! | offset | what |
//! | --- | --- |
//! | 0 | header: kind, flags, value length (16 bits), site (32 bits) |
//! | 8 | stamp of the [`crate::clock`]; zero until the record is committed; its highest bit: [`STAMP_TENTATIVE`] |
//! | 16 | address as the target sees it, if [`FLAG_ADDRESS`] |
//! | 24 | value, padded with anything to eight bytes |
//! | | value once more, if [`FLAG_MASKED`] |
//! | | what the store found there, if [`FLAG_FOUND`], as long as the value |
//!
//! A masked store was executed twice to make its record: over zeros and over ones. A byte that is
//! the same in both is a byte that it wrote, whatever the instruction and the kind of its mask.

use core::fmt;
use core::iter::FusedIterator;

/// Identifies a patched or emulated instruction, in the table of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct SiteId(pub u32);

/// The record has an address.
pub const FLAG_ADDRESS: u8 = 1;
/// The record has two images of the value; bytes that are equal in both were written.
pub const FLAG_MASKED: u8 = 2;

/// The record has, behind the images of its value, the bytes that were there before the operation.
pub const FLAG_FOUND: u8 = 4;

/// Offset of the stamp in a record.
pub const STAMP_AT: u32 = 8;
/// Set in the stamp of a record that its thread may still withdraw and make anew. Counters of time do not
/// get there. Emitted code clears the highest byte of the stamp when the operation has happened.
pub const STAMP_TENTATIVE: u64 = 1 << 63;
/// Offset of the address.
pub const ADDRESS_AT: u32 = 16;
/// Offset of the value in a record that has an address.
pub const VALUE_AT: u32 = 24;

/// The length of the value of a flush of a pool that is shared: the aligned word that holds the address, as the flush found
/// it. Other flushes have no value.
pub const FLUSHED_WORD_LEN: u16 = 8;

/// The longest value of one record. String operations are recorded in pieces of this length.
pub const MAX_VALUE_LEN: u16 = 1024;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EventKind {
    /// An ordinary store.
    StorePlain = 1,
    /// A non-temporal store.
    StoreNonTemporal = 2,
    /// A locked read-modify-write that wrote: a fence and a store in one.
    StoreLocked = 3,
    /// The kernel wrote on behalf of the target.
    StoreSystem = 4,
    /// `clflush`.
    Clflush = 5,
    /// `clflushopt`.
    Clflushopt = 6,
    /// `clwb`.
    Clwb = 7,
    /// `sfence`.
    Sfence = 8,
    /// `mfence`.
    Mfence = 9,
    /// A locked operation that wrote nothing to a pool. With an address and a value: a
    /// compare-and-swap in a pool that failed, and what it found there.
    FenceLocked = 10,
    /// An operation that was recorded and then did not happen: skip it.
    Void = 11,
    /// msync, fsync or fdatasync from the address on: the length is the value, 8 bytes. Where the pool is shared, the word
    /// at the address follows, as it was before the call.
    Sync = 12,
    /// The file that is mapped at the address has a new length: the value, 8 bytes.
    Resize = 13,
    /// The target wrote output: descriptor and full length (8 bytes each), then the
    /// beginning of what it wrote.
    Output = 14,
    /// A mark among the events: its [`crate::mark`] and a number (8 bytes each), then any bytes.
    Mark = 15,
    /// An operation on a file of a tree: a [`crate::file::FileEvent`]. Its value may be longer than [`MAX_VALUE_LEN`].
    File = 16,
    /// The thread ends: nothing that it does is recorded any more.
    ThreadEnd = 17,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 17] = [
        Self::StorePlain,
        Self::StoreNonTemporal,
        Self::StoreLocked,
        Self::StoreSystem,
        Self::Clflush,
        Self::Clflushopt,
        Self::Clwb,
        Self::Sfence,
        Self::Mfence,
        Self::FenceLocked,
        Self::Void,
        Self::Sync,
        Self::Resize,
        Self::Output,
        Self::Mark,
        Self::File,
        Self::ThreadEnd,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// The first word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What happened.
    pub kind: EventKind,
    /// [`FLAG_ADDRESS`], [`FLAG_MASKED`], [`FLAG_FOUND`].
    pub flags: u8,
    /// Length of the value.
    pub value_len: u16,
    /// The instruction.
    pub site: SiteId,
}

impl Header {
    /// The low half of the word: everything but the site. Emitted code writes it first.
    pub const fn low(self) -> u32 {
        self.kind as u32 | (self.flags as u32) << 8 | (self.value_len as u32) << 16
    }

    /// The word.
    pub const fn word(self) -> u64 {
        self.low() as u64 | (self.site.0 as u64) << 32
    }

    /// Reads a word.
    ///
    /// # Errors
    /// The word itself, if it is of no known kind.
    pub fn from_word(word: u64) -> Result<Self, u64> {
        let [kind, flags, low, high, ..] = word.to_le_bytes();
        Ok(Self {
            kind: EventKind::from_code(kind).ok_or(word)?,
            flags,
            value_len: u16::from_le_bytes([low, high]),
            site: SiteId((word >> 32) as u32),
        })
    }

    /// Length of the whole record.
    pub const fn record_len(self) -> u32 {
        let address = if self.flags & FLAG_ADDRESS != 0 { 8 } else { 0 };
        let found = (self.flags & FLAG_FOUND != 0) as u32;
        ADDRESS_AT + address + (self.image_count() + found) * self.image_len()
    }

    /// How many images of the value there are.
    const fn image_count(self) -> u32 {
        if self.flags & FLAG_MASKED != 0 { 2 } else { 1 }
    }

    /// How many bytes an image takes.
    const fn image_len(self) -> u32 {
        (self.value_len as u32).next_multiple_of(8)
    }

    /// Where in the record the bytes are that the operation found, if it has an address and [`FLAG_FOUND`].
    pub const fn found_at(self) -> u32 {
        VALUE_AT + self.image_count() * self.image_len()
    }
}

/// A record, read in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its first word.
    pub header: Header,
    /// When it was committed; zero if it was not.
    pub stamp: u64,
    /// Whether its thread may still make it anew.
    pub is_tentative: bool,
    /// Where, if it has an address.
    pub address: Option<u64>,
    images: &'a [u8],
}

impl<'a> Record<'a> {
    /// The bytes of the value. Of a masked record: only those in [`Record::runs`] mean anything.
    pub fn value(&self) -> &'a [u8] {
        &self.images[..usize::from(self.header.value_len)]
    }

    /// The bytes that the operation found where it wrote, if the record has them.
    pub fn found(&self) -> Option<&'a [u8]> {
        let at = (self.header.image_count() * self.header.image_len()) as usize;
        (self.header.flags & FLAG_FOUND != 0)
            .then(|| &self.images[at..at + usize::from(self.header.value_len)])
    }

    /// The bytes that were written, as offset from the address and values. One run unless masked.
    pub fn runs(&self) -> Runs<'a> {
        let len = usize::from(self.header.value_len);
        let other = if self.header.flags & FLAG_MASKED == 0 {
            0
        } else {
            len.next_multiple_of(8)
        };
        Runs {
            value: &self.images[..len],
            other: &self.images[other..other + len],
            at: 0,
        }
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Record")
            .field("header", &self.header)
            .field("stamp", &self.stamp)
            .field("is_tentative", &self.is_tentative)
            .field("address", &format_args!("{:#x?}", self.address))
            .field("value", &format_args!("{:02x?}", self.value()))
            .finish()
    }
}

/// Iterator over the bytes that a record says were written.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    value: &'a [u8],
    other: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Runs<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let same = |at: &usize| self.value[*at] == self.other[*at];
        let from = (self.at..self.value.len()).find(same)?;
        let to = (from..self.value.len())
            .find(|at| !same(at))
            .unwrap_or(self.value.len());
        self.at = to;
        Some((from, &self.value[from..to]))
    }
}

impl FusedIterator for Runs<'_> {}

/// Iterator over the records of a chunk, committed or not. Skips what was reserved and never
/// described. Stops after an error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
}

impl<'a> Records<'a> {
    /// Reads the chunk, or any part of it that begins with a record.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl<'a> Iterator for Records<'a> {
    /// A record, or the word that should have been a header and was none (or one of a record that
    /// is longer than what is left).
    type Item = Result<Record<'a>, u64>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let word = word_at(self.bytes, 0)?;
            if word == 0 {
                self.bytes = &self.bytes[8..];
                continue;
            }
            let bytes = core::mem::take(&mut self.bytes);
            let header = match Header::from_word(word) {
                Ok(header) => header,
                Err(word) => return Some(Err(word)),
            };
            let Some((this, rest)) = bytes.split_at_checked(header.record_len() as usize) else {
                return Some(Err(word));
            };
            self.bytes = rest;
            let has_address = header.flags & FLAG_ADDRESS != 0;
            let value_at = if has_address { VALUE_AT } else { ADDRESS_AT };
            let stamp = word_at(this, STAMP_AT as usize).unwrap_or(0);
            return Some(Ok(Record {
                header,
                stamp: stamp & !STAMP_TENTATIVE,
                is_tentative: stamp & STAMP_TENTATIVE != 0,
                address: if has_address {
                    word_at(this, ADDRESS_AT as usize)
                } else {
                    None
                },
                images: &this[value_at as usize..],
            }));
        }
    }
}

impl FusedIterator for Records<'_> {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{
        EventKind, FLAG_ADDRESS, FLAG_FOUND, FLAG_MASKED, Header, Records, STAMP_TENTATIVE, SiteId,
    };
    use std::vec::Vec;

    fn push(out: &mut Vec<u8>, header: Header, stamp: u64, address: Option<u64>, images: &[&[u8]]) {
        out.extend(header.word().to_le_bytes());
        out.extend(stamp.to_le_bytes());
        out.extend(address.into_iter().flat_map(u64::to_le_bytes));
        for image in images {
            out.extend(*image);
            out.resize(out.len().next_multiple_of(8), 0xee);
        }
    }

    #[test]
    fn every_kind_survives_its_code() {
        for kind in EventKind::ALL {
            let header = Header {
                kind,
                flags: 3,
                value_len: 1024,
                site: SiteId(0x8765_4321),
            };
            assert_eq!(Header::from_word(header.word()), Ok(header));
        }
        assert!(Header::from_word(18).is_err());
        assert!(Header::from_word(0).is_err());
    }

    #[test]
    fn records_gaps_and_masks() {
        let mut chunk = Vec::new();
        let fence = Header {
            kind: EventKind::Sfence,
            flags: 0,
            value_len: 0,
            site: SiteId(1),
        };
        let store = Header {
            kind: EventKind::StorePlain,
            flags: FLAG_ADDRESS,
            value_len: 3,
            site: SiteId(2),
        };
        let masked = Header {
            flags: FLAG_ADDRESS | FLAG_MASKED,
            value_len: 5,
            ..store
        };
        push(&mut chunk, fence, 10, None, &[]);
        chunk.resize(chunk.len() + 40, 0);
        push(&mut chunk, store, 0, Some(0x1000), &[&[1, 2, 3]]);
        push(
            &mut chunk,
            masked,
            12,
            Some(0x2000),
            &[&[0, 5, 6, 0, 7], &[255, 5, 6, 255, 7]],
        );
        chunk.resize(chunk.len() + 16, 0);
        let records: Vec<_> = Records::new(&chunk).map(Result::unwrap).collect();
        assert_eq!(records.len(), 3);
        assert_eq!(
            (records[0].header, records[0].stamp, records[0].address),
            (fence, 10, None)
        );
        assert_eq!((records[1].stamp, records[1].address), (0, Some(0x1000)));
        assert_eq!(records[1].runs().collect::<Vec<_>>(), [(0, &[1, 2, 3][..])]);
        assert_eq!(
            records[2].runs().collect::<Vec<_>>(),
            [(1, &[5, 6][..]), (4, &[7][..])]
        );
    }

    #[test]
    fn what_was_found_is_behind_the_value() {
        let mut chunk = Vec::new();
        let store = Header {
            kind: EventKind::StorePlain,
            flags: FLAG_ADDRESS | FLAG_FOUND,
            value_len: 3,
            site: SiteId(1),
        };
        let masked = Header {
            flags: store.flags | FLAG_MASKED,
            ..store
        };
        push(
            &mut chunk,
            store,
            1,
            Some(0x1000),
            &[&[1, 2, 3], &[7, 8, 9]],
        );
        push(
            &mut chunk,
            masked,
            2,
            Some(0x1000),
            &[&[1, 0, 3], &[1, 255, 3], &[4, 5, 6]],
        );
        push(
            &mut chunk,
            Header {
                flags: FLAG_ADDRESS,
                ..store
            },
            3,
            Some(0x1000),
            &[&[1, 2, 3]],
        );
        let seen: Vec<_> = Records::new(&chunk).map(Result::unwrap).collect();
        let found: Vec<_> = seen.iter().map(super::Record::found).collect();
        assert_eq!(found, [Some(&[7, 8, 9][..]), Some(&[4, 5, 6]), None]);
        assert_eq!(seen[1].runs().count(), 2);
        assert_eq!(store.found_at(), 32);
        assert_eq!(masked.found_at(), 40);
    }

    #[test]
    fn a_tentative_stamp_is_a_stamp() {
        let mut chunk = Vec::new();
        let header = Header {
            kind: EventKind::StoreLocked,
            flags: FLAG_ADDRESS,
            value_len: 8,
            site: SiteId(1),
        };
        for stamp in [STAMP_TENTATIVE | 7, 8] {
            push(&mut chunk, header, stamp, Some(0x1000), &[&[1; 8]]);
        }
        let seen: Vec<_> = Records::new(&chunk)
            .map(Result::unwrap)
            .map(|record| (record.stamp, record.is_tentative))
            .collect();
        assert_eq!(seen, [(7, true), (8, false)]);
    }

    #[test]
    fn garbage_is_an_error_and_the_end() {
        let mut chunk = Vec::new();
        chunk.extend(0xffu64.to_le_bytes());
        chunk.extend([0; 64]);
        let mut records = Records::new(&chunk);
        assert_eq!(records.next(), Some(Err(0xff)));
        assert_eq!(records.next(), None);
        let long = Header {
            kind: EventKind::StorePlain,
            flags: FLAG_ADDRESS,
            value_len: 64,
            site: SiteId(2),
        };
        assert_eq!(
            Records::new(&long.word().to_le_bytes()).next(),
            Some(Err(long.word()))
        );
    }
}
