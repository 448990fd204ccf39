//! The socket over which the runtime sends messages, with their senders and descriptors.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;

use powerfail_protocol::message::{MessageHeader, MessageKind, TEXT_MAX};
use rustix::cmsg_space;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketFlags,
    SocketType,
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
    /// All senders have ended.
    End,
    /// Bytes that are not a message.
    Garbage,
}

/// The end of the host.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

/// How many bytes of messages the kernel buffers before senders wait.
const BUFFER_BYTES: usize = 4 << 20;

impl Socket {
    /// Makes a pair: the end of the host, and the end that the target inherits.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (socket, target) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // The kernel names the sender of each message: a socket is shared by all processes.
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        // The kernel cuts these at its own limit, and less is only slower.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&target, BUFFER_BYTES);
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        Ok((
            Self {
                socket,
                buffer: vec![0; MessageHeader::LEN + TEXT_MAX + 1],
            },
            target,
        ))
    }

    /// Receives one message, without waiting.
    pub(crate) fn receive(&mut self) -> io::Result<Received> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags) {
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
        let bytes = &self.buffer[..received.bytes];
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
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
