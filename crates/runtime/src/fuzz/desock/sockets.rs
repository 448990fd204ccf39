//! The functions of the C library on sockets that do not wait.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions: addresses are null or have the given length. Other calls
//! take pointers to this stack only, or none.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_protocol::shared::DESOCK_VARIABLE;

use crate::libc::interpose::{original, result};
use crate::platform::lock::Lock;
use crate::platform::number;
use crate::platform::sys;

use super::{client, wait};

pub(super) static ON: AtomicBool = AtomicBool::new(false);

/// Whether connections come from the input.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The process begins.
pub(crate) fn start() {
    if std::env::var_os(DESOCK_VARIABLE).is_some_and(|value| value == "1") {
        ON.store(true, Ordering::Relaxed);
        client::start();
    }
}

/// In a process that is a copy.
pub(crate) fn reset_after_fork() {
    SOCKETS.reset_after_fork();
    client::reset_after_fork();
}

pub(super) const AF_UNIX: c_int = 1;
pub(super) const AF_INET: c_int = 2;
pub(super) const AF_INET6: c_int = 10;
pub(super) const SOCK_STREAM: c_int = 1;
pub(super) const SOCK_DGRAM: c_int = 2;
pub(super) const SOCK_SEQPACKET: c_int = 5;
pub(super) const KIND: c_int = 15;

pub(super) const EINVAL: isize = 22;
pub(super) const ENOTCONN: isize = 107;
pub(super) const ECONNREFUSED: isize = 111;

/// The longest address that is kept.
pub(super) const ADDRESS_MAX: usize = 128;

/// An address, as the target gave it or would expect it.
#[derive(Clone, Copy)]
pub(super) struct Address {
    bytes: [u8; ADDRESS_MAX],
    len: usize,
}

impl Address {
    /// That of this machine for itself.
    pub(super) fn local(domain: c_int, port: u16) -> Self {
        let mut address = Self {
            bytes: [0; ADDRESS_MAX],
            len: 2,
        };
        address.bytes[..2].copy_from_slice(&(domain as u16).to_ne_bytes());
        if domain != AF_UNIX {
            address.bytes[2..4].copy_from_slice(&port.to_be_bytes());
        }
        match domain {
            AF_INET => {
                address.bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
                address.len = 16;
            }
            AF_INET6 => {
                address.bytes[23] = 1;
                address.len = 28;
            }
            _ => {}
        }
        address
    }

    /// # Safety
    /// There are so many bytes.
    unsafe fn read(start: *const u8, len: usize) -> Self {
        let len = len.min(ADDRESS_MAX);
        let mut bytes = [0; ADDRESS_MAX];
        // SAFETY: by the contract `len` bytes are readable at `start`; the array is longer, as `len` was limited
        // above.
        unsafe { core::ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), len) };
        Self { bytes, len }
    }

    /// # Safety
    /// There is room for what the length says, or none is wanted.
    unsafe fn write(&self, start: *mut u8, len: *mut u32) {
        if start.is_null() || len.is_null() {
            return;
        }
        // SAFETY: by the contract `len` points to the room at `start`, and no more than that is written.
        unsafe {
            let room = (len.read() as usize).min(self.len);
            core::ptr::copy_nonoverlapping(self.bytes.as_ptr(), start, room);
            len.write(self.len as u32);
        }
    }

    /// Gives it a port if it has none.
    pub(super) fn with_port(mut self, domain: c_int) -> Self {
        const ANY_PORT: u16 = 40_000;
        if domain != AF_UNIX && self.bytes[2..4] == [0, 0] {
            self.bytes[2..4].copy_from_slice(&ANY_PORT.to_be_bytes());
        }
        self
    }
}

/// A socket of the target that is not what it believes.
#[derive(Clone, Copy)]
pub(super) struct Fake {
    /// Which one it is, whatever its descriptors are.
    inode: u64,
    domain: c_int,
    kind: c_int,
    own: Option<Address>,
    peer: Option<Address>,
}

pub(super) static SOCKETS: Lock<Vec<Fake>> = Lock::new(Vec::new());

