//! The calls that led to a load.
//!
//! # Safety
//!
//! Only the stack of the main thread is read, between the stack pointer and its end, where everything is mapped.
#![allow(unsafe_code, reason = "reads the stack of the recovery")]

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use powerfail_unwind::{Cfa, RBP};

use crate::libc::interpose;
use crate::patching::modules::{self, Function, LoadedModule, Modules};
use crate::platform::lock::Lock;
use crate::platform::sys;
use crate::record::call_stacks::{self, Registers};

/// What is loaded. Made when a pool is first used, because handlers must not ask the dynamic linker.
static MODULES: Lock<Option<Modules>> = Lock::new(None);

/// The highest address of the main thread's stack.
static MAIN_STACK_END: AtomicU64 = AtomicU64::new(0);

/// The process has started.
pub(super) fn begin() {
    MAIN_STACK_END.store(interpose::main_stack_end(), Ordering::Relaxed);
}

/// In a copy of the recovery that it has made itself.
pub(super) fn reset_after_fork() {
    MODULES.reset_after_fork();
}

/// Looks at all modules that are new.
pub(super) fn prepare() {
    modules::for_each(|module| {
        MODULES.with(|modules| {
            let modules = modules.get_or_insert_with(Modules::default);
            if !modules.knows(module) {
                modules.add(module);
            }
        });
    });
}

/// The function that an address lies in.
pub(super) fn function_around(address: u64) -> Option<Function> {
    MODULES.with(|modules| modules.as_ref()?.function_at(address))
}

/// The function that an address lies in: from, to.
pub(super) fn function_at(address: u64) -> Option<(u64, u64)> {
    function_around(address).map(|function| (function.start, function.end))
}

/// The functions of a module, unless it is our own: from, to.
pub(super) fn functions_of(module: &LoadedModule) -> Vec<(u64, u64)> {
    if modules::is_this(module) {
        return Vec::new();
    }
    let functions = module.functions();
    functions.iter().map(|it| (it.start, it.end)).collect()
}

/// How many words of the stack are read at a time.
const CHUNK: usize = 64;
const WORD: u64 = 8;
const PAGE: u64 = 4096;

/// A part of the stack. Each question to the kernel takes longer than all the rest of a step.
struct StackPart {
    /// Everything between these is mapped.
    mapped: Range<u64>,
    from: u64,
    words: [u64; CHUNK],
    len: usize,
}

impl StackPart {
    fn of(rsp: u64) -> Self {
        /// As large as a main stack usually may be.
        const MAIN_STACK_LEN: u64 = 64 << 20;
        let end = MAIN_STACK_END.load(Ordering::Relaxed);
        let is_main = rsp < end && end - rsp < MAIN_STACK_LEN;
        Self {
            mapped: if is_main { rsp..end } else { 0..0 },
            from: 0,
            words: [0; CHUNK],
            len: 0,
        }
    }

    /// A word of the stack, if it is mapped.
    fn word(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(WORD) {
            return sys::read_own_word(address);
        }
        if self.mapped.contains(&address) && address + WORD <= self.mapped.end {
            // SAFETY: between the stack pointer and the end of the stack everything is mapped.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        let number = |part: &Self| {
            let number = address.checked_sub(part.from)? / WORD;
            usize::try_from(number).ok().filter(|it| *it < part.len)
        };
        if number(self).is_none() {
            // What is in one page is mapped as a whole.
            let in_page = ((PAGE - address % PAGE) / WORD) as usize;
            let len = in_page.min(CHUNK);
            self.from = address;
            self.len = 0;
            if sys::read_own_words(address, &mut self.words[..len]) {
                self.len = len;
            }
        }
        number(self).map(|number| self.words[number])
    }
}

/// Fills in the instruction, and then return addresses, as far as unwind tables lead.
pub(super) fn walk(from: Registers, out: &mut [u64]) {
    MODULES.with(|modules| {
        if let Some(modules) = modules {
            walk_in(modules, from, out);
        } else if let Some(first) = out.first_mut() {
            *first = from.pc;
        }
    });
}

fn walk_in(modules: &Modules, from: Registers, out: &mut [u64]) {
    let mut stack = StackPart::of(from.rsp);
    let Registers {
        mut pc,
        mut rsp,
        mut rbp,
    } = from;
    let mut lookup = pc;
    for place in out {
        *place = pc;
        let description = modules.description_at(lookup);
        let Some(row) = description.and_then(|it| call_stacks::rule_of(it, lookup)) else {
            return;
        };
        let (register, offset) = match row.cfa {
            Cfa::Register { register, offset } | Cfa::Saved { register, offset } => {
                (register, offset)
            }
        };
        let base = if register == RBP { rbp } else { rsp }.wrapping_add_signed(offset);
        let cfa = match row.cfa {
            Cfa::Register { .. } => Some(base),
            Cfa::Saved { .. } => stack.word(base),
        };
        let (Some(cfa), Some(offset)) = (cfa, row.return_address) else {
            return;
        };
        let Some(next) = stack.word(cfa.wrapping_add_signed(offset)) else {
            return;
        };
        if cfa <= rsp || next == 0 {
            return;
        }
        if let Some(offset) = row.rbp {
            let Some(saved) = stack.word(cfa.wrapping_add_signed(offset)) else {
                return;
            };
            rbp = saved;
        }
        pc = next;
        // The call may be the last instruction of its function.
        lookup = pc - 1;
        rsp = cfa;
    }
}
