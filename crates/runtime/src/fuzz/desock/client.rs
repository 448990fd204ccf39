//! The client: makes one connection after the other and sends the input.
//!
//! # Safety
//!
//! All memory that the kernel reads and writes is the runtime's; descriptors are those that the runtime has opened,
//! or the standard input.
#![allow(unsafe_code, reason = "makes system calls of the runtime")]

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::sockets::AF_UNIX;
use crate::fuzz;
use crate::platform::lock::Lock;
use crate::platform::number;
use crate::platform::number::{IOCTL, POLL, READ};
use crate::platform::sys;

const SOCK_STREAM: usize = 1;
const SOCK_NONBLOCK: usize = 0o4000;
const SOCK_CLOEXEC: usize = 0o2_000_000;
const MSG_DONTWAIT: usize = 0x40;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_TRUNC: usize = 0x20;
const EAGAIN: isize = 11;

struct Client {
    /// The socket at which the target listens, the first one; negative if there is none.
    listener: c_int,
    /// The process that has read the input; 0 if none has.
    owner: u32,
    input: Vec<u8>,
    /// Where the part of the input begins that belongs to no connection yet.
    next: usize,
    /// Whether there is such a part, even if it is empty.
    has_next: bool,
    /// The connection; negative if there is none.
    socket: c_int,
    /// What of the input is still to be sent on it: from, to.
    unsent: (usize, usize),
}

static CLIENT: Lock<Client> = Lock::new(Client {
    listener: -1,
    owner: 0,
    input: Vec::new(),
    next: 0,
    has_next: false,
    socket: -1,
    unsent: (0, 0),
});

/// Whether something could not be sent yet.
static IS_BEHIND: AtomicBool = AtomicBool::new(false);

pub(super) fn reset_after_fork() {
    CLIENT.reset_after_fork();
}

/// The target listens at a socket.
pub(super) fn listens(fd: c_int) {
    CLIENT.with(|client| {
        if client.listener < 0 {
            client.listener = fd;
        }
    });
}

/// What is to be expected of the client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It has nothing to do with this process.
    Absent,
    /// It has this connection, which ends some time.
    Connected(c_int),
    /// The target has shut its side down, but not closed it.
    Leaving,
    /// Nothing will come any more.
    Finished,
}

/// The target waits for a client: does the next steps, as far as possible.
pub(super) fn go_on() -> State {
    let is_first = CLIENT.with(|client| client.listener >= 0 && client.owner == 0);
    if is_first {
        // Returns in each execution.
        fuzz::reached_input();
    }
    CLIENT.with(|client| {
        if client.listener < 0 {
            return State::Absent;
        }
        if client.owner == 0 {
            client.begin();
        }
        if client.owner != sys::getpid() {
            return State::Absent;
        }
        client.step()
    })
}

/// The target reads from a socket: sends what is left.
pub(crate) fn feed() {
    if IS_BEHIND.load(Ordering::Relaxed) {
        CLIENT.with(Client::send);
    }
}

/// # Safety
/// As the system call.
unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: the contract is that of `sys::call`, and callers pass only memory of the runtime.
    unsafe { sys::call(number, arguments) }
}

impl Client {
    fn begin(&mut self) {
        self.owner = sys::getpid();
        self.input = read_input();
        self.has_next = true;
        // Connections that another execution has made and that were never accepted.
        let flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
        loop {
            // Whether the socket waits is up to the target: so it is asked first.
            if !is_ready(self.listener) {
                break;
            }
            let arguments = [self.listener as usize, 0, 0, flags, 0, 0];
            // SAFETY: nothing is written to memory.
            let left = unsafe { call(number::ACCEPT4, arguments) };
            if left < 0 {
                break;
            }
            close(left as c_int);
        }
    }

    fn step(&mut self) -> State {
        if self.socket >= 0 {
            self.send();
            self.drain();
            if !has_hung_up(self.socket) {
                return State::Connected(self.socket);
            }
            if unread(self.socket) > 0 {
                return State::Leaving;
            }
            close(self.socket);
            self.socket = -1;
            IS_BEHIND.store(false, Ordering::Relaxed);
        }
        if !self.has_next {
            return State::Finished;
        }
        self.connect();
        if self.socket < 0 {
            return State::Finished;
        }
        self.send();
        State::Connected(self.socket)
    }

    /// Makes the next connection.
    fn connect(&mut self) {
        let (end, next) = end_of_connection(&self.input, self.next);
        self.unsent = (self.next, end);
        self.has_next = next.is_some();
        self.next = next.unwrap_or(self.input.len());
        let mut address = [0u8; 128];
        let mut len = address.len() as u32;
        let flags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
        // SAFETY: the kernel reads and writes what is on this stack, and not beyond.
        unsafe {
            let place = [
                self.listener as usize,
                address.as_mut_ptr() as usize,
                &raw mut len as usize,
                0,
                0,
                0,
            ];
            if call(number::GETSOCKNAME, place) != 0 {
                return;
            }
            let made = call(number::SOCKET, [AF_UNIX as usize, flags, 0, 0, 0, 0]);
            if made < 0 {
                return;
            }
            self.socket = sys::move_up(made as c_int);
            let target = [
                self.socket as usize,
                address.as_ptr() as usize,
                len as usize,
                0,
                0,
                0,
            ];
            if call(number::CONNECT, target) != 0 {
                close(self.socket);
                self.socket = -1;
            }
        }
    }

