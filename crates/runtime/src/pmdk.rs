//! What the target tells PMDK: where transactions and the creation of pools begin and end.
//!
//! The functions of libpmemobj, libpmemlog and libpmemblk that say so are replaced by ones that leave
//! a mark and pass on. A target that has none of these libraries never calls them.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use powerfail_abi::mark;

use crate::interpose::original;
use crate::{append, host, thread};

fn leave(code: u32) {
    if host::attached() {
        append::append_mark(code);
    }
}

/// Calls a function that leaves a mark and gives the address of the original, and goes on there, with
/// all registers as they were that can hold an argument: `pmemobj_tx_begin` takes any number.
macro_rules! pass_on {
    ($notice:ident) => {
        core::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            "call {notice}",
            "mov r11, rax",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp r11",
            notice = sym $notice,
        )
    };
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn pmemobj_tx_begin() {
    pass_on!(transaction_begins)
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn pmemobj_tx_end() {
    pass_on!(transaction_ends)
}

extern "C" fn transaction_begins() -> extern "C" fn() {
    if thread::enter_transaction() == 1 {
        leave(mark::TRANSACTION_BEGIN);
    }
    original!("pmemobj_tx_begin" as extern "C" fn())
}

extern "C" fn transaction_ends() -> extern "C" fn() {
    if thread::leave_transaction() == 0 {
        leave(mark::TRANSACTION_END);
    }
    original!("pmemobj_tx_end" as extern "C" fn())
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_create(
    path: *const c_char,
    layout: *const c_char,
    len: usize,
    mode: c_int,
) -> *mut c_void {
    type Create = extern "C" fn(*const c_char, *const c_char, usize, c_int) -> *mut c_void;
    leave(mark::CREATION_BEGIN);
    let pool = original!("pmemobj_create" as Create)(path, layout, len, mode);
    leave(mark::CREATION_END);
    pool
}

#[unsafe(no_mangle)]
extern "C" fn pmemlog_create(path: *const c_char, len: usize, mode: c_int) -> *mut c_void {
    type Create = extern "C" fn(*const c_char, usize, c_int) -> *mut c_void;
    leave(mark::CREATION_BEGIN);
    let pool = original!("pmemlog_create" as Create)(path, len, mode);
    leave(mark::CREATION_END);
    pool
}

#[unsafe(no_mangle)]
extern "C" fn pmemblk_create(
    path: *const c_char,
    block_len: usize,
    len: usize,
    mode: c_int,
) -> *mut c_void {
    type Create = extern "C" fn(*const c_char, usize, usize, c_int) -> *mut c_void;
    leave(mark::CREATION_BEGIN);
    let pool = original!("pmemblk_create" as Create)(path, block_len, len, mode);
    leave(mark::CREATION_END);
    pool
}
