//! Rust: a method, a generic method and a closure.

// Tests search for the labels.
#![allow(named_asm_labels)]

use std::arch::asm;

struct Table {
    value: u64,
}

impl Table {
    #[inline(always)]
    fn persist(&mut self) {
        self.value += 1;
        unsafe { asm!(".globl here_persist", "here_persist:", "nop") } // at: persist
    }

    #[inline(never)]
    fn insert<K: Into<u64>>(&mut self, key: K) {
        self.value += key.into();
        self.persist(); // at: insert
    }
}

fn main() {
    let mut table = Table { value: 0 };
    table.insert(7u32);
    let check = || {
        unsafe { asm!(".globl here_closure", "here_closure:", "nop") } // at: closure
    };
    check();
    std::process::exit((table.value != 8).into());
}
