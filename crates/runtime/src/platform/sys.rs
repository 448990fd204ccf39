//! Raw system calls, and single instructions that the language has no words for.
//!
//! # Safety
//!
//! `call` and `mmap` are as unsafe as the system call: callers guarantee that what the kernel reads or writes
//! through pointers is theirs, and that no mapping is replaced that something uses. The other functions are safe:
//! their calls take no pointers, or pointers to their own stack or to references that outlive the call.
#![allow(unsafe_code, reason = "system calls and single instructions")]

use core::arch::asm;

pub(crate) use crate::platform::number;
pub(crate) const PROT_NONE: usize = 0;
pub(crate) const PROT_READ: usize = 1;
pub(crate) const PROT_WRITE: usize = 2;
pub(crate) const PROT_EXEC: usize = 4;
pub(crate) const MAP_SHARED: usize = 1;
pub(crate) const MAP_PRIVATE: usize = 2;
pub(crate) const MAP_TYPE: usize = 15;
pub(crate) const MAP_SHARED_VALIDATE: usize = 3;
pub(crate) const MAP_FIXED: usize = 0x10;
pub(crate) const MAP_ANONYMOUS: usize = 0x20;
pub(crate) const MAP_NORESERVE: usize = 0x4000;
pub(crate) const MAP_FIXED_NOREPLACE: usize = 0x10_0000;

pub(crate) const EINTR: isize = 4;

/// A system call with up to six arguments; a negative result is an error number.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11 and, through pointers, what the caller answers for.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Maps memory.
///
/// # Safety
/// With a fixed address, existing mappings are replaced.
pub(crate) unsafe fn mmap(
    address: u64,
    len: u64,
    protection: usize,
    flags: usize,
    fd: i32,
    offset: u64,
) -> isize {
    let arguments = [
        address as usize,
        len as usize,
        protection,
        flags,
        fd as usize,
        offset as usize,
    ];
    // SAFETY: `call` has the same contract: the caller answers for what the mapping replaces.
    unsafe { call(number::MMAP, arguments) }
}

pub(crate) const O_RDWR: usize = 2;
pub(crate) const O_CREAT: usize = 0o100;

/// Opens a file, closed on exec; a negative number is an error.
pub(crate) fn open(path: &core::ffi::CStr, flags: usize, mode: usize) -> i32 {
    const AT_FDCWD: usize = -100isize as usize;
    const O_CLOEXEC: usize = 0o2_000_000;
    let path = path.as_ptr() as usize;
    let arguments = [AT_FDCWD, path, flags | O_CLOEXEC, mode, 0, 0];
    // SAFETY: the kernel reads the path up to its zero byte, and writes nothing.
    unsafe { call(number::OPENAT, arguments) as i32 }
}

/// A copy of a descriptor, closed on exec, with a number that the target does not expect to get; a negative
/// number is an error.
pub(crate) fn copy_up(fd: i32) -> i32 {
    const F_DUPFD_CLOEXEC: usize = 1030;
    const FROM: usize = 600;
    let arguments = [fd as usize, F_DUPFD_CLOEXEC, FROM, 0, 0, 0];
    // SAFETY: `fcntl` with `F_DUPFD_CLOEXEC` takes no pointer, and only adds a descriptor.
    unsafe { call(number::FCNTL, arguments) as i32 }
}

/// Closes a descriptor that the runtime has opened for itself.
pub(crate) fn close(fd: i32) {
    // SAFETY: `close` takes no pointer, and by the sentence above nothing else uses the descriptor.
    unsafe { call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Gives a descriptor of ours such a number, if that is possible.
pub(crate) fn move_up(fd: i32) -> i32 {
    let copy = copy_up(fd);
    if copy < 0 {
        return fd;
    }
    close(fd);
    copy
}

/// Fresh private memory anywhere; `None` if there is none.
pub(crate) fn map_anywhere(len: u64) -> Option<u64> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: the kernel chooses a place that is free.
    let result = unsafe { mmap(0, len, PROT_READ | PROT_WRITE, flags, -1, 0) };
    (result > 0).then_some(result as u64)
}

/// Fresh private memory at an address, or elsewhere if something is there.
pub(crate) fn map_at(address: u64, len: u64) -> Option<u64> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the address is a hint, and nothing is replaced.
    let result = unsafe { mmap(address, len, PROT_READ | PROT_WRITE, flags, -1, 0) };
    (result > 0).then_some(result as u64)
}

/// The number of the calling thread.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments, no effect.
    unsafe { call(number::GETTID, [0; 6]) as u32 }
}

/// The number of the process.
pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments, no effect.
    unsafe { call(number::GETPID, [0; 6]) as u32 }
}

/// The number of the parent process.
pub(crate) fn getppid() -> u32 {
    // SAFETY: no arguments, no effect.
    unsafe { call(number::GETPPID, [0; 6]) as u32 }
}

