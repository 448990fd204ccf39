//! What is noted of the arguments of observed functions, in the area that is shared with the host. What was noted
//! lately is not noted again.
//!
//! # Safety
//!
//! No function reads more of its arguments than the function of the C library may. The area is mapped for good where
//! notes are made.
#![allow(unsafe_code, reason = "reads arguments of functions of the C library")]

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use powerfail_protocol::fuzz::{
    AREA_ADDRESS, OBSERVATIONS_AT, OBSERVATIONS_MAX, OPERAND_MAX, Observation, ObservedKind,
};

use crate::fuzz;

/// Shorter operands say nothing.
const OPERAND_MIN: usize = 2;
/// Longer ones are data, not words.
const LEN_MAX: usize = 256;

/// An operand, cut where it gets too long.
struct Operand {
    bytes: [u8; OPERAND_MAX],
    len: usize,
}

impl Operand {
    const NONE: Self = Self {
        bytes: [0; OPERAND_MAX],
        len: 0,
    };

    /// # Safety
    /// There are `len` bytes, up to a zero if `is_string`.
    unsafe fn read(start: usize, len: usize, is_string: bool) -> Self {
        let mut operand = Self::NONE;
        for at in 0..len.min(OPERAND_MAX) {
            // SAFETY: by the contract `len` bytes are readable, of a string at least those up to its zero, where the
            // loop stops.
            let byte = unsafe { ((start + at) as *const u8).read() };
            if is_string && byte == 0 {
                break;
            }
            operand.bytes[at] = byte;
            operand.len = at + 1;
        }
        operand
    }

    /// One byte, unless it is zero.
    fn of_byte(byte: usize) -> Self {
        let mut operand = Self::NONE;
        operand.bytes[0] = byte as u8;
        operand.len = usize::from(byte as u8 != 0);
        operand
    }

    /// # Safety
    /// It is a string, or null.
    unsafe fn string(start: usize) -> Self {
        if start == 0 {
            return Self::NONE;
        }
        // SAFETY: by the contract it is a string, so no byte behind the zero is read.
        unsafe { Self::read(start, LEN_MAX, true) }
    }
}

/// # Safety
/// The first two are strings.
pub(super) unsafe fn compared_strings(first: usize, second: usize, _: usize, _: usize) {
    // SAFETY: by the contract both are strings, so no byte behind the zero is read.
    unsafe { compared_limited_strings(first, second, LEN_MAX, 0) };
}

/// # Safety
/// The first two are strings, or as long as the third says.
pub(super) unsafe fn compared_limited_strings(first: usize, second: usize, len: usize, _: usize) {
    // SAFETY: by the contract both are strings, or `len` bytes are readable.
    let (left, right) = unsafe {
        (
            Operand::read(first, len, true),
            Operand::read(second, len, true),
        )
    };
    note(ObservedKind::Compared, &left, &right);
}

/// # Safety
/// The first two are as long as the third says.
pub(super) unsafe fn compared_memory(first: usize, second: usize, len: usize, _: usize) {
    if !(OPERAND_MIN..=LEN_MAX).contains(&len) {
        return;
    }
    // SAFETY: by the contract `len` bytes are readable at both addresses.
    let (left, right) = unsafe {
        (
            Operand::read(first, len, false),
            Operand::read(second, len, false),
        )
    };
    note(ObservedKind::Compared, &left, &right);
}

/// # Safety
/// The first two are strings.
pub(super) unsafe fn sought_string(text: usize, sought: usize, _: usize, _: usize) {
    // SAFETY: by the contract both are strings.
    let (text, sought) = unsafe { (Operand::string(text), Operand::string(sought)) };
    note(ObservedKind::Sought, &text, &sought);
}

/// # Safety
/// The first is as long as the second says, and the third as the fourth says.
pub(super) unsafe fn sought_memory(text: usize, text_len: usize, sought: usize, len: usize) {
    // SAFETY: by the contract so many bytes are readable.
    let (text, sought) = unsafe {
        (
            Operand::read(text, text_len, false),
            Operand::read(sought, len, false),
        )
    };
    note(ObservedKind::Sought, &text, &sought);
}

/// # Safety
/// The first is a string or null, the second a string.
pub(super) unsafe fn split_string(text: usize, delimiters: usize, _: usize, _: usize) {
    // SAFETY: by the contract they are strings, the first one perhaps null.
    let (text, delimiters) = unsafe { (Operand::string(text), Operand::string(delimiters)) };
    note(ObservedKind::Split, &text, &delimiters);
}

/// # Safety
/// The first points to a string or to null, the second is a string.
pub(super) unsafe fn split_pointed(text: usize, delimiters: usize, _: usize, _: usize) {
    // SAFETY: by the contract a pointer can be read there.
    let text = unsafe { (text as *const usize).read_unaligned() };
    // SAFETY: by the contract it is a string or null, and the second is a string.
    unsafe { split_string(text, delimiters, 0, 0) };
}

