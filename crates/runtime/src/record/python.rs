//! The lines of a Python program on a call stack, in place of the functions of its interpreter.
//!
//! `CPython` keeps its own call stack in memory. From the state of the thread, a chain leads over the calls of the
//! interpreter's loop, each of which has a record in its C stack frame, to the frames of the Python functions that it
//! executes, and from a frame to its code: file, function, and a table from instructions to lines. Nothing is called:
//! everything is read, and only if it is mapped. The layouts are those of `CPython` 3.11 to 3.13; other versions are left
//! alone. From 3.12 on, each call of the loop has a frame of its own, which lies in its C stack frame and stands at the end
//! of those that it executes; from 3.13 on there are no records.
//!
//! A Python function is shown to the host as a module whose offsets are lines. Its address is made of a hash of its
//! name, so that it is the same in every process and every run ([`FUNCTION`]).
//!
//! What a stack depended on can be checked again without asking whether it is mapped: the record of the loop lies in
//! the C stack, at the same place as long as the C stack is the same (from 3.13 on, `_PyRuntime` leads to the thread), and it
//! leads to the frame that is executed now, which leads to its caller. So each check has been justified by the ones before it.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::BTreeSet;

use powerfail_protocol::message::{FUNCTION, FUNCTION_LINES, MessageKind};
use powerfail_protocol::stack::Check;
use powerfail_unwind::python_line;

use crate::host;
use crate::patching::modules::LoadedModule;
use crate::platform::sys;

/// Where a version of `CPython` keeps what is read.
struct Layout {
    /// Major and minor.
    version: u64,
    /// Offset in `_PyRuntime`.
    interpreters: u64,
    /// Offsets in interpreters and thread states.
    next_interpreter: u64,
    threads: u64,
    thread_id: u64,
    /// Where a thread state leads to the frame that it executes.
    current: Current,
    /// Words of a frame.
    frame_code: usize,
    frame_previous: usize,
    /// What the word [`FRAME_FLAGS`] of a frame says.
    boundary: Boundary,
    /// The word of a code object with its first line, and the bit where that begins.
    first_line: (usize, u32),
    /// Offset in a code object.
    instructions: u64,
    /// Where the characters of strings begin: ASCII, and others.
    ascii_text: u64,
    other_text: u64,
}

enum Current {
    /// Over a record in the C stack frame of the interpreter's loop; the offset of the frame in it. The previous
    /// record follows.
    Record(u64),
    /// Directly.
    Frame,
}

enum Boundary {
    /// The loop was called for this frame, whose bits say so.
    Entry(u64),
    /// The frame stands for a call of the loop, whose C stack frame it lies in, and for no function. These bits have
    /// this value then.
    Own(u64, u64),
}

const IN_C_STACK: Boundary = Boundary::Own(0xff << 48, 3 << 48);

static LAYOUTS: [Layout; 3] = [
    Layout {
        version: 0x030b,
        interpreters: 40,
        next_interpreter: 0,
        threads: 16,
        thread_id: 152,
        current: Current::Record(8),
        frame_code: 4,
        frame_previous: 6,
        boundary: Boundary::Entry(0xff << 32),
        first_line: (9, 0),
        instructions: 184,
        ascii_text: 48,
        other_text: 72,
    },
    Layout {
        version: 0x030c,
        interpreters: 40,
        next_interpreter: 0,
        threads: 72,
        thread_id: 136,
        current: Current::Record(0),
        frame_code: 0,
        frame_previous: 1,
        boundary: IN_C_STACK,
        first_line: (8, 32),
        instructions: 192,
        ascii_text: 40,
        other_text: 56,
    },
    Layout {
        version: 0x030d,
        interpreters: 632,
        next_interpreter: 7264,
        threads: 7344,
        thread_id: 152,
        current: Current::Frame,
        frame_code: 0,
        frame_previous: 1,
        boundary: IN_C_STACK,
        first_line: (8, 32),
        instructions: 200,
        ascii_text: 40,
        other_text: 56,
    },
];

/// From 3.13 on, `_PyRuntime` begins with offsets for debuggers, marked by a word: those of structures that are not the
/// same in each release are taken from there. A build without the global lock has others in other structures, too.
const OFFSETS_FROM: u64 = 0x030d;
const OFFSETS_MARK: u64 = u64::from_le_bytes(*b"xdebugpy");
const OFFSETS_WORDS: usize = 10;
const OFFSETS_FREE_THREADED: usize = 2;
const OFFSETS_INTERPRETERS: usize = 5;
const OFFSETS_NEXT: usize = 8;
const OFFSETS_THREADS: usize = 9;

