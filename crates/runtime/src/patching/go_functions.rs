//! The functions of a Go program, and where their callers are.
//!
//! The code of Go has no entries in `.eh_frame`. Its own runtime finds functions in a table that is always loaded, and
//! that says by how much each function has moved RSP at each instruction. The layout is the one of Go 1.18 and later
//! (`runtime/symtab.go` of Go describes it); a table of another layout is not used, and a warning says so.

use powerfail_unwind::{Cfa, RSP, Row};

use crate::platform::lock::Lock;

/// The first bytes of a table: a number of the layout, two zeros, the unit of code addresses, the length of a pointer.
const LAYOUT_1_18: [u8; 8] = [0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8];
const LAYOUT_1_20: [u8; 8] = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
/// A table begins at a multiple of this.
const ALIGNMENT: usize = 32;
/// Offsets in the head of a table.
const COUNT_AT: usize = 8;
const TEXT_AT: usize = 24;
const NUMBERS_AT: usize = 56;
const FUNCTIONS_AT: usize = 64;
/// Offset of the place of the table of stack depths, in the description of a function.
const DEPTHS_AT: usize = 16;
/// Where the flags of a function are, in its description: the layouts differ by one word.
const FLAGS_AT_1_18: usize = 37;
const FLAGS_AT_1_20: usize = 41;
/// The function has no caller.
const TOP_FRAME: u8 = 1;
/// The function sets RSP to something that the table does not say.
const SETS_STACK: u8 = 2;

/// A table of functions.
#[derive(Clone, Copy)]
pub(crate) struct GoTable {
    /// From its first byte to the end of its segment.
    bytes: &'static [u8],
}

/// The description of a function, by its address in a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GoFunction(u64);

/// The tables of all modules.
pub(crate) static TABLES: Lock<Vec<GoTable>> = Lock::new(Vec::new());

/// In the child after fork.
pub(crate) fn reset_after_fork() {
    TABLES.reset_after_fork();
}

impl GoTable {
    /// Finds the table in a segment that is not code, of a module that is loaded. `is_code` says whether an address is
    /// one of code.
    pub(crate) fn find(segment: &'static [u8], is_code: impl Fn(u64) -> bool) -> Option<Self> {
        let skipped = (segment.as_ptr() as usize).wrapping_neg() % ALIGNMENT;
        let mut rest = segment.get(skipped..)?;
        loop {
            if rest.starts_with(&LAYOUT_1_18) || rest.starts_with(&LAYOUT_1_20) {
                let table = Self { bytes: rest };
                // The bytes could be anything.
                if table.word(TEXT_AT).is_some_and(&is_code) {
                    return Some(table);
                }
            }
            rest = rest.get(ALIGNMENT..)?;
        }
    }

    fn start(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    fn word(&self, at: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn half_word(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Shows its functions in the order of addresses: from, to, description. What follows a function up to the next
    /// one belongs to it. From then on, [`GoFunction::row_at`] knows the table.
    pub(crate) fn functions(&self, mut visit: impl FnMut(u64, u64, GoFunction)) -> Option<()> {
        let count = usize::try_from(self.word(COUNT_AT)?).ok()?;
        let text = self.word(TEXT_AT)?;
        let first = usize::try_from(self.word(FUNCTIONS_AT)?).ok()?;
        for number in 0..count {
            let entry = first.checked_add(number.checked_mul(8)?)?;
            let start = text + u64::from(self.half_word(entry)?);
            let end = text + u64::from(self.half_word(entry.checked_add(8)?)?);
            let at = first.checked_add(self.half_word(entry + 4)? as usize)?;
            if end > start {
                visit(start, end, GoFunction(self.start() + at as u64));
            }
        }
        TABLES.with(|tables| {
            tables.retain(|table| table.start() != self.start());
            tables.push(*self);
        });
        Some(())
    }

    /// By how much a function, given by its offset, has moved RSP when it is about to execute `pc`.
    fn depth(&self, function: usize, pc: u64) -> Option<i32> {
        let start = self.word(TEXT_AT)? + u64::from(self.half_word(function)?);
        let offset = self.half_word(function.checked_add(DEPTHS_AT)?)?;
        if offset == 0 {
            return None;
        }
        let numbers = usize::try_from(self.word(NUMBERS_AT)?).ok()?;
        let mut rest = self.bytes.get(numbers.checked_add(offset as usize)?..)?;
        let (mut depth, mut at) = (-1_i32, start);
        loop {
            let change = number(&mut rest)?;
            if change == 0 && at != start {
                return None;
            }
            // The lowest bit is the sign.
            let sign = (change & 1).wrapping_neg();
            depth = depth.wrapping_add(((change >> 1) ^ sign).cast_signed());
            at += u64::from(number(&mut rest)?);
            if pc < at {
                return Some(depth);
            }
        }
    }

    fn flags(&self, function: usize) -> Option<u8> {
        let offset = if self.bytes.starts_with(&LAYOUT_1_18) {
            FLAGS_AT_1_18
        } else {
            FLAGS_AT_1_20
        };
        self.bytes.get(function.checked_add(offset)?).copied()
    }
}

impl GoFunction {
    /// Where the caller is, at an instruction of the function. `None`: there is none, or that is not known.
    pub(crate) fn row_at(self, pc: u64) -> Option<Row> {
        const WORD: i64 = 8;
        let holds = |table: &&GoTable| {
            let end = table.start() + table.bytes.len() as u64;
            (table.start()..end).contains(&self.0)
        };
        let table = TABLES.with(|tables| tables.iter().find(holds).copied())?;
        let function = usize::try_from(self.0 - table.start()).ok()?;
        if table.flags(function)? & (TOP_FRAME | SETS_STACK) != 0 {
            return None;
        }
        let depth = table.depth(function, pc)?;
        Some(Row {
            cfa: Cfa::Register {
                register: RSP,
                offset: i64::from(depth) + WORD,
            },
            // A C function that called Go, and whose frame is found by RBP, ends the stack.
            rbp: None,
            return_address: Some(-WORD),
        })
    }
}

/// A number in groups of seven bits, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for shift in (0..32).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
