//! An entry of `.eh_frame`, taken apart.

use crate::cursor::Cursor;

/// Encodings of addresses, as far as they are used for code on x86-64 Linux.
mod encoding {
    pub(super) const ABSOLUTE: u8 = 0x00;
    pub(super) const U32: u8 = 0x03;
    pub(super) const U64: u8 = 0x04;
    pub(super) const I32: u8 = 0x0b;
    pub(super) const I64: u8 = 0x0c;
    pub(super) const RELATIVE: u8 = 0x10;
    pub(super) const FORM: u8 = 0x0f;
    pub(super) const BASE: u8 = 0x70;
    pub(super) const OMITTED: u8 = 0xff;
}

/// A function's entry of the unwind table.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// First address of the function.
    pub start: u64,
    /// How many bytes it has.
    pub len_bytes: u64,
    pub(crate) code_factor: u64,
    pub(crate) data_factor: i64,
    pub(crate) return_register: u64,
    pub(crate) common_program: &'a [u8],
    pub(crate) program: &'a [u8],
    /// Whether it describes the frame that the kernel makes for a signal.
    pub is_signal_frame: bool,
}

/// Where the first address of the function is in an entry.
const START_AT: u64 = 8;

/// How far before the second word of an entry its common part begins; the first word of the entry
/// is its length. None for the end of the table, and for a common part.
pub fn cie_distance(entry: &[u8]) -> Option<u64> {
    let mut cursor = Cursor(entry);
    let len = cursor.u32()?;
    let distance = cursor.u32()?;
    (len != 0 && len != u32::MAX && distance != 0).then_some(distance.into())
}

/// The bytes of an entry behind its length.
fn body(entry: &[u8]) -> Option<Cursor<'_>> {
    let mut cursor = Cursor(entry);
    let len = cursor.u32()?;
    if len == 0 || len == u32::MAX {
        return None;
    }
    cursor.take(len as usize).map(Cursor)
}

/// What an encoding takes besides the value: `at` is the address of the number.
fn address(cursor: &mut Cursor<'_>, encoding: u8, at: u64) -> Option<u64> {
    let value = match encoding & encoding::FORM {
        encoding::ABSOLUTE | encoding::U64 | encoding::I64 => cursor.u64()?,
        encoding::U32 => cursor.u32()?.into(),
        encoding::I32 => i64::from(cursor.i32()?).cast_unsigned(),
        _ => return None,
    };
    match encoding & encoding::BASE {
        0 => Some(value),
        encoding::RELATIVE => Some(value.wrapping_add(at)),
        _ => None,
    }
}

impl<'a> Description<'a> {
    /// Takes an entry apart. Both slices begin with the length of their entry and may go on behind
    /// it; `at` is the address of the first byte of `entry`.
    pub fn new(entry: &'a [u8], at: u64, common: &'a [u8]) -> Option<Self> {
        let mut head = body(common)?;
        // Zero says that it is a common part.
        if head.u32()? != 0 {
            return None;
        }
        let version = head.u8()?;
        if version != 1 && version != 3 {
            return None;
        }
        let end = head.0.iter().position(|byte| *byte == 0)?;
        let augmentation = head.take(end)?;
        head.u8()?;
        let code_factor = head.uleb()?;
        let data_factor = head.sleb()?;
        let return_register = if version == 1 {
            head.u8()?.into()
        } else {
            head.uleb()?
        };
        let mut address_encoding = encoding::ABSOLUTE;
        let mut is_signal_frame = false;
        let has_lengths = augmentation.first() == Some(&b'z');
        if has_lengths {
            let len = head.uleb()?;
            let mut data = Cursor(head.take(usize::try_from(len).ok()?)?);
            for letter in &augmentation[1..] {
                match letter {
                    b'R' => address_encoding = data.u8()?,
                    b'S' => is_signal_frame = true,
                    b'L' => {
                        data.u8()?;
                    }
                    b'P' => {
                        let encoding = data.u8()?;
                        if encoding != encoding::OMITTED {
                            // Only its length matters; what it is relative to does not.
                            address(&mut data, encoding & encoding::FORM, 0)?;
                        }
                    }
                    // Protection of return addresses: nothing follows.
                    b'B' | b'G' => {}
                    _ => return None,
                }
            }
        } else if !augmentation.is_empty() {
            return None;
        }
        let common_program = head.0;

        let mut rest = body(entry)?;
        rest.u32()?;
        let start = address(&mut rest, address_encoding, at + START_AT)?;
        let len_bytes = address(&mut rest, address_encoding & encoding::FORM, 0)?;
        if has_lengths {
            let len = rest.uleb()?;
            rest.take(usize::try_from(len).ok()?)?;
        }
        Some(Self {
            start,
            len_bytes,
            code_factor,
            data_factor,
            return_register,
            common_program,
            program: rest.0,
            is_signal_frame,
        })
    }
}
