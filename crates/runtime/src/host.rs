//! The connection to the host: the shared file and the socket.
//!
//! # Safety
//!
//! The host creates the shared file with the length and layout of `powerfail_protocol::shared`. It is mapped once,
//! at fixed addresses that are free, before `attached` says so, and stays mapped for good; everything in it that
//! changes is atomic, but for the blocks of threads, which are reached by raw pointers only. Callers need to
//! guarantee nothing.
#![allow(unsafe_code, reason = "the shared file lies at fixed addresses")]

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use powerfail_protocol::message::{MessageHeader, MessageKind, TEXT_MAX};
use powerfail_protocol::shared::{
    CHUNKS_AT, CHUNKS_MAX, CONTROL_ADDRESS, Control, MAGIC, Mode, SHARED_FD_VARIABLE, SLOTS_AT,
    SLOTS_MAX, SOCKET_FD_VARIABLE, ThreadSlot, chunk_address, chunk_offset,
};
use powerfail_protocol::{PROTOCOL_VERSION, chunk};

use crate::platform::sys;
use crate::{fuzz, recovery};

static ATTACHED: AtomicBool = AtomicBool::new(false);
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static SHARED: AtomicI32 = AtomicI32::new(-1);

/// Whether the target is being recorded.
pub(crate) fn attached() -> bool {
    ATTACHED.load(Ordering::Acquire)
}

/// Whether a descriptor is one of ours.
pub(crate) fn owns(fd: i32) -> bool {
    fd >= 0 && (fd == SOCKET.load(Ordering::Relaxed) || fd == SHARED.load(Ordering::Relaxed))
}

/// The control page.
pub(crate) fn control() -> &'static Control {
    debug_assert!(attached());
    // SAFETY: mapped since `attach`, for good; all that changes in it is atomic.
    unsafe { &*(CONTROL_ADDRESS as *const Control) }
}

/// The thread slots.
pub(crate) fn slots() -> &'static [ThreadSlot] {
    // SAFETY: as for `control`; the blocks in the slots are reached by raw pointers only.
    unsafe {
        core::slice::from_raw_parts((CONTROL_ADDRESS + SLOTS_AT) as *const ThreadSlot, SLOTS_MAX)
    }
}

/// How stores are to be caught.
pub(crate) fn mode() -> Mode {
    if control().mode == Mode::Trap as u32 {
        Mode::Trap
    } else {
        Mode::Patch
    }
}

fn number_from_environment(name: &str) -> Option<i32> {
    std::env::var(name).ok()?.parse().ok()
}

/// Maps what the host shares, if there is a host.
pub(crate) fn attach() -> bool {
    let shared = number_from_environment(SHARED_FD_VARIABLE);
    let socket = number_from_environment(SOCKET_FD_VARIABLE);
    let (Some(shared), Some(socket)) = (shared, socket) else {
        return false;
    };
    let Some(status) = sys::fstat(shared) else {
        return false;
    };
    let both = sys::PROT_READ | sys::PROT_WRITE;
    let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: MAP_FIXED_NOREPLACE fails where something is mapped, so no memory that is in use changes.
    let result = unsafe { sys::mmap(CONTROL_ADDRESS, CHUNKS_AT, both, flags, shared, 0) };
    if result != CONTROL_ADDRESS as isize {
        return false;
    }
    // SAFETY: just mapped.
    let control = unsafe { &*(CONTROL_ADDRESS as *const Control) };
    SOCKET.store(socket, Ordering::Relaxed);
    SHARED.store(shared, Ordering::Relaxed);
    if control.magic != MAGIC || control.protocol_version != PROTOCOL_VERSION {
        fatal("the runtime and the host of powerfail are of different versions");
    }
    let count = control.chunk_count.min(CHUNKS_MAX as u32);
    if status.len_bytes < chunk_offset(count) {
        fatal("the shared file is too short");
    }
    for index in 0..count {
        let address = chunk_address(index);
        // SAFETY: MAP_FIXED_NOREPLACE fails where something is mapped, so no memory that is in use changes.
        let result = unsafe {
            sys::mmap(
                address,
                chunk::LEN,
                both,
                flags,
                shared,
                chunk_offset(index),
            )
        };
        if result != address as isize {
            fatal("the addresses that powerfail needs for its buffers are taken");
        }
    }
    ATTACHED.store(true, Ordering::Release);
    fuzz::attach(shared);
    let mut path = [0u8; TEXT_MAX];
    let len = read_link(c"/proc/self/exe", &mut path);
    let words = [
        u64::from(PROTOCOL_VERSION),
        u64::from(sys::getpid()),
        0,
        0,
        0,
    ];
    send(MessageKind::Hello, words, &path[..len], None);
    true
}

