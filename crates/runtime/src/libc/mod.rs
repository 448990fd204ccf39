//! Functions of the C library and system calls that the runtime stands in for, in every mode.
//!
//! | file | subject |
//! | --- | --- |
//! | [`interpose`] | what all of these have in common: the originals, `errno`, whether anything watches |
//! | [`memory_maps`] | `mmap` and its like |
//! | [`file_calls`] | functions that write, rename or remove files of trees |
//! | [`file_changes`] | functions that change, truncate, allocate or sync files |
//! | [`thread_start`] | `pthread_create` |
//! | [`fork_locks`] | locks of ours that are held while a process is copied |
//! | [`fork_exit`] | `fork`, `daemon`, `forkpty` and `_exit` |
//! | [`execute`] | `execve` and its relatives, `posix_spawn`, `system`, `popen` |
//! | [`descriptors`] | functions that would close a descriptor of ours |
//! | [`loading`] | `dlopen` and `dlclose` |
//! | [`signal_actions`] | `sigaction`, signal masks, `sigaltstack` |
//! | [`process_wide`] | `mlockall`, and calls that install a filter of system calls |
//! | [`seccomp_filter`] | what such a filter allows |
//! | [`spawn_actions`] | descriptors that `posix_spawn` passes on |
//! | [`system_calls`] | system calls that transfer data, made by functions of the C library |
//! | [`raw_calls`] | system calls made with `syscall(2)` or with an instruction of the target |
//! | [`clone`] | threads and processes made with `clone` |
//! | [`synchronise`] | functions by which threads wait for each other |
//! | [`early`] | running before the constructors of other libraries |
//!
//! Functions of one mode are in its room: `fuzz/derandomise`, `fuzz/desock`, `fuzz/observed/functions.rs`,
//! `record/heap/functions.rs`, `record/pmdk`.

pub(crate) mod clone;
mod descriptors;
pub(crate) mod early;
pub(crate) mod execute;
mod file_calls;
mod file_changes;
pub(crate) mod fork_exit;
pub(crate) mod fork_locks;
pub(crate) mod interpose;
mod loading;
pub(crate) mod memory_maps;
pub(crate) mod process_wide;
pub(crate) mod raw_calls;
mod seccomp_filter;
pub(crate) mod signal_actions;
pub(crate) mod spawn_actions;
pub(crate) mod synchronise;
pub(crate) mod system_calls;
pub(crate) mod thread_start;
