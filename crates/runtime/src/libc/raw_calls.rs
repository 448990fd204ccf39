//! System calls that the target makes past the functions of the C library: with `syscall(2)`, or with
//! an instruction of its own.
//!
//! # Safety
//!
//! Callers of `perform` guarantee that the target makes this system call now with these arguments. `None` means
//! that nothing was done.
#![allow(unsafe_code, reason = "makes system calls of the target")]

use core::arch::naked_asm;
use core::ffi::c_int;

use crate::fuzz::{self, derandomise};
use crate::libc::{
    clone, execute, file_changes, fork_exit, fork_locks, interpose, memory_maps, process_wide,
    signal_actions, synchronise, system_calls,
};
use crate::patching::modules;
use crate::platform::number::{
    CLONE, CLONE3, COPY_FILE_RANGE, EXECVE, EXECVEAT, EXIT_GROUP, FALLOCATE, FDATASYNC, FORK,
    FSYNC, FTRUNCATE, FUTEX, IO_SUBMIT, IO_URING_SETUP, MLOCKALL, MMAP, MPROTECT, MREMAP, MSYNC,
    MUNMAP, PRCTL, PROCESS_VM_READV, PROCESS_VM_WRITEV, RT_SIGACTION, SECCOMP, SENDFILE,
    SIGALTSTACK, SPLICE, TRUNCATE,
};
use crate::platform::{handler_stacks, iovec, sys};
use crate::record::files::{self, trees};
use crate::record::pools::{self, Request};
use crate::record::sites::Sites;
use crate::record::{faults, pool_files, remap, schedule, threads};
use crate::{host, recovery};

/// Watches the code of the target from now on, if it makes system calls of its own: it may map its first pool with one.
/// A target that does not is watched when it maps one.
pub(crate) fn prepare() {
    let starts_by_itself = fuzz::is_active() || derandomise::is_on();
    if !host::attached() || starts_by_itself || Sites::are_known() {
        return;
    }
    let mut is_needed = false;
    modules::for_each(|module| is_needed = is_needed || module.makes_system_calls());
    if is_needed {
        faults::install();
        Sites::start();
    } else if trees::are_on() {
        faults::install();
        Sites::start_calls();
    }
}

/// Ends the target if the kernel is about to write to a pool in a way that is not seen.
pub(crate) fn refuse_unseen(number: usize, arguments: [usize; 6]) {
    if !pools::was_mapped() {
        return;
    }
    let [first, second, third, fourth, fifth, _] = arguments;
    let is_pool = |fd: usize| pools::is_pool(fd as i32);
    let is_in_pool = |parts: usize, count: usize| {
        // SAFETY: the target passes these parts to the kernel.
        let parts = unsafe { iovec::parts(parts, count) };
        parts.iter().any(|part| pools::is_in_pool(part.address))
    };
    let name = match number {
        SENDFILE if is_pool(first) => "sendfile",
        SPLICE if is_pool(third) => "splice",
        COPY_FILE_RANGE if is_pool(third) => "copy_file_range",
        PROCESS_VM_WRITEV if is_in_pool(fourth, fifth) => "process_vm_writev",
        PROCESS_VM_READV if is_in_pool(second, third) => "process_vm_readv",
        // SAFETY: the target passes these requests to the kernel.
        IO_SUBMIT if unsafe { submits_to_pool(second, third) } => "io_submit",
        _ => return,
    };
    host::fatal(&format!(
        "the target writes to a pool with {name}, which cannot be recorded"
    ));
}

/// Whether one of the requests of `io_submit` writes to a pool or its file.
///
/// # Safety
/// The requests are as the kernel takes them.
unsafe fn submits_to_pool(count: usize, requests: usize) -> bool {
    #[repr(C)]
    struct Asynchronous {
        data: u64,
        key: u32,
        flags: u32,
        operation: u16,
        priority: u16,
        fd: i32,
        buffer: u64,
        len: u64,
    }
    const PREAD: u16 = 0;
    const PWRITE: u16 = 1;
    const PREADV: u16 = 7;
    const PWRITEV: u16 = 8;
    (0..count).any(|place| {
        // SAFETY: the kernel reads the same requests in this call.
        let request = unsafe { &**(requests as *const *const Asynchronous).add(place) };
        match request.operation {
            PWRITE | PWRITEV => pools::is_pool(request.fd),
            PREAD => pools::is_in_pool(request.buffer),
            PREADV => {
                // SAFETY: the kernel reads the same list in this call.
                let parts = unsafe { iovec::parts(request.buffer as usize, request.len as usize) };
                parts.iter().any(|part| pools::is_in_pool(part.address))
            }
            _ => false,
        }
    })
}

