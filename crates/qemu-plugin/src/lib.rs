//! A plugin of QEMU that records stores, flushes and fences to persistent memory: a second recorder beside the runtime.
//!
//! The runtime is a library in the target, so it sees neither statically linked programs nor kernels. QEMU executes both,
//! and tells its plugins of each instruction that it translates and each access to memory.
//!
//! | room | subject |
//! | --- | --- |
//! | `api.rs` | QEMU's interface |
//! | `translate.rs` | which instructions are watched; classified as in the runtime, by `powerfail-patch` |
//! | `registers.rs` | the registers of the target, which QEMU does not show |
//! | `program.rs` | a program under `qemu-x86_64`: its stores, flushes and fences |
//! | `system_calls.rs` | its system calls that concern pools |
//! | `files.rs` | those that change files of trees |
//! | `pieces.rs` | stores that QEMU makes in pieces |
//! | `turn.rs` | one of its threads at a time, so that the order of events is right |
//! | `host.rs` | the connection to the host, in the runtime's protocol |
//! | `stacks.rs`, `modules.rs` | its call stacks |
//! | `pools.rs`, `memory.rs` | where its pools are mapped; its memory |
//! | `machine.rs` | a whole machine under `qemu-system-x86_64`: what it does to its persistent memory, into a file |
//!
//! # How it is used
//!
//! A program: `qemu-x86_64 -plugin FILE PROGRAM`, with the environment that the recorder gives to its targets. A machine: `-plugin
//! file=FILE,log=LOG,pm=FILE,ram=OFFSET,len=LENGTH`; see `machine.rs`.

#![allow(unsafe_code, reason = "called by QEMU")]

mod api;
mod files;
mod host;
mod machine;
mod memory;
mod modules;
mod pieces;
mod pools;
mod program;
mod registers;
mod stacks;
mod system_calls;
mod translate;
mod turn;

use core::ffi::{CStr, c_char, c_int, c_void};

/// The version of QEMU's interface for plugins.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU asks for this name")]
pub static qemu_plugin_version: c_int = api::VERSION;

/// QEMU loads the plugin.
///
/// # Safety
/// QEMU calls it with the arguments of the command line.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let arguments: Vec<String> = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: QEMU passes this many strings, which it keeps.
        .map(|index| unsafe { CStr::from_ptr(*arguments.add(index)) })
        .map(|text| text.to_string_lossy().into_owned())
        .collect();
    // SAFETY: QEMU calls this with the id that it gave to this plugin.
    unsafe {
        if !arguments.is_empty() {
            return match machine::install(id, &arguments) {
                Ok(()) => 0,
                Err(sentence) => {
                    eprintln!("powerfail: {sentence}");
                    1
                }
            };
        }
        if !host::attach() {
            eprintln!("powerfail: the plugin of QEMU was started without powerfail");
            return 1;
        }
        program::install(id);
    }
    0
}
