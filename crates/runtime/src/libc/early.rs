//! Running before the constructors of other libraries.
//!
//! Libraries ask in their constructors whether they run under Valgrind, and remember the answer. So the
//! runtime must have looked at their code by then:
//!
//! - of what the target is linked with: the runtime is marked to be initialised first (`DF_1_INITFIRST`),
//!   even before the C library, which is why the environment has to be lent to it;
//! - of what is opened later: the dynamic linker calls a function that does nothing, for debuggers, when
//!   new modules are mapped and none of their code has run. A breakpoint there leads to us.
//!
//! # Safety
//!
//! `lend_environment` runs before any other code of the process but the dynamic linker's, so nothing reads the
//! variable at the same time. What the linker shows to debuggers exists under a documented name as long as the
//! process.
#![allow(unsafe_code, reason = "uses variables of the dynamic linker")]

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::host;
use crate::libc::interpose;
use crate::patching::code;
use crate::record::sites::Sites;

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// Gives the C library the environment of the process, if it does not have it yet.
pub(crate) fn lend_environment(environment: *const *const c_char) {
    // SAFETY: no other thread is there, and the C library itself will write the same.
    unsafe {
        if environ.is_null() {
            environ = environment;
        }
    }
}

/// What the dynamic linker shows to debuggers, as far as we need it.
#[repr(C)]
struct Shown {
    version: i32,
    modules: u64,
    /// The function that is called when modules are added or removed.
    called: u64,
}

/// Where the function is that the dynamic linker calls; 0 if it has no breakpoint.
static CALLED: AtomicU64 = AtomicU64::new(0);

/// Looks at modules from now on when they are opened, before their constructors run.
pub(crate) fn watch_linker() {
    const NAME: &CStr = c"_r_debug";
    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const RET: u8 = 0xc3;
    let called = interpose::look_up(NAME).map_or(0, |shown| {
        // SAFETY: the dynamic linker has it under this name, for good.
        unsafe { (*(shown as *const Shown)).called }
    });
    // SAFETY: a function, and behind its end there are others.
    let does_nothing = called != 0 && {
        let bytes = unsafe { code::view(called, 8) };
        bytes.strip_prefix(&ENDBR).unwrap_or(bytes)[0] == RET
    };
    if !does_nothing {
        host::warn(
            "libraries loaded by dlopen may not see in their constructors that client requests are answered",
        );
        return;
    }
    CALLED.store(called, Ordering::Release);
    code::replace(core::iter::once((called, &[code::BREAKPOINT][..])));
}

/// Where to go on from a breakpoint, if it is that of the dynamic linker.
pub(crate) fn at_breakpoint(address: u64) -> Option<u64> {
    let called = CALLED.load(Ordering::Acquire);
    (called != 0 && address == called).then_some(modules_have_changed as *const () as u64)
}

/// Stands in for the function that does nothing.
extern "C" fn modules_have_changed() {
    Sites::update();
}
