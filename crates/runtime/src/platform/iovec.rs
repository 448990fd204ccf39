//! Buffers in several parts, as system calls take them: `struct iovec` and `struct msghdr`.
//!
//! # Safety
//!
//! Callers guarantee that addresses are arguments of a system call that the target is about to make or has made, so
//! that the kernel reads the same memory. A target that passes an invalid address would get `EFAULT` from the kernel,
//! and faults here instead.
#![allow(unsafe_code, reason = "reads and writes arguments of system calls")]

/// The most parts that the kernel takes (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;

/// `struct iovec`: one part of a buffer.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) address: u64,
    pub(crate) len: u64,
}

/// `struct msghdr`: what `sendmsg` and `recvmsg` take.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Message {
    name: usize,
    name_len: usize,
    parts: *const Part,
    part_count: usize,
    control: usize,
    control_len: usize,
    flags: usize,
}

/// The parts of a buffer; none if the kernel would refuse them.
///
/// # Safety
/// The target passes `address` and `count` to the kernel as an array of `struct iovec`.
pub(crate) unsafe fn parts(address: usize, count: usize) -> &'static [Part] {
    if address == 0 || count == 0 || count > PARTS_MAX {
        return &[];
    }
    // SAFETY: by the contract the target has `count` parts there, and it waits for this call to end.
    unsafe { core::slice::from_raw_parts(address as *const Part, count) }
}

/// The parts of a message; none if its address is null.
///
/// # Safety
/// The target passes `message` to the kernel as a `struct msghdr`.
pub(crate) unsafe fn parts_of_message(message: *const Message) -> &'static [Part] {
    if message.is_null() {
        return &[];
    }
    // SAFETY: by the contract the target has a message there, whose parts it passes to the kernel with it.
    unsafe { parts((*message).parts as usize, (*message).part_count) }
}

/// Makes a call on a message as if it had other parts. `make` gets the address of the message to use; everything
/// else that the kernel writes to that one is copied to the target's.
///
/// # Safety
/// The target passes `message`, which is not null, to the kernel as a `struct msghdr`.
pub(crate) unsafe fn with_other_parts(
    message: *mut Message,
    parts: &[Part],
    make: impl FnOnce(usize) -> isize,
) -> isize {
    // SAFETY: by the contract the kernel may read and write the message; the target waits for this call to end.
    unsafe {
        let mut other = Message {
            parts: parts.as_ptr(),
            part_count: parts.len(),
            ..*message
        };
        let done = make(&raw mut other as usize);
        *message = Message {
            parts: (*message).parts,
            part_count: (*message).part_count,
            ..other
        };
        done
    }
}

/// How many bytes there are in all parts.
pub(crate) fn len_of(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.len).sum()
}
