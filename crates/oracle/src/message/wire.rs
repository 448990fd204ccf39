//! Sends and receives messages over a stream: eight bytes of length, then the value as postcard encodes it.
//!
//! A peer that is cut off or sends nonsense causes an error. Memory is taken only for bytes that arrived.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// No message is longer: the longest carries the log of an execution.
const MAX_MESSAGE_BYTES: u64 = 2 << 30;

const HEADER_BYTES: usize = size_of::<u64>();

/// Sends one message.
pub(crate) fn send<T: Serialize>(mut to: impl Write, message: &T) -> io::Result<()> {
    // The length is not known yet.
    let header = vec![0; HEADER_BYTES];
    let mut framed = postcard::to_extend(message, header).map_err(invalid)?;
    let len = (framed.len() - HEADER_BYTES) as u64;
    if len > MAX_MESSAGE_BYTES {
        return Err(invalid("the message is too long"));
    }
    framed[..HEADER_BYTES].copy_from_slice(&len.to_le_bytes());
    to.write_all(&framed)
}

/// Receives one message; `None` if the stream ended before or within it.
pub(crate) fn receive<T: DeserializeOwned>(mut from: impl Read) -> io::Result<Option<T>> {
    let mut header = [0; HEADER_BYTES];
    match from.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if is_end(&error) => return Ok(None),
        Err(error) => return Err(error),
    }
    let len = u64::from_le_bytes(header);
    if len > MAX_MESSAGE_BYTES {
        return Err(invalid("the message is too long"));
    }
    let mut message = Vec::new();
    match from.take(len).read_to_end(&mut message) {
        Ok(_) if (message.len() as u64) < len => Ok(None),
        Ok(_) => decode(&message).map(Some),
        Err(error) if is_end(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn decode<T: DeserializeOwned>(message: &[u8]) -> io::Result<T> {
    let (value, rest) = postcard::take_from_bytes(message).map_err(invalid)?;
    if !rest.is_empty() {
        return Err(invalid("the message is longer than its content"));
    }
    Ok(value)
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
    )
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::time::Duration;

    use powerfail_protocol::explore::RefusalKind;
    use powerfail_trace::{Frame, Module, ModuleIndex};
    use regex::bytes::Regex;

    use super::*;
    use crate::hang::HangKnowledge;
    use crate::message::{
        Bytes, ExploreReply, FailureKind, IsolationLevel, LazyReply, Refusal, RunReply, RunResult,
        Setup, SetupReply, Usage,
    };
    use crate::plan::{Limits, PoolMapping, RecoveryPlan, ResolvedCommand, Server};
    use crate::ready::Ready;
    use crate::verdict::{Backtrace, Stage, ThreadStack};

    /// Text that is not UTF-8.
    fn odd(text: &str) -> OsString {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0xff);
        OsString::from_vec(bytes)
    }

    fn setup() -> Setup {
        let command = |name: &str| ResolvedCommand {
            program: odd(name).into(),
            words: vec![name.into(), odd("argument")],
        };
        let pattern = Regex::new(r"(?i)^ready \d+$").unwrap();
        Setup {
            level: IsolationLevel::Mounts,
            mounted_pools: vec![PoolMapping {
                original: odd("/mnt/pool").into(),
                private: "/private/pool".into(),
            }],
            mappings: Vec::new(),
            confinement: None,
            usage: Some(Usage {
                memory_bytes: u64::MAX,
                processes: 1000,
            }),
            has_runtime: true,
            plan: RecoveryPlan {
                server: Some(Server {
                    ready: Ready::Output(pattern.clone()),
                    client: Some(command("client")),
                    stop: None,
                    judge_exit: true,
                }),
                checker: Some(command("checker")),
                dump: None,
                timeout: Duration::from_micros(1_234_567),
                busy_limit: Some(Duration::from_secs(2)),
                ok_exit: vec![-1, 3],
                fail_patterns: vec![pattern],
                limits: Limits {
                    memory_bytes: Some(u64::MAX),
                    file_bytes: None,
                },
                environment: vec![("NAME".into(), odd("value"))],
                working_directory: Some("/".into()),
                input: None,
                pool: None,
                directory: None,
                max_dump_bytes: 7,
                preload: true,
                recover: command("recover"),
            },
        }
    }

    fn run_result() -> RunResult {
        let module = Module {
            path: odd("/lib/module").into(),
            build_id: vec![1, 2, 3],
            load_address: 1 << 40,
            len_bytes: 4096,
            function: None,
        };
        let frames = vec![
            Frame::Module {
                module: ModuleIndex(0),
                offset: 99,
            },
            Frame::Absolute { address: u64::MAX },
        ];
        let reply = RunReply::Failure {
            stage: Stage::Checker,
            kind: FailureKind::Matched("bad".into()),
            output: "bad\n".into(),
            backtrace: Some(Backtrace {
                modules: vec![module],
                threads: vec![ThreadStack {
                    name: "main".into(),
                    frames,
                }],
            }),
        };
        RunResult {
            reply,
            outputs: vec!["a".into(), String::new()],
            from_snapshot: true,
            snapshot_note: Some("why".into()),
            shown: HangKnowledge::default(),
            suspects: Vec::new(),
            denied: Vec::new(),
            uses: Vec::new(),
        }
    }

    fn sent<T: Serialize>(message: &T) -> Vec<u8> {
        let mut sent = Vec::new();
        send(&mut sent, message).unwrap();
        sent
    }

    fn received<T: DeserializeOwned>(sent: &[u8]) -> T {
        receive(sent).unwrap().unwrap()
    }

    #[test]
    fn a_set_up_is_received_as_it_was_sent() {
        let setup = setup();
        let other: Setup = received(&sent(&setup));
        // Regular expressions cannot be compared, but their text can.
        assert_eq!(format!("{other:?}"), format!("{setup:?}"));
    }

    #[test]
    fn replies_are_received_as_they_were_sent() {
        let result = run_result();
        assert_eq!(received::<RunResult>(&sent(&result)), result);
        for reply in [
            ExploreReply::Executions(vec![LazyReply {
                reply: RunReply::Success {
                    dump: Some(Bytes(vec![0; 1000])),
                },
                choices: Bytes(vec![1; 70_000]),
                log: Bytes(Vec::new()),
                notes: Bytes(vec![2]),
                stages: Vec::new(),
            }]),
            ExploreReply::Done {
                stopped: true,
                warnings: vec!["a warning".into()],
                shown: HangKnowledge::default(),
            },
            ExploreReply::Refused(Refusal {
                kind: RefusalKind::NotForkable,
                reason: "threads".into(),
            }),
            ExploreReply::Refused(Refusal::not_explorable("reasons")),
            ExploreReply::NoVerdict(RunReply::DumpTooLong),
        ] {
            assert_eq!(received::<ExploreReply>(&sent(&reply)), reply);
        }
    }

    #[test]
    fn every_cut_is_an_error_or_the_end() {
        let sent = sent(&run_result());
        for len in 0..sent.len() {
            assert!(receive::<RunResult>(&sent[..len]).unwrap().is_none());
            // The same cut, with a header that hides it.
            let Some(rest) = len.checked_sub(HEADER_BYTES) else {
                continue;
            };
            let mut shorter = (rest as u64).to_le_bytes().to_vec();
            shorter.extend_from_slice(&sent[HEADER_BYTES..len]);
            assert!(receive::<RunResult>(shorter.as_slice()).is_err(), "{len}");
        }
        let mut longer = sent;
        longer[0] += 1;
        longer.push(0);
        assert!(receive::<RunResult>(longer.as_slice()).is_err());
    }

    #[test]
    fn no_byte_makes_a_message_panic() {
        let sent = sent(&setup());
        for at in HEADER_BYTES..sent.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut hostile = sent.clone();
                hostile[at] = value;
                let _ = receive::<Setup>(hostile.as_slice());
                let _ = receive::<SetupReply>(hostile.as_slice());
                let _ = receive::<ExploreReply>(hostile.as_slice());
            }
        }
    }

    /// A peer that says little; how much memory it was offered to say it into.
    struct Peer<'a> {
        says: &'a [u8],
        offered_bytes: usize,
    }

    impl Read for Peer<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.offered_bytes = self.offered_bytes.max(buffer.len());
            self.says.read(buffer)
        }
    }

    #[test]
    fn a_length_alone_takes_no_memory() {
        for (len, is_error) in [
            (MAX_MESSAGE_BYTES, false),
            (MAX_MESSAGE_BYTES + 1, true),
            (u64::MAX, true),
        ] {
            let mut says = len.to_le_bytes().to_vec();
            says.extend_from_slice(b"little");
            let mut peer = Peer {
                says: &says,
                offered_bytes: 0,
            };
            let received = receive::<RunResult>(&mut peer);
            assert_eq!(received.is_err(), is_error);
            assert!(peer.offered_bytes < 1 << 20, "{}", peer.offered_bytes);
        }
        // A list that claims more items than the message can hold.
        let mut hostile = vec![0xff; 9];
        hostile.push(1);
        for list in [hostile.as_slice(), &[0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert!(decode::<Vec<String>>(list).is_err());
            assert!(decode::<Bytes>(list).is_err());
        }
    }
}
