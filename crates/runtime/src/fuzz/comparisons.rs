//! What the target compares: the words that its input could consist of.
//!
//! Where operands are recorded, the functions of the C library that compare are answered by the C library as
//! always, and before that what they are given is noted in the area that is shared with the host. What was
//! noted lately is not noted again. Everywhere else each of these functions is one jump to the original.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions, and read no more of their arguments than the originals may.
//! The area is mapped for good where operands are noted.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use powerfail_protocol::fuzz::{
    AREA_ADDRESS, COMPARISONS_AT, COMPARISONS_MAX, Comparison, OPERAND_MAX, flag,
};

use crate::fuzz;
use crate::libc::interpose;
use crate::patching::modules;

/// Shorter operands say nothing.
const OPERAND_MIN: usize = 2;
/// Longer ones are data, not words.
const LEN_MAX: usize = 256;

/// Whether operands are noted.
static ON: AtomicBool = AtomicBool::new(false);

/// A function that compares. `$note` is what is noted of its arguments, and `$early` does its work while the
/// original is not known: when the dynamic linker has not got that far.
macro_rules! compares {
    ($($name:ident, $original:literal, $note:path, $early:path;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                core::arch::naked_asm!(
                    "mov rax, [rip + {direct}]",
                    "test rax, rax",
                    "jz 2f",
                    "jmp rax",
                    "2:",
                    // Who called.
                    "mov r8, [rsp]",
                    "jmp {slow}",
                    direct = sym $name::DIRECT,
                    slow = sym $name::slow,
                )
            }

            mod $name {
                use super::*;

                type Original = extern "C" fn(usize, usize, usize, usize) -> usize;

                /// Where to go at once; zero if that is not known, or not wanted.
                pub(super) static DIRECT: AtomicUsize = AtomicUsize::new(0);
                static ADDRESS: AtomicUsize = AtomicUsize::new(0);

                pub(super) fn prepare(is_on: bool) {
                    let Some(address) = interpose::maybe_find(concat!($original, "\0")) else {
                        return;
                    };
                    ADDRESS.store(address as usize, Ordering::Relaxed);
                    if !is_on {
                        DIRECT.store(address as usize, Ordering::Relaxed);
                    }
                }

                pub(super) extern "C" fn slow(
                    first: usize,
                    second: usize,
                    third: usize,
                    fourth: usize,
                    caller: usize,
                ) -> usize {
                    let address = ADDRESS.load(Ordering::Relaxed);
                    // SAFETY: the arguments are those of the target's call, and the original, which follows, reads at
                    // least as much of them.
                    unsafe {
                        if address == 0 {
                            return $early(first, second, third, fourth);
                        }
                        if ON.load(Ordering::Relaxed) && !modules::is_own(caller as u64) {
                            $note(first, second, third, fourth);
                        }
                        // The C library has this function; it takes four arguments at most.
                        core::mem::transmute::<usize, Original>(address)(
                            first, second, third, fourth,
                        )
                    }
                }
            }
        )*

        /// The runtime begins: decides whether operands are noted.
        pub(crate) fn start() {
            let is_on = fuzz::has_flag(flag::COMPARISONS);
            ON.store(is_on, Ordering::Relaxed);
            $($name::prepare(is_on);)*
        }
    };
}

compares! {
    strcmp, "strcmp", note_strings, early::strcmp;
    strncmp, "strncmp", note_limited_strings, early::strncmp;
    strcasecmp, "strcasecmp", note_strings, early::strcasecmp;
    strncasecmp, "strncasecmp", note_limited_strings, early::strncasecmp;
    memcmp, "memcmp", note_memory, early::memcmp;
    bcmp, "bcmp", note_memory, early::memcmp;
    strstr, "strstr", note_string_sought, early::strstr;
    memmem, "memmem", note_memory_sought, early::memmem;
}

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
}

/// # Safety
/// The first two are strings.
unsafe fn note_strings(first: usize, second: usize, _: usize, _: usize) {
    // SAFETY: by the contract both are strings, so no byte behind the zero is read.
    unsafe { note_limited_strings(first, second, LEN_MAX, 0) };
}

/// # Safety
/// The first two are strings, or as long as the third says.
unsafe fn note_limited_strings(first: usize, second: usize, len: usize, _: usize) {
    // SAFETY: by the contract both are strings, or `len` bytes are readable.
    let (left, right) = unsafe {
        (
            Operand::read(first, len, true),
            Operand::read(second, len, true),
        )
    };
    note(&left, &right);
}

/// # Safety
/// The first two are as long as the third says.
unsafe fn note_memory(first: usize, second: usize, len: usize, _: usize) {
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
    note(&left, &right);
}

/// # Safety
/// The second one is a string.
unsafe fn note_string_sought(_: usize, sought: usize, _: usize, _: usize) {
    // SAFETY: by the contract it is a string, so no byte behind the zero is read.
    note(&Operand::NONE, &unsafe {
        Operand::read(sought, LEN_MAX, true)
    });
}