/// Makes this process end with its parent, whose number is `parent`.
pub(crate) fn end_with_parent(parent: u32) {
    const PR_SET_PDEATHSIG: usize = 1;
    const SIGKILL: usize = 9;
    // SAFETY: this `prctl` takes no pointer.
    unsafe { call(number::PRCTL, [PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0]) };
    // The kernel sends no signal if the parent ended before the call.
    if getppid() != parent {
        exit_group(128 + SIGKILL);
    }
}

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;

/// Waits until `word` is woken, or is not `value` any more.
pub(crate) fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    let arguments = [
        core::ptr::from_ref(word) as usize,
        FUTEX_WAIT,
        value as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the word outlives the call.
    unsafe { call(number::FUTEX, arguments) };
}

/// As `futex_wait`, but not for longer than so many nanoseconds; whether they are over.
pub(crate) fn futex_wait_for(
    word: &core::sync::atomic::AtomicU32,
    value: u32,
    nanoseconds: u64,
) -> bool {
    const ETIMEDOUT: isize = 110;
    let time = [0, nanoseconds];
    let arguments = [
        core::ptr::from_ref(word) as usize,
        FUTEX_WAIT,
        value as usize,
        time.as_ptr() as usize,
        0,
        0,
    ];
    // SAFETY: word and time outlive the call.
    unsafe { call(number::FUTEX, arguments) == -ETIMEDOUT }
}

/// What a clock of the kernel says, in nanoseconds; `None` if there is no such clock.
pub(crate) fn clock_ns(clock: i32) -> Option<u64> {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut time = [0u64; 2];
    let arguments = [clock as usize, time.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes seconds and nanoseconds to this stack.
    let done = unsafe { call(number::CLOCK_GETTIME, arguments) };
    (done == 0).then(|| time[0] * SECOND_NS + time[1])
}

/// The time, from some moment on.
pub(crate) fn now_ns() -> u64 {
    const MONOTONIC: i32 = 1;
    clock_ns(MONOTONIC).unwrap_or(0)
}

/// How long a thread of this process has run on a processor.
pub(crate) fn processor_time_ns(thread: u32) -> Option<u64> {
    /// Of one thread, by what it really used.
    const OF_THREAD: i32 = 4 | 2;
    clock_ns(!(thread as i32) << 3 | OF_THREAD)
}

/// Wakes all who wait for `word`.
pub(crate) fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    let arguments = [
        core::ptr::from_ref(word) as usize,
        FUTEX_WAKE,
        i32::MAX as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the word outlives the call.
    unsafe { call(number::FUTEX, arguments) };
}

const SIG_BLOCK: usize = 0;
const SIG_UNBLOCK: usize = 1;
pub(crate) const SIG_SETMASK: usize = 2;

/// Blocks all signals and gives the mask of before.
pub(crate) fn block_signals() -> u64 {
    let all = u64::MAX;
    let mut old = 0u64;
    let (all, old_place) = (&raw const all as usize, &raw mut old as usize);
    // SAFETY: both masks are on this stack.
    unsafe { call(number::RT_SIGPROCMASK, [SIG_BLOCK, all, old_place, 8, 0, 0]) };
    old
}

/// Unblocks some signals.
pub(crate) fn unblock_signals(signals: u64) {
    let signals = &raw const signals as usize;
    // SAFETY: the mask is on this stack.
    unsafe { call(number::RT_SIGPROCMASK, [SIG_UNBLOCK, signals, 0, 8, 0, 0]) };
}

/// Restores the mask of before.
pub(crate) fn restore_signals(mask: u64) {
    // SAFETY: the mask is on this stack.
    unsafe {
        call(
            number::RT_SIGPROCMASK,
            [SIG_SETMASK, &raw const mask as usize, 0, 8, 0, 0],
        );
    }
}

const ARCH_SET_GS: usize = 0x1001;

/// Sets the GS base of the calling thread.
pub(crate) fn set_gs(address: u64) {
    // SAFETY: nothing but this runtime uses GS on x86-64 Linux.
    unsafe {
        call(
            number::ARCH_PRCTL,
            [ARCH_SET_GS, address as usize, 0, 0, 0, 0],
        )
    };
}

/// The GS base of the calling thread.
pub(crate) fn gs() -> u64 {
    let base;
    // SAFETY: reads a register; targets run only where the instruction is there.
    unsafe { core::arch::asm!("rdgsbase {}", out(reg) base, options(nomem, nostack)) };
    base
}

/// The FS base of the calling thread.
pub(crate) fn fs() -> u64 {
    let base;
    // SAFETY: reads a register; targets run only on processors that have the instruction (the recorder checks).
    unsafe { core::arch::asm!("rdfsbase {}", out(reg) base, options(nomem, nostack)) };
    base
}

/// What fstat says that is of interest here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStatus {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    pub(crate) len_bytes: u64,
}

