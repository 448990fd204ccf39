//! The connection to the host: the shared file and the socket.
//!
//! # Safety
//!
//! The host creates the shared file with the length and layout of `powerfail_protocol::shared`. It is mapped once,
//! at fixed addresses that are free, before `attached` says so, and stays mapped for good; everything in it that
//! changes is atomic, but for the blocks of threads, which are reached by raw pointers only. Callers need to
//! guarantee nothing.
#![allow(unsafe_code, reason = "the shared file lies at fixed addresses")]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use powerfail_protocol::message::{MessageHeader, MessageKind, TEXT_MAX};
use powerfail_protocol::shared::{
    CHUNKS_AT, CHUNKS_MAX, CONTROL_ADDRESS, DescriptorPath, HOST_VARIABLE, HostAddress,
    ListenerName, MAGIC, Mode, RecordingControl, SHARED_FD_VARIABLE, SLOTS_AT, SLOTS_MAX,
    SOCKET_FD_VARIABLE, ThreadSlot, chunk_address, chunk_offset,
};
use powerfail_protocol::{PROTOCOL_VERSION, chunk};

use crate::libc::execute;
use crate::platform::descriptor::{Descriptor, DescriptorCell};
use crate::platform::sys;
use crate::record::threads;
use crate::{fuzz, recovery};

static ATTACHED: AtomicBool = AtomicBool::new(false);
/// The socket.
static SOCKET: DescriptorCell = DescriptorCell::new();
/// The inherited shared file.
static SHARED: DescriptorCell = DescriptorCell::new();
/// The process to which this memory belongs. A child of `vfork` uses it, too, and has another number.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Where the host is: process, number of the shared file.
static HOST: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// Whether the target is being recorded.
pub(crate) fn attached() -> bool {
    ATTACHED.load(Ordering::Acquire)
}

/// Whether a descriptor is one of ours.
pub(crate) fn owns(fd: i32) -> bool {
    [&SOCKET, &SHARED].iter().any(|place| {
        let descriptor = place.last().filter(|descriptor| descriptor.fd == fd);
        descriptor.is_some_and(Descriptor::is_open)
    })
}

/// The number of the socket, if this process has one.
pub(crate) fn socket_number() -> Option<i32> {
    SOCKET.get().map(|socket| socket.fd)
}

/// The target is about to use the number of a descriptor of ours for itself: gives that another number.
pub(crate) fn move_away(fd: i32) {
    if let Some(socket) = SOCKET.get().filter(|socket| socket.fd == fd) {
        let copy = sys::copy_up(fd);
        if copy >= 0 {
            SOCKET.set(Some(Descriptor { fd: copy, ..socket }));
        }
    }
}

/// In the child after fork.
pub(crate) fn reset_after_fork() {
    PROCESS.store(sys::getpid(), Ordering::Relaxed);
}

/// The control page.
pub(crate) fn control() -> &'static RecordingControl {
    debug_assert!(attached());
    // SAFETY: mapped since `attach`, for good; all that changes in it is atomic.
    unsafe { &*(CONTROL_ADDRESS as *const RecordingControl) }
}

/// The thread slots.
pub(crate) fn slots() -> &'static [ThreadSlot] {
    // SAFETY: as for `control`; the blocks in the slots are reached by raw pointers only.
    unsafe {
        core::slice::from_raw_parts((CONTROL_ADDRESS + SLOTS_AT) as *const ThreadSlot, SLOTS_MAX)
    }
}

/// Those that a thread has or ever had.
pub(crate) fn used_slots() -> &'static [ThreadSlot] {
    let end = control().slots_end.load(Ordering::Acquire) as usize;
    &slots()[..end.min(SLOTS_MAX)]
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
    let inherited = number_from_environment(SHARED_FD_VARIABLE);
    let socket = number_from_environment(SOCKET_FD_VARIABLE);
    let (Some(inherited), Some(socket)) = (inherited, socket) else {
        return false;
    };
    let address = std::env::var(HOST_VARIABLE).ok();
    let address = address.and_then(|address| HostAddress::parse(&address));
    let opened = address.map_or(-1, open_shared);
    let shared = if opened >= 0 { opened } else { inherited };
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
    let control = unsafe { &*(CONTROL_ADDRESS as *const RecordingControl) };
    PROCESS.store(sys::getpid(), Ordering::Relaxed);
    if let Some(address) = address {
        HOST[0].store(address.process, Ordering::Relaxed);
        HOST[1].store(address.shared, Ordering::Relaxed);
    }
    let is_inherited = |descriptor: &Descriptor| {
        address.is_none_or(|address| address.socket_inode == descriptor.inode)
    };
    SOCKET.set(Descriptor::of(socket).filter(is_inherited));
    let is_shared = |descriptor: &Descriptor| descriptor.inode == status.inode as u32;
    SHARED.set(Descriptor::of(inherited).filter(is_shared));
    if control.magic != MAGIC || control.protocol_version != PROTOCOL_VERSION {
        fatal("the runtime and the host of powerfail are of different versions");
    }
    let count = control.chunk_count.min(CHUNKS_MAX as u32);
    if status.len_bytes < chunk_offset(count) {
        fatal("the shared file is too short");
    }
    for index in 0..count.min(control.common_count) {
        if map_chunk(shared, index) != chunk_address(index) as isize {
            fatal("the addresses that powerfail needs for its buffers are taken");
        }
    }
    ATTACHED.store(true, Ordering::Release);
    fuzz::attach(shared);
    if opened >= 0 {
        sys::close(opened);
    }
    execute::remember_variables();
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

