//! The socket over which the runtime sends messages, with their senders and descriptors.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;

use powerfail_protocol::message::{MessageHeader, MessageKind, TEXT_MAX};
use rustix::cmsg_space;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Pid;

/// A message.
#[derive(Debug)]
pub(crate) struct Message {
    /// The process that sent it, as the kernel reports it.
    pub(crate) sender: Option<Pid>,
    /// Its kind; `None` if it is unknown.
    pub(crate) kind: Option<MessageKind>,
    /// Meaning depends on the kind.
    pub(crate) words: [u64; 5],
    /// Meaning depends on the kind.
    pub(crate) text: Vec<u8>,
    /// The descriptor that came with it.
    pub(crate) file: Option<OwnedFd>,
}

/// The result of receiving without waiting.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message.
    Message(Message),
    /// Nothing for now.
    Nothing,
    /// There is no connection.
    End,
    /// Bytes that are not a message.
    Garbage,
}

/// The end of the host: the connections of all processes.
///
/// The processes of a target inherit one connection. One that has lost it makes a new one, if the host listens. A process
/// uses its newest connection only, and older ones are emptied first, so its messages stay in order.
#[derive(Debug)]
pub(crate) struct Socket {
    /// The oldest first.
    connections: Vec<OwnedFd>,
    listener: Option<OwnedFd>,
    /// Readable while any of the others is.
    readable: OwnedFd,
    buffer: Vec<u8>,
}

/// How many bytes of messages the kernel buffers before senders wait.
const BUFFER_BYTES: usize = 4 << 20;
/// How many connections may wait to be accepted.
const BACKLOG: i32 = 128;

impl Socket {
    /// Makes a pair: the end of the host, and the end that the target inherits.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (socket, target) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // The kernel cuts this at its own limit, and less is only slower.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&target, BUFFER_BYTES);
        let mut pair = Self {
            connections: Vec::new(),
            listener: None,
            readable: epoll::create(CreateFlags::CLOEXEC)?,
            buffer: vec![0; MessageHeader::LEN + TEXT_MAX + 1],
        };
        pair.add(socket)?;
        Ok((pair, target))
    }

    /// From now on accepts further connections, under this abstract name.
    pub(crate) fn listen(&mut self, name: &str) -> io::Result<()> {
        let listener = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        // Connections inherit this, and may have messages before they are accepted.
        rustix::net::sockopt::set_socket_passcred(&listener, true)?;
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        rustix::net::bind(&listener, &address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        self.watch(&listener)?;
        self.listener = Some(listener);
        Ok(())
    }

    fn watch(&self, socket: &OwnedFd) -> io::Result<()> {
        let data = EventData::new_u64(0);
        epoll::add(&self.readable, socket, data, EventFlags::IN)?;
        Ok(())
    }

    fn add(&mut self, socket: OwnedFd) -> io::Result<()> {
        // The kernel names the sender of each message: a connection is shared by a process and its children.
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        self.watch(&socket)?;
        self.connections.push(socket);
        Ok(())
    }

    /// Accepts a connection of a process of the same user. Whether there was one.
    fn accept(&mut self) -> io::Result<bool> {
        let Some(listener) = &self.listener else {
            return Ok(false);
        };
        loop {
            let socket = match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => return Err(error.into()),
            };
            let peer = rustix::net::sockopt::socket_peercred(&socket)?;
            if peer.uid == rustix::process::geteuid() {
                self.add(socket)?;
                return Ok(true);
            }
        }
    }

    /// Receives one message, without waiting.
    pub(crate) fn receive(&mut self) -> io::Result<Received> {
        loop {
            let mut at = 0;
            while let Some(socket) = self.connections.get(at) {
                match receive_from(socket, &mut self.buffer)? {
                    Received::Nothing => at += 1,
                    Received::End => drop(self.connections.remove(at)),
                    received => return Ok(received),
                }
            }
            if !self.accept()? {
                break;
            }
        }
        Ok(if self.connections.is_empty() {
            Received::End
        } else {
            Received::Nothing
        })
    }
}

/// Receives one message of one connection, without waiting.
fn receive_from(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
            Ok(received) => break received,
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            // A sender that died with messages of the host unread; there are none of ours.
            Err(Errno::CONNRESET) => return Ok(Received::End),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let mut sender = None;
    let mut file = None;
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(files) => file = files.last().or(file),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid),
            _ => {}
        }
    }
    if received.bytes == 0 {
        return Ok(Received::End);
    }
    let bytes = &buffer[..received.bytes];
    let Some(header) = MessageHeader::from_bytes(bytes) else {
        return Ok(Received::Garbage);
    };
    let text = &bytes[MessageHeader::LEN..];
    if received.flags.contains(ReturnFlags::TRUNC) || text.len() != header.text_len as usize {
        return Ok(Received::Garbage);
    }
    Ok(Received::Message(Message {
        sender,
        kind: MessageKind::from_number(header.kind),
        words: header.words,
        text: text.to_vec(),
        file,
    }))
}

/// Readable while there is something to receive.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