    /// Sends as much as there is room for, and says when that was all.
    fn send(&mut self) {
        const WRITE_SIDE: usize = 1;
        if self.socket < 0 || self.unsent.0 > self.unsent.1 {
            return;
        }
        while self.unsent.0 < self.unsent.1 {
            let bytes = &self.input[self.unsent.0..self.unsent.1];
            let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
            let arguments = [
                self.socket as usize,
                bytes.as_ptr() as usize,
                bytes.len(),
                flags,
                0,
                0,
            ];
            // SAFETY: the kernel reads these bytes.
            let sent = unsafe { call(number::SENDTO, arguments) };
            if sent == -EAGAIN {
                IS_BEHIND.store(true, Ordering::Relaxed);
                return;
            }
            if sent <= 0 {
                break;
            }
            self.unsent.0 += sent as usize;
        }
        self.unsent = (1, 0);
        IS_BEHIND.store(false, Ordering::Relaxed);
        // SAFETY: `shutdown` takes no pointer, and the socket was made here.
        unsafe {
            call(
                number::SHUTDOWN,
                [self.socket as usize, WRITE_SIDE, 0, 0, 0, 0],
            )
        };
    }

    /// Forgets what the target has sent.
    fn drain(&self) {
        let mut bytes = [0u8; 4096];
        loop {
            let arguments = [
                self.socket as usize,
                bytes.as_mut_ptr() as usize,
                bytes.len(),
                MSG_DONTWAIT | MSG_TRUNC,
                0,
                0,
            ];
            // SAFETY: there is room for so many bytes.
            if unsafe { call(number::RECVFROM, arguments) } <= 0 {
                return;
            }
        }
    }
}

/// Where the connection that begins at `from` ends in the input, and where the next one begins.
fn end_of_connection(input: &[u8], from: usize) -> (usize, Option<usize>) {
    const LINE: &[u8] = b"\0\n";
    let mut at = from;
    while at < input.len() {
        if input[at..].starts_with(LINE) {
            return (at, Some(at + LINE.len()));
        }
        let end = input[at..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end else { break };
        at += end + 1;
    }
    (input.len(), None)
}

/// The descriptor from which the input is read: a copy of 0, which servers close.
static INPUT: AtomicI32 = AtomicI32::new(0);

/// The process begins.
pub(super) fn start() {
    let copy = sys::copy_up(0);
    if copy >= 0 {
        INPUT.store(copy, Ordering::Relaxed);
    }
}

/// All of the input.
fn read_input() -> Vec<u8> {
    const PART: usize = 64 * 1024;
    let mut input = Vec::new();
    let mut by_position = true;
    let fd = INPUT.load(Ordering::Relaxed) as usize;
    loop {
        let len = input.len();
        input.resize(len + PART, 0);
        let room = input[len..].as_mut_ptr() as usize;
        // Another execution may have read from the same open file.
        // SAFETY: there is room for so many bytes.
        let read = unsafe {
            let mut read = -1;
            if by_position {
                read = call(sys::number::PREAD64, [fd, room, PART, len, 0, 0]);
            }
            if read < 0 {
                by_position = false;
                read = call(READ, [fd, room, PART, 0, 0, 0]);
            }
            read
        };
        input.truncate(len + read.max(0) as usize);
        if read <= 0 && read != -sys::EINTR {
            return input;
        }
    }
}

fn close(fd: c_int) {
    sys::close(fd);
}

pub(super) const POLL_IN: i16 = 1;
pub(super) const POLL_ERROR: i16 = 8;
pub(super) const POLL_HANG_UP: i16 = 16;

/// What `poll` is asked and answers.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Polled {
    pub(super) fd: c_int,
    pub(super) wanted: i16,
    pub(super) there: i16,
}

/// What a descriptor is ready for at this moment.
fn ready_for(fd: c_int, wanted: i16) -> i16 {
    let mut polled = Polled {
        fd,
        wanted,
        there: 0,
    };
    // SAFETY: one descriptor, on this stack.
    unsafe { call(POLL, [&raw mut polled as usize, 1, 0, 0, 0, 0]) };
    polled.there
}

fn is_ready(fd: c_int) -> bool {
    ready_for(fd, POLL_IN) & POLL_IN != 0
}

fn has_hung_up(fd: c_int) -> bool {
    ready_for(fd, 0) & (POLL_HANG_UP | POLL_ERROR) != 0
}

/// How much of what was sent the target has not read.
fn unread(fd: c_int) -> c_int {
    const SIOCOUTQ: usize = 0x5411;
    let mut count: c_int = 0;
    // SAFETY: the kernel writes a number to this stack.
    unsafe {
        call(
            IOCTL,
            [fd as usize, SIOCOUTQ, &raw mut count as usize, 0, 0, 0],
        )
    };
    count
}