/// Reads a symbolic link; the length of what it names.
pub(crate) fn read_link(link: &core::ffi::CStr, out: &mut [u8]) -> usize {
    let arguments = [
        link.as_ptr() as usize,
        out.as_mut_ptr() as usize,
        out.len(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most `out.len()` bytes.
    let len = unsafe { sys::call(sys::number::READLINK, arguments) };
    usize::try_from(len).unwrap_or(0)
}

#[repr(C)]
struct Slice {
    start: *const u8,
    len: usize,
}

#[repr(C)]
struct MessageParts {
    name: usize,
    name_len: usize,
    parts: *const Slice,
    part_count: usize,
    control: *const u8,
    control_len: usize,
    flags: usize,
}

#[repr(C, align(8))]
struct Rights {
    len: usize,
    level: i32,
    kind: i32,
    fd: i32,
    padding: i32,
}

const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const MSG_NOSIGNAL: usize = 0x4000;

/// Sends a message to the host, with a descriptor if one is given. If the host is gone, the message is lost.
pub(crate) fn send(kind: MessageKind, words: [u64; 5], text: &[u8], fd: Option<i32>) {
    let text = &text[..text.len().min(TEXT_MAX)];
    let header = MessageHeader {
        kind: kind as u32,
        text_len: text.len() as u32,
        words,
    }
    .to_bytes();
    let parts = [
        Slice {
            start: header.as_ptr(),
            len: header.len(),
        },
        Slice {
            start: text.as_ptr(),
            len: text.len(),
        },
    ];
    let rights = Rights {
        len: 20,
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        fd: fd.unwrap_or(-1),
        padding: 0,
    };
    let has_rights = fd.is_some();
    let message = MessageParts {
        name: 0,
        name_len: 0,
        parts: parts.as_ptr(),
        part_count: parts.len(),
        control: if has_rights {
            (&raw const rights).cast()
        } else {
            core::ptr::null()
        },
        control_len: if has_rights { size_of::<Rights>() } else { 0 },
        flags: 0,
    };
    let socket = SOCKET.load(Ordering::Relaxed);
    loop {
        let arguments = [
            socket as usize,
            &raw const message as usize,
            MSG_NOSIGNAL,
            0,
            0,
            0,
        ];
        // SAFETY: everything that the message points to is on this stack.
        let result = unsafe { sys::call(sys::number::SENDMSG, arguments) };
        if result != -sys::EINTR {
            break;
        }
    }
    fuzz::has_sent();
}

/// Something that the recording cannot show.
pub(crate) fn warn(sentence: &str) {
    if recovery::is_active() {
        recovery::warn(sentence);
        return;
    }
    send(MessageKind::Warning, [0; 5], sentence.as_bytes(), None);
}

/// The target does what cannot be recorded: says so and ends it.
pub(crate) fn fatal(sentence: &str) -> ! {
    if recovery::is_active() {
        recovery::refuse(sentence);
    }
    send(MessageKind::Fatal, [0; 5], sentence.as_bytes(), None);
    sys::exit_group(125)
}
