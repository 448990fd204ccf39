//! What the dynamic linker does for each library when the target ends, though nothing is left to do.
//!
//! `exit` calls what was registered to be called then, in reverse order, and so at last what was registered first:
//! the dynamic linker, which calls the destructors of all modules. Most libraries only have the two that every
//! compiler gives them. One lets the C library call what this library has registered, and notes that it did; the
//! other does nothing. In a process that was just copied each library costs a few page faults for that.
//!
//! What a library has registered was called before, by `exit` itself, and what the destructors of others register
//! in the meantime `exit` calls afterwards. So nothing is missing if these two are left out when a process
//! ends, and in particular nothing that could touch a pool. A library that has a destructor of its own has a
//! longer table of them, and nothing changes for it. It is different if a library is unloaded: then what it has
//! registered is called by its destructor alone. So before anything is unloaded all is put back.
//!
//! # Safety
//!
//! Code is that of loaded modules, and is changed before `main` runs, by the only thread.
#![allow(unsafe_code, reason = "reads and changes code of loaded modules")]

use crate::libc::interpose;
use crate::patching::code;
use crate::patching::modules::{self, LoadedModule};
use crate::platform::lock::Lock;
use crate::platform::sys;

use super::is_active;

const DT_FINI: u64 = 13;
const DT_FINI_ARRAY: u64 = 26;
const DT_FINI_ARRAYSZ: u64 = 28;
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// A word in what the dynamic linker reads.
struct Word {
    address: u64,
    before: u64,
    /// What makes it leave the destructors out.
    instead: u64,
}

struct Words {
    all: Vec<Word>,
    are_written: bool,
}

static WORDS: Lock<Words> = Lock::new(Words {
    all: Vec::new(),
    are_written: false,
});

/// What is called instead.
extern "C" fn nothing() {}

/// The code at an address, without what marks it as one that is jumped to.
fn code_at(module: &LoadedModule, address: u64) -> &'static [u8] {
    const ENOUGH: u64 = 64;
    let len = module
        .segment_end(address)
        .map_or(0, |end| ENOUGH.min(end - address));
    // SAFETY: code of a loaded module.
    let code = unsafe { code::view(address, len) };
    code.strip_prefix(&ENDBR).unwrap_or(code)
}

/// Any byte, in a pattern.
const ANY: i16 = -1;

/// Whether code begins so.
fn begins(code: &[u8], pattern: &[i16]) -> bool {
    code.len() >= pattern.len()
        && code
            .iter()
            .zip(pattern)
            .all(|(byte, wanted)| *wanted == ANY || *wanted == i16::from(*byte))
}

/// Whether code is the destructor that compilers put into each library: unless a byte says that this was done,
/// `__cxa_finalize` is called, if that is there, and a function that gives back what transactional memory needs.
fn is_of_compiler(code: &'static [u8], finalize: u64) -> bool {
    /// Where the distance of the word with the address of `__cxa_finalize` is.
    const WORD_AT: usize = 13;
    #[rustfmt::skip]
    const PATTERN: [i16; 49] = [
        0x80, 0x3d, ANY, ANY, ANY, ANY, 0,              // cmp byte [done], 0
        0x75, ANY,                                      // jne
        0x55,                                           // push rbp
        0x48, 0x83, 0x3d, ANY, ANY, ANY, ANY, 0,        // cmp qword [word], 0
        0x48, 0x89, 0xe5,                               // mov rbp, rsp
        0x74, 0x0c,                                     // je
        0x48, 0x8b, 0x3d, ANY, ANY, ANY, ANY,           // mov rdi, [handle]
        0xe8, ANY, ANY, ANY, ANY,                       // call __cxa_finalize
        0xe8, ANY, ANY, ANY, ANY,                       // call deregister_tm_clones
        0xc6, 0x05, ANY, ANY, ANY, ANY, 1,              // mov byte [done], 1
        0x5d,                                           // pop rbp
        0xc3,                                           // ret
    ];
    if !begins(code, &PATTERN) {
        return false;
    }
    let mut distance = [0; 4];
    distance.copy_from_slice(&code[WORD_AT..WORD_AT + 4]);
    let behind = code.as_ptr() as u64 + WORD_AT as u64 + 5;
    let word = behind.wrapping_add_signed(i32::from_le_bytes(distance).into());
    sys::read_own_word(word) == Some(finalize)
}

/// Whether code returns at once.
fn does_nothing(code: &[u8]) -> bool {
    // sub rsp, 8; add rsp, 8; ret
    code.starts_with(&[0x48, 0x83, 0xec, 8, 0x48, 0x83, 0xc4, 8, 0xc3])
}

/// The words of a library that has no destructors of its own: for its table of them, and for the single one.
fn words_of(module: &LoadedModule, finalize: u64) -> Option<[Option<Word>; 2]> {
    let entry = |wanted| module.dynamic().find(|(_, [tag, _])| *tag == wanted);
    let (_, [_, array]) = entry(DT_FINI_ARRAY)?;
    let (len_at, [_, len]) = entry(DT_FINI_ARRAYSZ)?;
    let only = sys::read_own_word(module.base() + array)?;
    if len != 8 || !is_of_compiler(code_at(module, only), finalize) {
        return None;
    }
    let table = Word {
        address: len_at + 8,
        before: len,
        instead: 0,
    };
    let single = match entry(DT_FINI) {
        Some((at, [_, single])) if does_nothing(code_at(module, module.base() + single)) => {
            Some(Word {
                address: at + 8,
                before: single,
                instead: (nothing as *const () as u64).wrapping_sub(module.base()),
            })
        }
        Some(_) => return None,
        None => None,
    };
    Some([Some(table), single])
}

/// Looks for such libraries.
pub(super) fn find() {
    let Some(finalize) = interpose::look_up(c"__cxa_finalize") else {
        return;
    };
    modules::for_each(|module| {
        if module.is_library()
            && let Some(found) = words_of(module, finalize)
        {
            WORDS.with(|words| words.all.extend(found.into_iter().flatten()));
        }
    });
}

/// Leaves these destructors out, in this process and in all that it forks.
pub(super) fn silence() {
    WORDS.with(|words| {
        words.are_written = true;
        for word in &words.all {
            code::write(word.address, &word.instead.to_le_bytes());
        }
    });
}

/// Something is about to be unloaded.
pub(crate) fn before_unloading() {
    if !is_active() {
        return;
    }
    WORDS.with(|words| {
        if core::mem::take(&mut words.are_written) {
            for word in &words.all {
                code::write(word.address, &word.before.to_le_bytes());
            }
        }
    });
}