/// Does something with the socket behind a descriptor, if it is one of these.
pub(super) fn with_fake<R>(fd: c_int, work: impl FnOnce(&mut Fake) -> R) -> Option<R> {
    const SOCKET_TYPE: u32 = 0o140_000;
    const FILE_TYPE: u32 = 0o170_000;
    if !is_on() {
        return None;
    }
    let status = sys::fstat(fd).filter(|status| status.mode & FILE_TYPE == SOCKET_TYPE)?;
    SOCKETS.with(|sockets| {
        let fake = sockets.iter_mut().find(|fake| fake.inode == status.inode)?;
        Some(work(fake))
    })
}

pub(super) fn is_fake(fd: c_int) -> bool {
    with_fake(fd, |_| ()).is_some()
}

/// Whether a descriptor is a connection that the runtime has made.
pub(crate) fn is_connection(fd: c_int) -> bool {
    with_fake(fd, |fake| fake.peer.is_some()).unwrap_or(false)
}

pub(super) fn register(fd: c_int, domain: c_int, kind: c_int, peer: Option<Address>) {
    let Some(status) = sys::fstat(fd) else { return };
    let own = peer.map(|_| Address::local(domain, 40_000));
    SOCKETS.with(|sockets| {
        // Numbers of sockets that are gone are used again, long after.
        sockets.retain(|fake| fake.inode != status.inode);
        sockets.push(Fake {
            inode: status.inode,
            domain,
            kind,
            own,
            peer,
        });
    });
}

/// # Safety
/// As the system call.
pub(super) unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: the contract is that of `sys::call`.
    unsafe { sys::call(number, arguments) }
}

#[unsafe(no_mangle)]
extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_ours = is_on()
        && matches!(domain, AF_UNIX | AF_INET | AF_INET6)
        && matches!(kind & KIND, SOCK_STREAM | SOCK_DGRAM | SOCK_SEQPACKET);
    if !is_ours {
        type Make = extern "C" fn(c_int, c_int, c_int) -> c_int;
        return original!("socket" as Make)(domain, kind, protocol);
    }
    let arguments = [AF_UNIX as usize, kind as usize, 0, 0, 0, 0];
    // SAFETY: `socket` takes no pointer.
    let fd = result(unsafe { call(number::SOCKET, arguments) }) as c_int;
    if fd >= 0 {
        register(fd, domain, kind & KIND, None);
    }
    fd
}

