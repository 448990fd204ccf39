//! One call of libpmemobj: the original, the marks around it, and what is known of the calling thread.
//!
//! # Safety
//!
//! `original!` and `observed!` are used with the signatures of the headers of libpmemobj 1.12. What is known of a
//! thread lies in its private memory.
#![allow(unsafe_code, reason = "calls functions of libpmemobj")]

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use powerfail_protocol::mark;

use crate::host;
use crate::record::append;
use crate::record::thread_private::{self, Pmdk};

unsafe extern "C" {
    pub(super) fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    pub(super) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A pool, as the library sees it: where it is mapped.
pub(super) type Pool = *mut c_void;

/// A function of the target's that fills a new object.
pub(super) type Constructor = Option<extern "C" fn(Pool, *mut c_void, *mut c_void) -> c_int>;

/// Defines a function that passes on between two marks, and may do something afterwards with what came
/// out, if the target itself has called it.
macro_rules! observed {
    (fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?) => {
        $crate::record::pmdk::call::observed!(fn $name($($argument: $kind),*) $(-> $result)?, |_done| {});
    };
    (
        fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?,
        |$done:ident| $after:block
    ) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            let original = $crate::record::pmdk::call::original!(
                $name as extern "C" fn($($kind),*) $(-> $result)?
            );
            let call = $crate::record::pmdk::call::Call::enter(
                const { powerfail_protocol::mark::function(stringify!($name)) },
            );
            let $done = original($($argument),*);
            if call.leave() {
                $after
            }
            $done
        }
    };
}
pub(super) use observed;

/// The original of a function of PMDK.
macro_rules! original {
    ($name:ident as $kind:ty) => {{
        static ADDRESS: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        let mut address = ADDRESS.load(core::sync::atomic::Ordering::Relaxed);
        if address == 0 {
            address = $crate::record::pmdk::call::find(concat!(stringify!($name), "\0"));
            ADDRESS.store(address, core::sync::atomic::Ordering::Relaxed);
            $crate::fuzz::note_function(&ADDRESS, address);
        }
        // SAFETY: the library has this function with this signature.
        unsafe { core::mem::transmute::<usize, $kind>(address) }
    }};
}
pub(super) use original;

/// Where a function of PMDK is. A library that was loaded by `dlopen` with `RTLD_LOCAL` is not among
/// those that come after us.
pub(super) fn find(name: &'static str) -> usize {
    const LIBRARIES: [&str; 4] = [
        "libpmem.so.1\0",
        "libpmemobj.so.1\0",
        "libpmemlog.so.1\0",
        "libpmemblk.so.1\0",
    ];
    const RTLD_LAZY: c_int = 1;
    const RTLD_NOLOAD: c_int = 4;
    if let Some(address) = crate::libc::interpose::maybe_find(name) {
        return address as usize;
    }
    for library in LIBRARIES {
        // SAFETY: both are strings with an end; nothing is loaded that is not there.
        unsafe {
            let handle = dlopen(library.as_ptr().cast(), RTLD_LAZY | RTLD_NOLOAD);
            if !handle.is_null() {
                let address = dlsym(handle, name.as_ptr().cast()) as usize;
                if address != 0 {
                    return address;
                }
            }
        }
    }
    host::fatal("the target calls a function of PMDK that no loaded library defines")
}

/// What is known of the calling thread, if it is recorded.
pub(super) fn thread() -> Option<*mut Pmdk> {
    if !host::attached() {
        return None;
    }
    // SAFETY: the place of a field.
    thread_private::own().map(|own| unsafe { &raw mut (*own).pmdk })
}

/// Leaves a mark.
pub(super) fn leave(code: u32) {
    if host::attached() {
        append::append_mark([code.into(), 0]);
    }
}

/// Leaves a mark about a range, with the call stack.
pub(super) fn leave_range(code: u32, value: u64, address: u64, len: u64) {
    if len > 0 {
        append::append_mark_with_stack([code.into(), value, address, len]);
    }
}

/// A call of the library. It has no destructor: the library may jump out of it.
#[derive(Clone, Copy)]
pub(super) struct Call(Option<*mut Pmdk>);

impl Call {
    pub(super) fn enter(function: u64) -> Self {
        let thread = thread();
        if let Some(thread) = thread {
            // SAFETY: `thread` gives private memory of the calling thread, which no handler of ours changes.
            unsafe {
                (*thread).calls += 1;
                if (*thread).calls == 1 {
                    (*thread).function = function;
                    append::append_mark_with_stack([mark::LIBRARY_ENTER.into(), function]);
                }
            }
        }
        Self(thread)
    }

    /// The call has returned. Says whether the target itself has made it, and is recorded.
    pub(super) fn leave(self) -> bool {
        let Some(thread) = self.0 else { return false };
        // SAFETY: `thread` gives private memory of the calling thread, which no handler of ours changes.
        unsafe {
            match (*thread).calls {
                0 => false,
                1 => {
                    (*thread).calls = 0;
                    append::append_mark([mark::LIBRARY_LEAVE.into(), (*thread).function]);
                    true
                }
                _ => {
                    (*thread).calls -= 1;
                    false
                }
            }
        }
    }
}

/// Calls a function that leaves a mark and gives the address of the original, and jumps there, with
/// all registers as they were that can hold an argument: `pmemobj_tx_begin` takes any number. The function is
/// given the first argument.
macro_rules! pass_on {
    ($notice:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            ".cfi_adjust_cfa_offset 56",
            "call {notice}",
            "mov r11, rax",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_adjust_cfa_offset -56",
            "jmp r11",
            ".cfi_endproc",
            notice = sym $notice,
        )
    };
}
pub(super) use pass_on;

/// The way out of a transaction that has failed.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn longjmp() {
    pass_on!(jumps)
}

pub(super) static LONGJMP: AtomicUsize = AtomicUsize::new(0);

/// Finds what may be needed where nothing can be looked up.
pub(crate) fn prepare() {
    LONGJMP.store(
        crate::libc::interpose::find("longjmp\0").address,
        Ordering::Relaxed,
    );
}

extern "C" fn jumps() -> usize {
    if let Some(thread) = thread() {
        // SAFETY: `thread` gives private memory of the calling thread, which no handler of ours changes.
        unsafe {
            if (*thread).calls > 0 {
                (*thread).calls = 0;
                append::append_mark([mark::LIBRARY_LEAVE.into(), (*thread).function]);
            }
        }
    }
    match LONGJMP.load(Ordering::Relaxed) {
        0 => crate::libc::interpose::find("longjmp\0").address,
        address => address,
    }
}