/// No more frames are read.
const DEPTH_MAX: usize = 256;
/// No more threads are looked at.
const THREADS_MAX: usize = 4096;
/// Longer names are cut.
const NAME_MAX: usize = 1024;
/// Longer tables of lines are not read.
const TABLE_MAX: usize = 1 << 20;

/// Offsets in thread states.
const NEXT_THREAD: u64 = 8;
const LOOP_RECORD: u64 = 56;
const CURRENT_FRAME: u64 = 72;
/// Words of a frame.
const FRAME_INSTRUCTION: usize = 7;
const FRAME_FLAGS: usize = 8;
const FRAME_WORDS: usize = 9;
/// Words of a code object.
const CODE_TYPE: usize = 1;
const CODE_FILE: usize = 14;
const CODE_FUNCTION: usize = 16;
const CODE_LINES: usize = 17;
const CODE_WORDS: usize = 18;
/// Offsets in objects with bytes and in strings, and bits of the word that says how a string is stored.
const LENGTH: u64 = 16;
const BYTES: u64 = 32;
const STORAGE_WORD: usize = 4;
const IS_COMPACT: u64 = 1 << 5;
const IS_ASCII: u64 = 1 << 6;

/// `_PyRuntime`, the type of code objects, and the addresses of the module that has them: zero if there is no
/// interpreter.
static RUNTIME: AtomicU64 = AtomicU64::new(0);
/// Which of [`LAYOUTS`] it has, and the offsets of `interpreters`, `next_interpreter` and `threads`.
static LAYOUT: AtomicUsize = AtomicUsize::new(0);
static OFFSETS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static CODE: AtomicU64 = AtomicU64::new(0);
static FROM: AtomicU64 = AtomicU64::new(0);
static TO: AtomicU64 = AtomicU64::new(0);

/// Looks whether a module that was loaded is an interpreter.
pub(crate) fn look_at(module: &LoadedModule) {
    let found = module
        .address_of(c"_PyRuntime")
        .zip(module.address_of(c"PyCode_Type"))
        .zip(module.address_of(c"Py_Version"));
    let Some(((runtime, code), version)) = found else {
        return;
    };
    let Some(version) = sys::read_own_word(version) else {
        return;
    };
    let index = LAYOUTS.iter().position(|it| it.version == version >> 16);
    let Some(index) = index else { return };
    let Some(offsets) = offsets(runtime, &LAYOUTS[index]) else {
        return;
    };
    for (to, offset) in OFFSETS.iter().zip(offsets) {
        to.store(offset, Ordering::Relaxed);
    }
    LAYOUT.store(index, Ordering::Relaxed);
    let (from, to) = module.range();
    CODE.store(code, Ordering::Relaxed);
    FROM.store(from, Ordering::Relaxed);
    TO.store(to, Ordering::Relaxed);
    RUNTIME.store(runtime, Ordering::Release);
}

/// The offsets of `interpreters`, `next_interpreter` and `threads`, if this is a build whose layout is known.
fn offsets(runtime: u64, layout: &Layout) -> Option<[u64; 3]> {
    if layout.version < OFFSETS_FROM {
        return Some([layout.interpreters, layout.next_interpreter, layout.threads]);
    }
    let read: [u64; OFFSETS_WORDS] = words(runtime)?;
    (read[0] == OFFSETS_MARK && read[OFFSETS_FREE_THREADED] == 0)
        .then(|| [OFFSETS_INTERPRETERS, OFFSETS_NEXT, OFFSETS_THREADS].map(|word| read[word]))
}

fn layout() -> &'static Layout {
    &LAYOUTS[LAYOUT.load(Ordering::Relaxed)]
}

/// Whether there is an interpreter whose frames can be read.
pub(super) fn is_loaded() -> bool {
    RUNTIME.load(Ordering::Acquire) != 0
}

/// Whether an address is one of the interpreter's own code.
pub(super) fn is_interpreter(address: u64) -> bool {
    (FROM.load(Ordering::Relaxed)..TO.load(Ordering::Relaxed)).contains(&address)
}