/// # Safety
/// The first is a string.
pub(super) unsafe fn split_at_byte(text: usize, byte: usize, _: usize, _: usize) {
    // SAFETY: by the contract it is a string.
    let text = unsafe { Operand::string(text) };
    note(ObservedKind::Split, &text, &Operand::of_byte(byte));
}

/// # Safety
/// The first is as long as the third says, or has the byte.
pub(super) unsafe fn split_memory_at_byte(text: usize, byte: usize, len: usize, _: usize) {
    let mut whole = Operand::NONE;
    for at in 0..len.min(OPERAND_MAX) {
        // SAFETY: by the contract the bytes up to `len` or up to the one that is sought are readable.
        let read = unsafe { ((text + at) as *const u8).read() };
        whole.bytes[at] = read;
        whole.len = at + 1;
        if read == byte as u8 {
            break;
        }
    }
    note(ObservedKind::Split, &whole, &Operand::of_byte(byte));
}

/// # Safety
/// The first is a string.
pub(super) unsafe fn number(text: usize, _: usize, _: usize, _: usize) {
    // SAFETY: by the contract it is a string.
    let text = unsafe { Operand::string(text) };
    note(ObservedKind::Number, &text, &Operand::NONE);
}

/// # Safety
/// The first two are strings.
pub(super) unsafe fn scanned_string(text: usize, format: usize, _: usize, _: usize) {
    // SAFETY: by the contract both are strings.
    let (text, format) = unsafe { (Operand::string(text), Operand::string(format)) };
    note(ObservedKind::Scanned, &text, &format);
}

/// # Safety
/// The second is a string.
pub(super) unsafe fn scanned_stream(_: usize, format: usize, _: usize, _: usize) {
    // SAFETY: by the contract it is a string.
    unsafe { scanned_input(format, 0, 0, 0) };
}

/// # Safety
/// The first is a string.
pub(super) unsafe fn scanned_input(format: usize, _: usize, _: usize, _: usize) {
    // SAFETY: by the contract it is a string.
    let format = unsafe { Operand::string(format) };
    note(ObservedKind::Scanned, &Operand::NONE, &format);
}

/// # Safety
/// The third is a string.
pub(super) unsafe fn options(_: usize, _: usize, letters: usize, _: usize) {
    // SAFETY: by the contract it is a string.
    let letters = unsafe { Operand::string(letters) };
    note(ObservedKind::Options, &Operand::NONE, &letters);
}

/// What was noted lately, by hashes. Races lose or repeat a note, no more.
struct Lately(UnsafeCell<[u32; LATELY]>);

const LATELY: usize = 512;

// SAFETY: words that are read and written one by one; whatever is there is a number.
unsafe impl Sync for Lately {}

static NOTED: Lately = Lately(UnsafeCell::new([0; LATELY]));

impl Lately {
    /// Whether a hash is new; it is not from now on.
    fn is_new(&self, hash: u32) -> bool {
        let place = self.0.get().cast::<u32>();
        let place = place.wrapping_add(hash as usize % LATELY);
        // SAFETY: inside of the array.
        unsafe {
            let is_new = place.read_volatile() != hash;
            if is_new {
                place.write_volatile(hash);
            }
            is_new
        }
    }
}

fn hash_of(kind: ObservedKind, text: &Operand, other: &Operand) -> u32 {
    let bytes = text.bytes[..text.len].iter();
    let bytes = bytes.chain(&[0xff]).chain(&other.bytes[..other.len]);
    // Never zero, which is what nothing has.
    bytes
        .chain(&[kind as u8])
        .fold(0x811c_9dc5u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
        | 1
}

fn note(kind: ObservedKind, text: &Operand, other: &Operand) {
    let says_something = match kind {
        ObservedKind::Split => other.len > 0,
        _ => text.len >= OPERAND_MIN || other.len >= OPERAND_MIN,
    };
    if !says_something || !NOTED.is_new(hash_of(kind, text, other)) {
        return;
    }
    let number = fuzz::area().observations.fetch_add(1, Ordering::Relaxed);
    let table = (AREA_ADDRESS + OBSERVATIONS_AT) as *mut Observation;
    let observation = Observation {
        kind: kind as u8,
        text_len: text.len as u8,
        other_len: other.len as u8,
        spare: 0,
        text: text.bytes,
        other: other.bytes,
    };
    // SAFETY: the area is mapped where notes are made, and has room for so many.
    unsafe {
        table
            .add(number as usize % OBSERVATIONS_MAX)
            .write_volatile(observation);
    }
}
