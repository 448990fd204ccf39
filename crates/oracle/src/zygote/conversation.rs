//! The conversation with processes that have the runtime in them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use powerfail_protocol::explore::{MESSAGE_LEN, MessageKind, Order, RefusalKind};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};

use crate::message::Refusal;

/// Our end. All processes of a command share the other one; one of them at a time waits for an order.
#[derive(Debug)]
pub(crate) struct Conversation(OwnedFd);

/// What somebody said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Who, by the word of the kernel.
    pub(crate) sender: i32,
    pub(crate) what: Message,
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

/// What there is to hear.
#[derive(Debug)]
pub(crate) enum Heard {
    Said(Said),
    Nothing,
    /// Nobody is there any more.
    Closed,
}

impl Conversation {
    /// Our end, and theirs.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        sockopt::set_socket_passcred(&ours, true)?;
        Ok((Self(ours), theirs))
    }

    /// What was said, without waiting.
    pub(crate) fn hear(&self) -> io::Result<Heard> {
        loop {
            let mut bytes = [0; MESSAGE_LEN];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let slices = &mut [IoSliceMut::new(&mut bytes)];
            let len = match recvmsg(&self.0, slices, &mut ancillary, RecvFlags::DONTWAIT) {
                Ok(received) => received.bytes,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(Heard::Nothing),
                Err(Errno::CONNRESET) => return Ok(Heard::Closed),
                Err(error) => return Err(error.into()),
            };
            if len == 0 {
                return Ok(Heard::Closed);
            }
            let sender = ancillary.drain().find_map(|it| match it {
                RecvAncillaryMessage::ScmCredentials(it) => Some(it.pid.as_raw_nonzero().get()),
                _ => None,
            });
            if let Some(what) = decode(&bytes[..len]) {
                return Ok(Heard::Said(Said {
                    sender: sender.unwrap_or(0),
                    what,
                }));
            }
        }
    }

    /// Forgets what was said so far: whoever said it has ended since.
    pub(crate) fn forget(&self) -> io::Result<()> {
        while let Heard::Said(_) = self.hear()? {}
        Ok(())
    }

    /// Gives an order to whoever waits for one.
    pub(crate) fn order(&self, order: Order) -> io::Result<()> {
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

impl AsFd for Conversation {
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
    let is = |it: MessageKind| kind == it as u64;
    Some(if is(MessageKind::AtSnapshot) {
        Message::AtSnapshot
    } else if is(MessageKind::NoSnapshot) {
        Message::NoSnapshot(text())
    } else if is(MessageKind::Ended) {
        Message::Ended {
            status: (word(2)? as u32).cast_signed(),
        }
    } else if is(MessageKind::Refused) {
        Message::Refused(Refusal {
            kind: RefusalKind::from_number(word(2)?),
            reason: text(),
        })
    } else if is(MessageKind::Warning) {
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
    fn messages_are_understood() {
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
    fn the_kernel_says_who_it_was() {
        let (ours, theirs) = Conversation::new().unwrap();
        assert!(matches!(ours.hear().unwrap(), Heard::Nothing));
        rustix::io::write(&theirs, &message(3, 256, b"")).unwrap();
        let Heard::Said(said) = ours.hear().unwrap() else {
            panic!("nothing was heard");
        };
        assert_eq!(said.sender, std::process::id().cast_signed());
        assert_eq!(said.what, Message::Ended { status: 256 });
        rustix::io::write(&theirs, &message(3, 0, b"")).unwrap();
        rustix::io::write(&theirs, &message(4, 0, b"")).unwrap();
        ours.forget().unwrap();
        assert!(matches!(ours.hear().unwrap(), Heard::Nothing));
        ours.order(Order::Run).unwrap();
        let mut word = [0; 8];
        rustix::io::read(&theirs, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), Order::Run as u64);
        drop(theirs);
        assert!(matches!(ours.hear().unwrap(), Heard::Closed));
    }
}
