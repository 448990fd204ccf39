//! When a server is ready for its client, and how to find out.
//!
//! Both the server that is recorded and the server that recovers are probed here.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use regex::bytes::Regex;
use serde::{Deserialize, Serialize};

use crate::message;
use crate::substitute::with_port;

/// The first pause between two probes: most servers are ready soon.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause, and the longest time that a connection may take.
const LAST_PAUSE: Duration = Duration::from_millis(20);

/// When a server is ready for its client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ready {
    /// When it accepts connections at this TCP port of the local host; `None` is the port that `{port}`
    /// stands for.
    Port(Option<u16>),
    /// When it accepts connections at this Unix socket. `{pool}` and `{port}` are replaced.
    Unix(#[serde(with = "message::path")] PathBuf),
    /// When it has written a line that matches.
    Output(#[serde(with = "message::regex")] Regex),
}

impl Ready {
    /// Probes a server once. `port` is what `{port}` stands for; `has_written` tells whether a line of the
    /// server's output matches.
    pub fn is_met(&self, port: u16, has_written: impl FnOnce(&Regex) -> bool) -> bool {
        match self {
            Self::Port(fixed) => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fixed.unwrap_or(port)));
                TcpStream::connect_timeout(&address, LAST_PAUSE).is_ok()
            }
            Self::Unix(path) => UnixStream::connect(with_port(path.as_os_str(), port)).is_ok(),
            Self::Output(pattern) => has_written(pattern),
        }
    }

    /// How long to wait before each further probe: the pauses grow to a limit.
    pub fn pauses() -> impl Iterator<Item = Duration> {
        std::iter::successors(Some(FIRST_PAUSE), |pause| Some(LAST_PAUSE.min(*pause * 2)))
    }
}

/// A text that is not a readiness check.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadyError {
    /// The kind of check is unknown, or its argument is missing.
    #[error("invalid readiness check `{text}`: expected port, port:N, unix:PATH or output:REGEX")]
    Form {
        /// The whole text.
        text: String,
    },
    /// The port is not a number from 1 to 65535.
    #[error("invalid port `{port}`: expected a number from 1 to 65535")]
    Port {
        /// The text after `port:`.
        port: String,
    },
    /// The pattern does not compile.
    #[error("invalid regular expression `{pattern}`: {source}")]
    Pattern {
        /// The text after `output:`.
        pattern: String,
        /// What is wrong with it.
        source: regex::Error,
    },
}

impl std::str::FromStr for Ready {
    type Err = ReadyError;

    /// Parses `port`, `port:N`, `unix:PATH` or `output:REGEX`.
    fn from_str(text: &str) -> Result<Self, ReadyError> {
        let (kind, argument) = match text.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (text, None),
        };
        match (kind, argument) {
            ("port", None) => Ok(Self::Port(None)),
            ("port", Some(port)) => match port.parse() {
                Ok(port) if port > 0 => Ok(Self::Port(Some(port))),
                _ => Err(ReadyError::Port { port: port.into() }),
            },
            ("unix", Some(path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            ("output", Some(pattern)) => match Regex::new(pattern) {
                Ok(pattern) => Ok(Self::Output(pattern)),
                Err(source) => Err(ReadyError::Pattern {
                    pattern: pattern.into(),
                    source,
                }),
            },
            _ => Err(ReadyError::Form { text: text.into() }),
        }
    }
}

impl fmt::Display for Ready {
    /// Writes the form that `from_str` parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(None) => write!(f, "port"),
            Self::Port(Some(port)) => write!(f, "port:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Output(pattern) => write!(f, "output:{pattern}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn readiness_checks_are_parsed() {
        assert!(matches!("port".parse(), Ok(Ready::Port(None))));
        assert!(matches!("port:7000".parse(), Ok(Ready::Port(Some(7000)))));
        assert!(matches!("unix:/a:b".parse(), Ok(Ready::Unix(path)) if path.as_os_str() == "/a:b"));
        assert!(
            matches!("output:ready: .*".parse(), Ok(Ready::Output(it)) if it.as_str() == "ready: .*")
        );
        for wrong in [
            "", "port:0", "port:x", "unix:", "unix", "output", "output:(", "file:/x",
        ] {
            assert!(wrong.parse::<Ready>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_is_ready_when_it_listens_or_has_written() {
        let directory = tempfile::tempdir().unwrap();
        let never = |_: &Regex| panic!("the output does not matter");
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(Ready::Port(None).is_met(port, never));
        assert!(Ready::Port(Some(port)).is_met(1, never));
        drop(listener);
        assert!(!Ready::Port(None).is_met(port, never));
        let socket = Ready::Unix(directory.path().join("{port}"));
        assert!(!socket.is_met(7, never));
        let _listener = UnixListener::bind(directory.path().join("7")).unwrap();
        assert!(socket.is_met(7, never));
        let output: Ready = "output:^up$".parse().unwrap();
        for (line, expected) in [("up", true), ("not up", false)] {
            assert_eq!(
                output.is_met(0, |pattern| pattern.is_match(line.as_bytes())),
                expected
            );
        }
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        let pauses: Vec<Duration> = Ready::pauses().take(7).collect();
        let expected = [1, 2, 4, 8, 16, 20, 20].map(Duration::from_millis);
        assert_eq!(pauses, expected);
    }
}
