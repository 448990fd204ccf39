//! The socket between a zygote and the processes of a command that runs with the runtime.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use powerfail_protocol::explore::{MESSAGE_LEN, RecoveryMessageKind, RecoveryOrder, RefusalKind};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};

use crate::message::Refusal;

/// The zygote's end. All processes of a command share the other end; one at a time waits for an order.
#[derive(Debug)]
pub(crate) struct RuntimeSocket(OwnedFd);

/// A message and its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentMessage {
    /// The process, as the kernel reports it.
    pub(crate) sender: i32,
    pub(crate) message: Message,
}

/// What a process of the recovery says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    AtSnapshot,
    NoSnapshot(String),
    /// The status is that of `wait4`.
    Ended {
        status: i32,
    },
    Refused(Refusal),
    Warning(String),
}

/// The result of receiving without waiting.
#[derive(Debug)]
pub(crate) enum Received {
    Message(SentMessage),
    Nothing,
    /// All processes of the command have ended.
    Closed,
}

impl RuntimeSocket {
    /// The zygote's end, and the end of the processes.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        sockopt::set_socket_passcred(&ours, true)?;
        Ok((Self(ours), theirs))
    }

    /// Receives a message, without waiting. Messages that make no sense are skipped.
    pub(crate) fn receive(&self) -> io::Result<Received> {
        loop {
            let mut bytes = [0; MESSAGE_LEN];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let slices = &mut [IoSliceMut::new(&mut bytes)];
            let len = match recvmsg(&self.0, slices, &mut ancillary, RecvFlags::DONTWAIT) {
                Ok(received) => received.bytes,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::CONNRESET) => return Ok(Received::Closed),
                Err(error) => return Err(error.into()),
            };
            if len == 0 {
                return Ok(Received::Closed);
            }
            let sender = ancillary.drain().find_map(|it| match it {
                RecvAncillaryMessage::ScmCredentials(it) => Some(it.pid.as_raw_nonzero().get()),
                _ => None,
            });
            if let Some(message) = decode(&bytes[..len]) {
                return Ok(Received::Message(SentMessage {
                    sender: sender.unwrap_or(0),
                    message,
                }));
            }
        }
    }

    /// Discards the messages so far: their senders have ended.
    pub(crate) fn discard(&self) -> io::Result<()> {
        while let Received::Message(_) = self.receive()? {}
        Ok(())
    }

    /// Gives an order to the process that waits for one.
    pub(crate) fn order(&self, order: RecoveryOrder) -> io::Result<()> {
        let word = (order as u64).to_ne_bytes();
        let mut nothing = SendAncillaryBuffer::default();
        let slices = &[IoSlice::new(&word)];
        loop {
            match sendmsg(&self.0, slices, &mut nothing, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for RuntimeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn decode(bytes: &[u8]) -> Option<Message> {
    let word = |number: usize| -> Option<u64> {
        let bytes = bytes.get(8 * number..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*bytes))
    };
    let text = || {
        let text = bytes.get(32..).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0);
        String::from_utf8_lossy(&text[..end.unwrap_or(text.len())]).into_owned()
    };
    let kind = word(0)?;
    let is = |it: RecoveryMessageKind| kind == it as u64;
    Some(if is(RecoveryMessageKind::AtSnapshot) {
        Message::AtSnapshot
    } else if is(RecoveryMessageKind::NoSnapshot) {
        Message::NoSnapshot(text())
    } else if is(RecoveryMessageKind::Ended) {
        Message::Ended {
            status: (word(2)? as u32).cast_signed(),
        }
    } else if is(RecoveryMessageKind::Refused) {
        Message::Refused(Refusal {
            kind: RefusalKind::from_number(word(2)?),
            reason: text(),
        })
    } else if is(RecoveryMessageKind::Warning) {
        Message::Warning(text())
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u64, status: u64, text: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [kind, 77, status, 0]
            .iter()
            .flat_map(|it| it.to_ne_bytes())
            .collect();
        bytes.extend_from_slice(text);
        bytes
    }

    #[test]
    fn messages_are_decoded() {
        for (bytes, expected) in [
            (message(1, 0, b""), Some(Message::AtSnapshot)),
            (
                message(2, 0, b"why\0rest"),
                Some(Message::NoSnapshot("why".into())),
            ),
            (message(3, 9, b""), Some(Message::Ended { status: 9 })),
            (
                message(4, 0, b"no end"),
                Some(Message::Refused(Refusal::not_explorable("no end"))),
            ),
            (
                message(4, 1, b"threads"),
                Some(Message::Refused(Refusal::not_forkable("threads"))),
            ),
            (
                message(4, 2, b"unknown kind"),
                Some(Message::Refused(Refusal::not_explorable("unknown kind"))),
            ),
            (message(5, 0, b""), Some(Message::Warning(String::new()))),
            (message(77, 0, b""), None),
            (vec![1, 0], None),
        ] {
            assert_eq!(decode(&bytes), expected);
        }
    }

    #[test]
    fn the_kernel_names_the_sender() {
        let (ours, theirs) = RuntimeSocket::pair().unwrap();
        assert!(matches!(ours.receive().unwrap(), Received::Nothing));
        rustix::io::write(&theirs, &message(3, 256, b"")).unwrap();
        let Received::Message(sent) = ours.receive().unwrap() else {
            panic!("no message");
        };
        assert_eq!(sent.sender, std::process::id().cast_signed());
        assert_eq!(sent.message, Message::Ended { status: 256 });
        rustix::io::write(&theirs, &message(3, 0, b"")).unwrap();
        rustix::io::write(&theirs, &message(4, 0, b"")).unwrap();
        ours.discard().unwrap();
        assert!(matches!(ours.receive().unwrap(), Received::Nothing));
        ours.order(RecoveryOrder::Run).unwrap();
        let mut word = [0; 8];
        rustix::io::read(&theirs, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), RecoveryOrder::Run as u64);
        drop(theirs);
        assert!(matches!(ours.receive().unwrap(), Received::Closed));
    }
}