fn map_chunk(shared: i32, index: u32) -> isize {
    let both = sys::PROT_READ | sys::PROT_WRITE;
    let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
    let (address, offset) = (chunk_address(index), chunk_offset(index));
    // SAFETY: MAP_FIXED_NOREPLACE fails where something is mapped, so no memory that is in use changes.
    unsafe { sys::mmap(address, chunk::LEN, both, flags, shared, offset) }
}

/// Maps a spare chunk, unless this process has mapped it before. Whether it is mapped now.
pub(crate) fn map_spare_chunk(index: u32) -> bool {
    const EEXIST: isize = 17;
    let [process, shared] = [0, 1].map(|place: usize| HOST[place].load(Ordering::Relaxed));
    let opened = open_shared(HostAddress {
        process,
        shared,
        socket_inode: 0,
    });
    if opened < 0 {
        return false;
    }
    let mapped = map_chunk(opened, index);
    sys::close(opened);
    mapped == chunk_address(index) as isize || mapped == -EEXIST
}

/// Opens the shared file as the host has it open; a negative number is an error.
fn open_shared(address: HostAddress) -> i32 {
    let path = format!("{}\0", DescriptorPath(address.process, address.shared));
    core::ffi::CStr::from_bytes_with_nul(path.as_bytes())
        .map_or(-1, |path| sys::open(path, sys::O_RDWR, 0))
}

/// A new connection to the host.
fn connect() -> Option<Descriptor> {
    const AF_UNIX: u16 = 1;
    const SEQPACKET: usize = 5;
    const CLOEXEC: usize = 0o2_000_000;
    const PATH_MAX: usize = 108;
    let [process, shared] = [0, 1].map(|place: usize| HOST[place].load(Ordering::Relaxed));
    if process == 0 {
        return None;
    }
    let name = format!(
        "{}",
        ListenerName(HostAddress {
            process,
            shared,
            socket_inode: 0,
        })
    );
    // Family, a zero byte for an abstract name, the name.
    let mut address = [0u8; 2 + PATH_MAX];
    address[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
    let len = 3 + name.len();
    address.get_mut(3..len)?.copy_from_slice(name.as_bytes());
    let arguments = [usize::from(AF_UNIX), SEQPACKET | CLOEXEC, 0, 0, 0, 0];
    // SAFETY: `socket` takes no pointer, and only adds a descriptor.
    let fd = unsafe { sys::call(sys::number::SOCKET, arguments) } as i32;
    if fd < 0 {
        return None;
    }
    let fd = sys::move_up(fd);
    loop {
        let arguments = [fd as usize, address.as_ptr() as usize, len, 0, 0, 0];
        // SAFETY: the kernel reads the address, which is on this stack.
        match unsafe { sys::call(sys::number::CONNECT, arguments) } {
            0 => return Descriptor::of(fd),
            error if error == -sys::EINTR => {}
            _ => {
                sys::close(fd);
                return None;
            }
        }
    }
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

/// Sends a message to the host, with a descriptor if one is given. Whether that was possible: if the host is gone, the
/// message is lost.
pub(crate) fn send(kind: MessageKind, words: [u64; 5], text: &[u8], fd: Option<i32>) -> bool {
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
    let is_sent = with_socket(|socket| {
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
                return result >= 0;
            }
        }
    });
    fuzz::has_sent();
    threads::keep_up_with_host();
    is_sent
}

/// Lets `send` send over the socket, or over a new one if the target has closed it.
fn with_socket(send: impl Fn(i32) -> bool) -> bool {
    let before = SOCKET.last();
    if let Some(socket) = before.filter(|socket| socket.is_open())
        && send(socket.fd)
    {
        return true;
    }
    let Some(fresh) = connect() else {
        return false;
    };
    let is_sent = send(fresh.fd);
    // The descriptors of a child of vfork are its own.
    let is_kept = owns_memory() && SOCKET.replace(before, fresh);
    if !is_kept {
        sys::close(fresh.fd);
    }
    is_sent
}

/// Whether this memory belongs to the calling process. A child of vfork uses that of its parent.
pub(crate) fn owns_memory() -> bool {
    sys::getpid() == PROCESS.load(Ordering::Relaxed)
}

/// The host cannot be asked: ends the target, and leaves a note where the host looks.
pub(crate) fn unreachable() -> ! {
    control()
        .unreachable_from
        .store(sys::getpid(), Ordering::Release);
    sys::exit_group(125)
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