/// Whether an address is that of a line of a Python function.
pub(super) const fn is_line(address: u64) -> bool {
    address >> 60 == FUNCTION >> 60
}

/// The Python frames of the calling thread.
#[derive(Default)]
pub(super) struct PythonStack {
    /// The calls of the interpreter's loop, innermost first: an address in the C stack frame of the call, and how many
    /// of the lines belong to this call and those inside of it.
    pub(super) loops: Vec<(u64, usize)>,
    /// The lines, innermost first, as addresses.
    pub(super) lines: Vec<u64>,
    /// What the stack depends on, besides the C stack. To be checked in this order.
    pub(super) checks: Vec<Check>,
    /// Functions on it that the host does not know.
    new: Vec<Function>,
    known: BTreeSet<u64>,
}

struct Function {
    address: u64,
    /// The function, then the file.
    text: Vec<u8>,
    name_len: usize,
}

impl PythonStack {
    /// Reads the stack of the calling thread.
    pub(super) fn read(&mut self) {
        self.loops.clear();
        self.lines.clear();
        self.checks.clear();
        self.new.clear();
        // What was read before something was not as expected is right.
        let layout = layout();
        let _ = match layout.boundary {
            Boundary::Entry(bits) => self.read_records(layout, bits),
            Boundary::Own(bits, value) => self.read_frames(layout, bits, value),
        };
    }

    /// Nothing of what was read is on the stack that was walked.
    pub(super) fn forget(&mut self) {
        self.new.clear();
    }

    /// Follows the records of the loops, and from each the frames that it executes.
    fn read_records(&mut self, layout: &Layout, entry: u64) -> Option<()> {
        let Current::Record(offset) = layout.current else {
            return None;
        };
        let mut record = sys::read_own_word(self.thread_state()? + LOOP_RECORD)?;
        loop {
            let [mut frame, previous] = words(record.checked_add(offset)?)?;
            if previous == 0 {
                // The outermost record belongs to no call.
                return None;
            }
            if self.loops.is_empty() {
                self.checks.push(Check {
                    address: record + offset,
                    value: frame,
                });
            }
            loop {
                if self.lines.len() >= DEPTH_MAX {
                    return None;
                }
                let read: [u64; FRAME_WORDS] = words(frame)?;
                let line = self.line(layout, read[layout.frame_code], read[FRAME_INSTRUCTION])?;
                self.check_words(frame, &read, [FRAME_INSTRUCTION, layout.frame_previous]);
                self.lines.push(line);
                frame = read[layout.frame_previous];
                if read[FRAME_FLAGS] & entry != 0 {
                    break;
                }
            }
            self.loops.push((record, self.lines.len()));
            record = previous;
        }
    }

    /// Follows the frames, among which are those that stand for calls of the loop.
    fn read_frames(&mut self, layout: &Layout, bits: u64, value: u64) -> Option<()> {
        let thread = self.thread_state()?;
        let address = match layout.current {
            Current::Record(offset) => {
                let record = sys::read_own_word(thread + LOOP_RECORD)?;
                record.checked_add(offset)?
            }
            Current::Frame => thread + CURRENT_FRAME,
        };
        let mut frame = sys::read_own_word(address)?;
        self.checks.push(Check {
            address,
            value: frame,
        });
        for _ in 0..2 * DEPTH_MAX {
            let read: [u64; FRAME_WORDS] = words(frame)?;
            if read[FRAME_FLAGS] & bits == value {
                self.check_words(frame, &read, [layout.frame_previous]);
                self.loops.push((frame, self.lines.len()));
            } else {
                self.check_words(frame, &read, [FRAME_INSTRUCTION, layout.frame_previous]);
                // Frames that the interpreter makes for itself, around the constructor of a class, have no line.
                let line = self.line(layout, read[layout.frame_code], read[FRAME_INSTRUCTION]);
                self.lines.extend(line);
            }
            frame = read[layout.frame_previous];
        }
        None
    }

    fn check_words<const N: usize>(&mut self, frame: u64, read: &[u64], words: [usize; N]) {
        self.checks.extend(words.map(|word| Check {
            address: frame + 8 * word as u64,
            value: read[word],
        }));
    }

