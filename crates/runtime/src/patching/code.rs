//! Changing code that other threads may be executing.
//!
//! # Safety
//!
//! Callers of `view` guarantee that the range is readable and stays mapped while the slice is used. Callers of
//! `write` and `replace` guarantee that the new bytes are valid code for every thread that executes them, before,
//! during and after the change; `replace` makes the change in an order that keeps other threads from executing half
//! of it.
#![allow(unsafe_code, reason = "reads and changes code")]

use core::sync::atomic::{AtomicBool, Ordering};

use crate::host;
use crate::platform::descriptor::{Descriptor, DescriptorCell};
use crate::platform::sys;
use crate::record::threads;

pub(crate) const BREAKPOINT: u8 = 0xcc;

const AT_FDCWD: usize = -100isize as usize;
const O_RDWR: usize = 2;
const O_CLOEXEC: usize = 0o2_000_000;
const SYNC_CORE: usize = 32;
const REGISTER_SYNC_CORE: usize = 64;

/// `/proc/self/mem`: writes to read-only code as a debugger would. Belongs to one process: a child
/// after fork needs its own.
static MEMORY: DescriptorCell = DescriptorCell::new();

/// Whether nothing of the target runs, so that it cannot close the descriptor.
static TRUSTED: AtomicBool = AtomicBool::new(false);

/// Makes many changes while nothing of the target runs.
pub(crate) fn change_much(work: impl FnOnce()) {
    memory();
    TRUSTED.store(!threads::has_company(), Ordering::Relaxed);
    work();
    TRUSTED.store(false, Ordering::Relaxed);
}

fn memory() -> i32 {
    let trusted = MEMORY.last().filter(|_| TRUSTED.load(Ordering::Relaxed));
    if let Some(memory) = trusted.or_else(|| MEMORY.get()) {
        return memory.fd;
    }
    let arguments = [
        AT_FDCWD,
        c"/proc/self/mem".as_ptr() as usize,
        O_RDWR | O_CLOEXEC,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads the path, a constant with a zero byte at its end, and writes nothing.
    let fd = unsafe { sys::call(sys::number::OPENAT, arguments) } as i32;
    if fd < 0 {
        host::fatal("cannot open /proc/self/mem to patch code");
    }
    let fd = sys::move_up(fd);
    // SAFETY: a command without pointers.
    unsafe { sys::call(sys::number::MEMBARRIER, [REGISTER_SYNC_CORE, 0, 0, 0, 0, 0]) };
    MEMORY.set(Descriptor::of(fd));
    fd
}

/// In the child after fork.
pub(crate) fn reset_after_fork() {
    if let Some(memory) = MEMORY.get() {
        sys::close(memory.fd);
    }
    MEMORY.set(None);
}

/// Writes to memory that may be read-only, and that is not executed or used now.
pub(crate) fn write(address: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let arguments = [
        memory() as usize,
        bytes.as_ptr() as usize,
        bytes.len(),
        address as usize,
        0,
        0,
    ];
    // SAFETY: the caller answers for the bytes.
    let written = unsafe { sys::call(sys::number::PWRITE64, arguments) };
    if written != bytes.len() as isize {
        host::fatal("cannot write to code of the target");
    }
}

/// Every core has seen what was written before.
fn synchronise() {
    // SAFETY: a command without pointers.
    unsafe { sys::call(sys::number::MEMBARRIER, [SYNC_CORE, 0, 0, 0, 0, 0]) };
}

/// Puts breakpoints at addresses, which are in order. Every thread sees an old instruction or a breakpoint.
pub(crate) fn put_breakpoints(addresses: &[u64]) {
    set_first_bytes(addresses.iter().map(|address| (*address, BREAKPOINT)));
}

/// Sets first bytes of instructions, which are in order: to breakpoints, or to what they were before. Every thread sees the
/// one or the other. Allocates nothing.
pub(crate) fn set_first_bytes(edits: impl Iterator<Item = (u64, u8)>) {
    const PAGE: u64 = 4096;
    let mut bytes = [0; PAGE as usize];
    // What is known of one page, which is written at once.
    let (mut from, mut len) = (0, 0);
    for (address, byte) in edits {
        if len == 0 || address / PAGE != from / PAGE {
            write(from, &bytes[..len]);
            (from, len) = (address, 0);
        }
        let at = (address - from) as usize;
        // SAFETY: code of the target that is about to change, up to an instruction of the same page.
        bytes[len..=at].copy_from_slice(unsafe { view(from + len as u64, (at + 1 - len) as u64) });
        bytes[at] = byte;
        len = at + 1;
    }
    write(from, &bytes[..len]);
    if threads::has_company() {
        synchronise();
    }
}

/// Replaces bytes of one instruction each, in a way that every thread sees the old one, a
/// breakpoint, or the new one. Who meets the breakpoint waits in its handler for our lock.
pub(crate) fn replace<'a>(edits: impl Iterator<Item = (u64, &'a [u8])> + Clone) {
    if !threads::has_company() {
        edits.for_each(|(address, bytes)| write(address, bytes));
        return;
    }
    for (address, _) in edits.clone() {
        write(address, &[BREAKPOINT]);
    }
    synchronise();
    for (address, bytes) in edits.clone() {
        if bytes.len() > 1 {
            write(address + 1, &bytes[1..]);
        }
    }
    synchronise();
    for (address, bytes) in edits {
        if bytes[0] != BREAKPOINT {
            write(address, &bytes[..1]);
        }
    }
    synchronise();
}

/// Whether two neighbouring bytes of code fit. Looks at all of them, without a branch: so it is done for many at once.
pub(crate) fn has_pair(code: &[u8], fits: impl Fn(u8, u8) -> bool) -> bool {
    let behind = code.get(1..).unwrap_or_default();
    let pairs = code.iter().zip(behind);
    pairs.fold(false, |found, (first, second)| {
        found | fits(*first, *second)
    })
}

/// Code of the target, as it is in memory now.
///
/// # Safety
/// The range is mapped readable and stays so while the slice is used.
pub(crate) unsafe fn view(address: u64, len: u64) -> &'static [u8] {
    // SAFETY: by the contract the range stays mapped and readable. The bytes may change when code is patched, which
    // callers allow for.
    unsafe { core::slice::from_raw_parts(address as *const u8, len as usize) }
}