/// Asks what a descriptor refers to.
pub(crate) fn fstat(fd: i32) -> Option<FileStatus> {
    // struct stat: device, inode, links, mode (32 bits), ..., size at word 6.
    let mut stat = [0u64; 18];
    // SAFETY: struct stat has 144 bytes.
    let result = unsafe {
        call(
            number::FSTAT,
            [fd as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    };
    (result == 0).then(|| FileStatus::of(&stat))
}

impl FileStatus {
    const fn of(stat: &[u64; 18]) -> Self {
        Self {
            device: stat[0],
            inode: stat[1],
            mode: stat[3] as u32,
            len_bytes: stat[6],
        }
    }
}

/// Asks what a path names, below a directory that is open.
pub(crate) fn status_at(
    directory: i32,
    path: &core::ffi::CStr,
    flags: usize,
) -> Option<FileStatus> {
    let mut stat = [0u64; 18];
    let (path, place) = (path.as_ptr() as usize, stat.as_mut_ptr() as usize);
    let arguments = [directory as usize, path, place, flags, 0, 0];
    // SAFETY: the kernel reads the path, and struct stat has 144 bytes.
    let result = unsafe { call(number::NEWFSTATAT, arguments) };
    (result == 0).then(|| FileStatus::of(&stat))
}

/// Ends the process at once.
pub(crate) fn exit_group(code: usize) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { call(number::EXIT_GROUP, [code, 0, 0, 0, 0, 0]) };
    }
}

/// Sends the calling thread a signal.
pub(crate) fn raise(signal: usize) {
    // SAFETY: a signal to ourselves.
    unsafe {
        call(
            number::TGKILL,
            [getpid() as usize, gettid() as usize, signal, 0, 0, 0],
        )
    };
}

/// Whether a thread of a process still exists.
pub(crate) fn is_alive(process: u32, thread: u32) -> bool {
    // SAFETY: signal 0 is only a question.
    unsafe {
        call(
            number::TGKILL,
            [process as usize, thread as usize, 0, 0, 0, 0],
        ) == 0
    }
}

/// Lets another thread have the processor.
pub(crate) fn yield_processor() {
    // SAFETY: the call has no arguments and touches no memory.
    unsafe { call(number::SCHED_YIELD, [0; 6]) };
}

/// The stack pointer of the caller, about.
#[expect(clippy::inline_always, reason = "a frame of its own would be gone")]
#[inline(always)]
pub(crate) fn stack_pointer() -> u64 {
    let rsp;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) rsp, options(nomem, nostack)) };
    rsp
}

/// What the C library calls the calling thread (`pthread_self`).
pub(crate) fn thread_pointer() -> u64 {
    let own;
    // SAFETY: the C library keeps it at this place, for each thread.
    unsafe { core::arch::asm!("mov {}, fs:[0x10]", out(reg) own, options(nostack, readonly)) };
    own
}

/// The registers that unwinding from the caller begins with.
#[expect(clippy::inline_always, reason = "a frame of its own would be gone")]
#[inline(always)]
pub(crate) fn registers() -> crate::record::call_stacks::Registers {
    let (pc, rsp, rbp);
    // SAFETY: reads registers.
    unsafe {
        core::arch::asm!(
            "lea {}, [rip]",
            "mov {}, rsp",
            "mov {}, rbp",
            out(reg) pc,
            out(reg) rsp,
            out(reg) rbp,
            options(nomem, nostack)
        );
    }
    crate::record::call_stacks::Registers { pc, rsp, rbp }
}

/// A word of our own memory, if it is mapped.
pub(crate) fn read_own_word(address: u64) -> Option<u64> {
    let mut words = [0u64];
    read_own_words(address, &mut words).then_some(words[0])
}

/// Words of our own memory. Whether they are mapped; only then are they read.
pub(crate) fn read_own_words(address: u64, words: &mut [u64]) -> bool {
    let len = size_of_val(words);
    // SAFETY: words as bytes; any bytes are words.
    let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) };
    read_own_bytes(address, bytes)
}

/// Bytes of our own memory. Whether they are mapped; only then are they read.
pub(crate) fn read_own_bytes(address: u64, bytes: &mut [u8]) -> bool {
    let len = bytes.len();
    let own = [bytes.as_mut_ptr() as usize, len];
    let other = [address as usize, len];
    let arguments = [
        getpid() as usize,
        own.as_ptr() as usize,
        1,
        other.as_ptr() as usize,
        1,
        0,
    ];
    // SAFETY: the kernel copies no more than the length of the slice to it, or says that it cannot.
    let copied = unsafe { call(number::PROCESS_VM_READV, arguments) };
    copied == len as isize
}