    /// The state that the interpreter has of the calling thread. If that leads to the frame without a record in the C
    /// stack, the way to it is checked as well: all of it begins in memory that is always mapped.
    fn thread_state(&mut self) -> Option<u64> {
        let own = sys::thread_pointer();
        let [interpreters, next_interpreter, threads] =
            core::array::from_fn(|index| OFFSETS[index].load(Ordering::Relaxed));
        let is_checked = matches!(layout().current, Current::Frame);
        let mut left = THREADS_MAX;
        let mut follow = |address: u64| {
            let value = sys::read_own_word(address)?;
            if is_checked {
                self.checks.push(Check { address, value });
            }
            Some(value)
        };
        let mut interpreter = follow(RUNTIME.load(Ordering::Acquire) + interpreters)?;
        while interpreter != 0 {
            let mut thread = follow(interpreter.checked_add(threads)?)?;
            while thread != 0 {
                left = left.checked_sub(1)?;
                if sys::read_own_word(thread.checked_add(layout().thread_id)?)? == own {
                    return Some(thread);
                }
                thread = follow(thread + NEXT_THREAD)?;
            }
            interpreter = follow(interpreter + next_interpreter)?;
        }
        None
    }

    /// The line of an instruction, as an address.
    fn line(&mut self, layout: &Layout, code: u64, instruction: u64) -> Option<u64> {
        let read: [u64; CODE_WORDS] = words(code)?;
        if read[CODE_TYPE] != CODE.load(Ordering::Relaxed) {
            return None;
        }
        let mut text = string(read[CODE_FUNCTION])?;
        let name_len = text.len();
        text.extend(string(read[CODE_FILE])?);
        let number = hash(&text, name_len) % (1 << 40);
        let address = FUNCTION | (number * FUNCTION_LINES);
        if !self.known.contains(&address) {
            self.new.push(Function {
                address,
                text,
                name_len,
            });
        }
        let table = read[CODE_LINES];
        let len = usize::try_from(sys::read_own_word(table.checked_add(LENGTH)?)?).ok()?;
        if len > TABLE_MAX {
            return None;
        }
        let table = bytes(table.checked_add(BYTES)?, len)?;
        let executed = instruction.saturating_sub(code.checked_add(layout.instructions)?);
        let (word, bit) = layout.first_line;
        let line = python_line(&table, executed, (read[word] >> bit) as u32);
        Some(address | u64::from(line).min(FUNCTION_LINES - 1))
    }

    /// Tells the host of the functions that it does not know.
    pub(super) fn tell(&mut self) {
        for function in self.new.drain(..) {
            if self.known.insert(function.address) {
                let name_len = function.name_len as u64;
                let words = [function.address, FUNCTION_LINES, 0, name_len, 0];
                host::send(MessageKind::Module, words, &function.text, None);
            }
        }
    }
}

/// Words of memory, if they are mapped.
fn words<const N: usize>(address: u64) -> Option<[u64; N]> {
    // What is added to an address does not wrap: no address of a program is that high.
    address.checked_add(1 << 20)?;
    let mut words = [0; N];
    sys::read_own_words(address, &mut words).then_some(words)
}

/// Bytes of memory, if they are mapped.
fn bytes(address: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    (len == 0 || sys::read_own_bytes(address, &mut bytes)).then_some(bytes)
}

/// A string, in UTF-8.
fn string(address: u64) -> Option<Vec<u8>> {
    let head: [u64; STORAGE_WORD + 1] = words(address)?;
    let storage = head[STORAGE_WORD];
    let len = usize::try_from(head[LENGTH as usize / 8]).ok()?;
    let len = len.min(NAME_MAX);
    if storage & IS_COMPACT == 0 {
        return None;
    }
    if storage & IS_ASCII != 0 {
        return bytes(address + layout().ascii_text, len);
    }
    // One, two or four bytes for each character.
    let width = (storage >> 2 & 7) as usize;
    if ![1, 2, 4].contains(&width) {
        return None;
    }
    let mut text = String::new();
    for unit in bytes(address + layout().other_text, len * width)?.chunks_exact(width) {
        let number = unit
            .iter()
            .rev()
            .fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        text.push(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    let mut text = text.into_bytes();
    text.truncate(NAME_MAX);
    Some(text)
}

/// FNV-1a of a function and its file.
fn hash(text: &[u8], name_len: usize) -> u64 {
    let (name, file) = text.split_at(name_len);
    let bytes = name.iter().chain(&[0]).chain(file);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