/// Gives a socket a name that the kernel chooses.
pub(super) fn bind_anywhere(fd: c_int) -> isize {
    let family = (AF_UNIX as u16).to_ne_bytes();
    let arguments = [fd as usize, family.as_ptr() as usize, 2, 0, 0, 0];
    // SAFETY: an address of two bytes.
    unsafe { call(number::BIND, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const u8, len: u32) -> c_int {
    if !is_fake(fd) {
        type Bind = extern "C" fn(c_int, *const u8, u32) -> c_int;
        return original!("bind" as Bind)(fd, address, len);
    }
    if address.is_null() {
        return result(-EINVAL) as c_int;
    }
    // SAFETY: by the contract of `bind` the target has `len` readable bytes at `address`.
    let wanted = unsafe { Address::read(address, len as usize) };
    with_fake(fd, |fake| fake.own = Some(wanted.with_port(fake.domain)));
    result(bind_anywhere(fd)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    const ENOUGH: usize = 64;
    if !is_fake(fd) {
        return original!("listen" as extern "C" fn(c_int, c_int) -> c_int)(fd, backlog);
    }
    // Fails if it has a name already.
    bind_anywhere(fd);
    // SAFETY: `listen` takes no pointer.
    let done = unsafe { call(number::LISTEN, [fd as usize, ENOUGH, 0, 0, 0, 0]) };
    if done == 0 {
        client::listens(fd);
    }
    result(done) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, address: *const u8, len: u32) -> c_int {
    type Connect = extern "C" fn(c_int, *const u8, u32) -> c_int;
    if is_fake(fd) {
        return result(-ECONNREFUSED) as c_int;
    }
    original!("connect" as Connect)(fd, address, len)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, address: *mut u8, len: *mut u32) -> c_int {
    if !is_fake(fd) {
        type Accept = extern "C" fn(c_int, *mut u8, *mut u32) -> c_int;
        return original!("accept" as Accept)(fd, address, len);
    }
    // SAFETY: by the contract of `accept` both pointers are null, or `len` points to the room at `address`.
    unsafe { accept_as(fd, address, len, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(fd: c_int, address: *mut u8, len: *mut u32, flags: c_int) -> c_int {
    if !is_fake(fd) {
        type Accept = extern "C" fn(c_int, *mut u8, *mut u32, c_int) -> c_int;
        return original!("accept4" as Accept)(fd, address, len, flags);
    }
    // SAFETY: by the contract of `accept4` both pointers are null, or `len` points to the room at `address`.
    unsafe { accept_as(fd, address, len, flags) }
}

/// # Safety
/// As `accept4`.
pub(super) unsafe fn accept_as(fd: c_int, address: *mut u8, len: *mut u32, flags: c_int) -> c_int {
    wait::before_accept(fd);
    let arguments = [fd as usize, 0, 0, flags as usize, 0, 0];
    // SAFETY: nothing is written to memory.
    let connection = result(unsafe { call(number::ACCEPT4, arguments) }) as c_int;
    if connection >= 0 {
        let domain = with_fake(fd, |fake| fake.domain).unwrap_or(AF_INET);
        let peer = Address::local(domain, 50_000);
        register(connection, domain, SOCK_STREAM, Some(peer));
        // SAFETY: by the contract both are null, which `write` checks, or `len` points to the room at `address`.
        unsafe { peer.write(address, len) };
    }
    connection
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(fd: c_int, address: *mut u8, len: *mut u32) -> c_int {
    let own = with_fake(fd, |fake| {
        fake.own.unwrap_or_else(|| Address::local(fake.domain, 0))
    });
    let Some(own) = own else {
        type Ask = extern "C" fn(c_int, *mut u8, *mut u32) -> c_int;
        return original!("getsockname" as Ask)(fd, address, len);
    };
    // SAFETY: by the contract of `getsockname` `len` points to the room at `address`.
    unsafe { own.write(address, len) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(fd: c_int, address: *mut u8, len: *mut u32) -> c_int {
    match with_fake(fd, |fake| fake.peer) {
        Some(Some(peer)) => {
            // SAFETY: by the contract of `getpeername` `len` points to the room at `address`.
            unsafe { peer.write(address, len) };
            0
        }
        Some(None) => result(-ENOTCONN) as c_int,
        None => {
            type Ask = extern "C" fn(c_int, *mut u8, *mut u32) -> c_int;
            original!("getpeername" as Ask)(fd, address, len)
        }
    }
}

pub(super) const SOL_SOCKET: c_int = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: u32,
) -> c_int {
    if !is_fake(fd) {
        type Set = extern "C" fn(c_int, c_int, c_int, *const c_void, u32) -> c_int;
        return original!("setsockopt" as Set)(fd, level, name, value, len);
    }
    if level == SOL_SOCKET {
        let arguments = [
            fd as usize,
            level as usize,
            name as usize,
            value as usize,
            len as usize,
            0,
        ];
        // SAFETY: the kernel only reads the value, and checks its address. Options that a local socket does not have
        // are refused, which does not matter.
        unsafe { call(number::SETSOCKOPT, arguments) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut u32,
) -> c_int {
    const SO_PROTOCOL: c_int = 38;
    const SO_DOMAIN: c_int = 39;
    const TCP: c_int = 6;
    type Get = extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut u32) -> c_int;
    let Some((domain, kind)) = with_fake(fd, |fake| (fake.domain, fake.kind)) else {
        return original!("getsockopt" as Get)(fd, level, name, value, len);
    };
    let answer = match (level, name) {
        (SOL_SOCKET, SO_DOMAIN) => domain,
        (SOL_SOCKET, SO_PROTOCOL) if domain != AF_UNIX && kind == SOCK_STREAM => TCP,
        (SOL_SOCKET, _) => {
            let arguments = [
                fd as usize,
                level as usize,
                name as usize,
                value as usize,
                len as usize,
                0,
            ];
            // SAFETY: the arguments are those of the target's call, and the kernel checks both addresses.
            return result(unsafe { call(number::GETSOCKOPT, arguments) }) as c_int;
        }
        _ => 0,
    };
    if value.is_null() || len.is_null() {
        return result(-EINVAL) as c_int;
    }
    // SAFETY: by the contract of `getsockopt` `len` points to the room at `value`, and no more than that is written.
    unsafe {
        let room = (len.read() as usize).min(size_of::<c_int>());
        core::ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), value.cast(), room);
        len.write(room as u32);
    }
    0
}
