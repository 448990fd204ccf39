//! Guests: what a kernel does to persistent memory, recorded and recovered in a virtual machine.
//!
//! QEMU runs Linux with a range of emulated persistent memory, without KVM. The machine boots once, up to the moment
//! before that memory is touched, and is saved. Every recording and every recovery starts from there.
//!
//! - [`Kernel`], [`Tools`]: the kernel and the programs that this computer has.
//! - [`archive`]: the initial file system of the guest, in the format that the kernel reads.
//! - [`Machine`]: the saved machine, a directory. [`Machine::boot`] makes it.
//! - [`Guest`]: a running machine that obeys commands.
//! - [`Reference`], [`Operations`]: what a workload should leave after each system call, from a run without recording.
//! - [`record()`]: a workload under the QEMU plugin, as a trace.
//! - [`Service`], [`recover`]: recoveries on crash images, in guests that are used again.
//! - [`Watch`]: recoveries under the plugin: which lines they read, and what they store.
//! - [`FileSystem`]: how a file system is made, mounted and checked.
//!
//! What this crate does not do: it does not choose crash states, and does not judge findings. To the rest of powerfail a
//! guest is a recovery command like any other, and its memory a pool.

pub mod archive;
mod code_map;
mod debug_info;
mod elf;
mod error;
mod file_system;
mod guest;
mod initramfs;
mod kallsyms;
mod kernel;
mod layout;
mod machine;
mod operations;
mod pages;
mod qmp;
mod recording;
mod recovery;
mod reference;
mod service;
mod tools;
mod traced_reads;
mod unpacked_kernel;
mod watch;
mod workload;

pub use code_map::CodeMap;
pub use error::{Result, VmError};
pub use file_system::{FileSystem, Promise};
pub use guest::{Answer, Guest, GuestEnd, PluginNotes, PluginUse};
pub use kallsyms::{KernelSymbol, parse as parse_kallsyms};
pub use kernel::{Kernel, ModuleFile};
pub use layout::MemoryLayout;
pub use machine::{IsInterrupted, Machine, MachineOptions};
pub use operations::{Call, LineCalls, Lines, Operation, Operations};
pub use recording::{Recorded, Recording, record};
pub use recovery::{RecoveryReply, RecoveryRequest, recover};
pub use reference::{Reference, TreeListing};
pub use service::{Service, ask};
pub use tools::Tools;
pub use watch::{Watch, WatchedStep};
pub use workload::Workload;
