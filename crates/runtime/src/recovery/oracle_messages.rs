//! Messages to the oracle, and its orders.
//!
//! # Safety
//!
//! The kernel reads from and writes to this stack and the shared file only.
#![allow(unsafe_code, reason = "talks to the oracle")]

use core::sync::atomic::{AtomicI32, Ordering};

use powerfail_protocol::explore::{MESSAGE_LEN, RecoveryMessageKind, RecoveryOrder};

use crate::platform::number::{RECVFROM, SENDTO, WRITE};
use crate::platform::sys;

use super::shared_file;

const MSG_NOSIGNAL: usize = 0x4000;
const TEXT_AT: usize = 32;

static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// The pipe that standard output and standard error lead to.
static OUTPUT: AtomicI32 = AtomicI32::new(-1);

pub(super) fn use_descriptors(socket: i32, output: Option<i32>) {
    SOCKET.store(socket, Ordering::Relaxed);
    OUTPUT.store(output.unwrap_or(-1), Ordering::Relaxed);
}

/// Whether a descriptor is one of ours.
pub(super) fn owns(fd: i32) -> bool {
    fd >= 0 && (fd == socket() || fd == OUTPUT.load(Ordering::Relaxed))
}

/// What was written so far is the output of this process and of the copy that it is about to make.
pub(super) fn mark_output() {
    let output = OUTPUT.load(Ordering::Relaxed);
    if output < 0 {
        return;
    }
    let mark = &shared_file::control().output_mark;
    let arguments = [output as usize, mark.as_ptr() as usize, mark.len(), 0, 0, 0];
    // SAFETY: the kernel reads the mark, which is in the file for good.
    while unsafe { sys::call(WRITE, arguments) } == -sys::EINTR {}
}

fn socket() -> i32 {
    SOCKET.load(Ordering::Relaxed)
}

/// Sends a message. If the oracle is gone, the message is lost.
pub(super) fn send(kind: RecoveryMessageKind, words: [u64; 3], text: &str) {
    let mut message = [0u8; MESSAGE_LEN];
    message[..8].copy_from_slice(&(kind as u64).to_le_bytes());
    for (place, word) in message[8..TEXT_AT].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    // A zero must stay behind it.
    let len = text.len().min(MESSAGE_LEN - TEXT_AT - 1);
    message[TEXT_AT..TEXT_AT + len].copy_from_slice(&text.as_bytes()[..len]);
    let place = message.as_ptr() as usize;
    let arguments = [socket() as usize, place, MESSAGE_LEN, MSG_NOSIGNAL, 0, 0];
    // SAFETY: the kernel reads the message, which is on this stack.
    while unsafe { sys::call(SENDTO, arguments) } == -sys::EINTR {}
}

/// Waits for an order. If the oracle is gone, that means to end.
pub(super) fn order() -> RecoveryOrder {
    let mut word = 0u64;
    let arguments = [socket() as usize, &raw mut word as usize, 8, 0, 0, 0];
    loop {
        // SAFETY: the kernel writes a word to this stack.
        let done = unsafe { sys::call(RECVFROM, arguments) };
        if done == -sys::EINTR {
            continue;
        }
        let is = |order: RecoveryOrder| done == 8 && word == order as u64;
        return if is(RecoveryOrder::Run) {
            RecoveryOrder::Run
        } else if is(RecoveryOrder::Go) {
            RecoveryOrder::Go
        } else {
            RecoveryOrder::Stop
        };
    }
}

/// Says that an execution has ended, and waits for what is to be done next; ends if nothing is.
pub(super) fn ended(process: i32, status: i32) {
    let status = u64::from(status.cast_unsigned());
    let process = u64::from(process.cast_unsigned());
    send(RecoveryMessageKind::Ended, [process, status, 0], "");
    if order() == RecoveryOrder::Stop {
        sys::exit_group(0);
    }
}