/// Does what the target asks the kernel for, where that concerns us. `None`: the kernel itself must
/// be asked, from where the target asks it.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn perform(number: usize, arguments: [usize; 6]) -> Option<isize> {
    fuzz::before_call(number, arguments);
    // SAFETY: by the contract the target makes this call with these arguments.
    if let Some(done) = unsafe { files::calls::perform(number, arguments) } {
        return Some(done);
    }
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let fd = first as i32;
    Some(match number {
        MMAP => pools::map(Request {
            address: first as u64,
            len: second as u64,
            protection: third,
            flags: fourth,
            fd: fifth as i32,
            offset: sixth as u64,
        }),
        MPROTECT => memory_maps::raw_mprotect(arguments),
        MUNMAP => memory_maps::raw_munmap(arguments),
        MREMAP => remap::remap(remap::Request {
            address: first as u64,
            old_len: second as u64,
            new_len: third as u64,
            flags: fourth,
            new_address: fifth as u64,
        }),
        MSYNC => memory_maps::raw_msync(arguments),
        FSYNC | FDATASYNC | FTRUNCATE if pools::is_pool(fd) => {
            schedule::step();
            // SAFETY: by the contract the target makes this call; these calls change a file, and no memory.
            let call = || unsafe { sys::call(number, arguments) };
            if number != FTRUNCATE {
                return Some(pool_files::sync_file(fd, call, || {}));
            }
            let done = call();
            if done == 0 {
                pools::resized(fd, second as u64);
            }
            done
        }
        TRUNCATE => file_changes::raw_truncate(arguments),
        FALLOCATE if pools::is_pool(fd) => {
            schedule::step();
            pool_files::allocate(fd, second as i32, third as u64, fourth as u64)
        }
        // SAFETY: by the contract these are the arguments of `sigaltstack`: null, or addresses of a `stack_t`.
        SIGALTSTACK => {
            return unsafe { handler_stacks::exchange(first as *const _, second as *mut _) };
        }
        // SAFETY: by the contract these are the arguments of `rt_sigaction`: null, or addresses of an action.
        RT_SIGACTION => return unsafe { signal_actions::raw_action(arguments) },
        // SAFETY: by the contract the target makes this call with these arguments.
        EXECVE | EXECVEAT => unsafe { execute::raw(number, arguments) },
        FORK => return Some(copy_process(number, arguments)),
        CLONE => return make(number, arguments, first as u64, second as u64),
        CLONE3 => {
            const FLAGS_WORD: usize = 0;
            const STACK_WORD: usize = 5;
            let words = first as *const u64;
            // SAFETY: by the contract the first argument of `clone3` points to its arguments, at least eight words in
            // the shortest form.
            let (flags, stack) =
                unsafe { (words.add(FLAGS_WORD).read(), words.add(STACK_WORD).read()) };
            return make(number, arguments, flags, stack);
        }
        EXIT_GROUP => {
            threads::conclude();
            return None;
        }
        SENDFILE | SPLICE | COPY_FILE_RANGE | PROCESS_VM_WRITEV | PROCESS_VM_READV | IO_SUBMIT => {
            refuse_unseen(number, arguments);
            return None;
        }
        IO_URING_SETUP => {
            const ENOSYS: isize = 38;
            host::warn(
                "the target asked for io_uring, which cannot be recorded; it was told that the kernel has none",
            );
            -ENOSYS
        }
        // SAFETY: by the contract these are the arguments of a `futex` that the target makes, so the word is mapped.
        FUTEX => return unsafe { synchronise::futex(arguments, || sys::call(number, arguments)) },
        MLOCKALL | PRCTL | SECCOMP => return process_wide::perform(number, arguments),
        _ if system_calls::knows(number) => {
            schedule::turn();
            // SAFETY: by the contract the target makes this call with these arguments.
            unsafe { system_calls::perform(number, arguments) }
        }
        _ => return None,
    })
}

fn copy_process(number: usize, arguments: [usize; 6]) -> isize {
    let copy = || {
        fork_locks::hold();
        // SAFETY: a process with a stack of its own, which is a copy of this one.
        let child = unsafe { sys::call(number, arguments) as c_int };
        if child != 0 {
            fork_locks::give_back();
        }
        child
    };
    fork_exit::around_fork(copy) as isize
}

/// The target makes a thread or a process.
fn make(number: usize, arguments: [usize; 6], flags: u64, stack: u64) -> Option<isize> {
    if flags & clone::CLONE_VFORK != 0 {
        return None;
    }
    clone::check_shared(flags);
    if flags & clone::CLONE_VM != 0 || stack != 0 {
        clone::refuse_thread();
    }
    Some(copy_process(number, arguments))
}

/// What becomes of a call of `syscall`.
#[repr(C)]
struct Decision {
    /// The function to go on with; 0 if all is done.
    original: usize,
    result: isize,
}

/// The arguments as they lie on the stack, last one first, but for the very last.
extern "C" fn decide(arguments: &[usize; 6], last: usize) -> Decision {
    let [fifth, fourth, third, second, first, number] = *arguments;
    // SAFETY: `syscall` has stored the arguments that the target passed to it.
    let done = unsafe { derandomise::perform(number, [first, second, third, fourth, fifth, last]) };
    let done = if done.is_some() {
        done
    } else if recovery::is_active() {
        recovery::perform(number, [first, second, third, fourth, fifth, last])
    } else if host::attached() && threads::slot().is_some() {
        // SAFETY: `syscall` has stored the arguments that the target passed to it.
        unsafe { perform(number, [first, second, third, fourth, fifth, last]) }
    } else {
        None
    };
    match done {
        Some(done) => Decision {
            original: 0,
            result: interpose::result(done),
        },
        None => Decision {
            original: interpose::original_syscall(),
            result: 0,
        },
    }
}

/// `long syscall(long number, ...)`: does it, or jumps to the original as if that had been called.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn syscall() {
    naked_asm!(
        // Call stacks lead through here.
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push r9",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "lea rdi, [rsp + 8]",
        "mov rsi, [rsp + 64]",
        "call {decide}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        ".cfi_remember_state",
        "pop r9",
        ".cfi_adjust_cfa_offset -8",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        "2:",
        ".cfi_restore_state",
        "add rsp, 48",
        ".cfi_adjust_cfa_offset -48",
        "mov rax, rdx",
        "ret",
        ".cfi_endproc",
        decide = sym decide,
    )
}