/// # Safety
/// The third is as long as the fourth says.
unsafe fn note_memory_sought(_: usize, _: usize, sought: usize, len: usize) {
    // SAFETY: by the contract `len` bytes are readable.
    note(&Operand::NONE, &unsafe {
        Operand::read(sought, len, false)
    });
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

fn hash_of(left: &Operand, right: &Operand) -> u32 {
    let bytes = left.bytes[..left.len].iter();
    let bytes = bytes.chain(&[0xff]).chain(&right.bytes[..right.len]);
    // Never zero, which is what nothing has.
    bytes.fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    }) | 1
}

fn note(left: &Operand, right: &Operand) {
    if left.len < OPERAND_MIN && right.len < OPERAND_MIN || !NOTED.is_new(hash_of(left, right)) {
        return;
    }
    let number = fuzz::area().comparisons.fetch_add(1, Ordering::Relaxed);
    let table = (AREA_ADDRESS + COMPARISONS_AT) as *mut Comparison;
    let comparison = Comparison {
        left_len: left.len as u8,
        right_len: right.len as u8,
        left: left.bytes,
        right: right.bytes,
    };
    // SAFETY: the area is mapped where operands are noted, and has room for so many.
    unsafe {
        table
            .add(number as usize % COMPARISONS_MAX)
            .write_volatile(comparison);
    }
}

/// Comparisons before anything is known: byte by byte.
mod early {
    /// # Safety
    /// The byte is there.
    unsafe fn byte(start: usize, at: usize) -> u8 {
        // SAFETY: by the contract the byte is readable.
        unsafe { ((start + at) as *const u8).read_volatile() }
    }

    /// # Safety
    /// There are so many bytes, up to a zero if that ends them.
    unsafe fn compare(
        first: usize,
        second: usize,
        len: usize,
        is_string: bool,
        change: fn(&u8) -> u8,
    ) -> usize {
        for at in 0..len {
            // SAFETY: by the contract both are readable up to `len`, of strings up to the zero, where the loop
            // returns.
            let (left, right) = unsafe { (byte(first, at), byte(second, at)) };
            let (left, right) = (change(&left), change(&right));
            if left != right {
                return (i64::from(left) - i64::from(right)) as usize;
            }
            if is_string && left == 0 {
                break;
            }
        }
        0
    }

    /// # Safety
    /// As the function of the C library.
    pub(super) unsafe fn strcmp(first: usize, second: usize, _: usize, _: usize) -> usize {
        // SAFETY: both are strings, as `compare` requires without a length.
        unsafe { compare(first, second, usize::MAX, true, |byte| *byte) }
    }

    /// # Safety
    /// As the function of the C library.
    pub(super) unsafe fn strncmp(first: usize, second: usize, len: usize, _: usize) -> usize {
        // SAFETY: both are strings or have `len` bytes, as `compare` requires.
        unsafe { compare(first, second, len, true, |byte| *byte) }
    }

    /// # Safety
    /// As the function of the C library.
    pub(super) unsafe fn strcasecmp(first: usize, second: usize, _: usize, _: usize) -> usize {
        // SAFETY: both are strings, as `compare` requires without a length.
        unsafe { compare(first, second, usize::MAX, true, u8::to_ascii_lowercase) }
    }

    /// # Safety
    /// As the function of the C library.
    pub(super) unsafe fn strncasecmp(first: usize, second: usize, len: usize, _: usize) -> usize {
        // SAFETY: both are strings or have `len` bytes, as `compare` requires.
        unsafe { compare(first, second, len, true, u8::to_ascii_lowercase) }
    }

    /// # Safety
    /// As the function of the C library.
    pub(super) unsafe fn memcmp(first: usize, second: usize, len: usize, _: usize) -> usize {
        // SAFETY: both have `len` bytes, as `compare` requires.
        unsafe { compare(first, second, len, false, |byte| *byte) }
    }

    /// # Safety
    /// A string.
    unsafe fn length(start: usize) -> usize {
        let mut len = 0;
        // SAFETY: by the contract it is a string, and the loop stops at its zero.
        while unsafe { byte(start, len) } != 0 {
            len += 1;
        }
        len
    }

    /// # Safety
    /// As the function of the C library.
    pub(super) unsafe fn strstr(text: usize, sought: usize, _: usize, _: usize) -> usize {
        // SAFETY: by the contract both are strings, so their lengths are how much is readable.
        unsafe { memmem(text, length(text), sought, length(sought)) }
    }

    /// # Safety
    /// As the function of the C library.
    pub(super) unsafe fn memmem(
        text: usize,
        len: usize,
        sought: usize,
        sought_len: usize,
    ) -> usize {
        if sought_len > len {
            return 0;
        }
        // SAFETY: `at + sought_len` is at most `len`, so all that is compared is readable.
        let is_there = |at: &usize| unsafe { memcmp(text + at, sought, sought_len, 0) } == 0;
        (0..=len - sought_len)
            .find(is_there)
            .map_or(0, |at| text + at)
    }
}
