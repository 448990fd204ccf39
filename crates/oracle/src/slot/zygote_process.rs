//! The host's end of a zygote: starts the process, sets it up, and exchanges messages with it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::descriptors;
use crate::error::OracleError;
use crate::lazy::SharedFile;
use crate::message::{Setup, receive, send};
use crate::zygote::ZYGOTE_NAME;

/// What is needed to start a zygote, once or again.
#[derive(Debug)]
pub(super) struct Launch {
    /// The program that becomes the zygote; `None` is this one.
    pub(super) program: Option<PathBuf>,
    pub(super) setup: Setup,
    /// The library of the runtime.
    pub(super) runtime: Option<OwnedFd>,
}

/// A zygote, and our end of its socket.
#[derive(Debug)]
pub(super) struct ZygoteProcess {
    pub(super) child: Child,
    socket: UnixStream,
}

impl ZygoteProcess {
    /// Starts a zygote, which waits for its set-up.
    pub(super) fn start(launch: &Launch) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let program = launch.program.as_deref();
        let child = Command::new(program.unwrap_or(Path::new("/proc/self/exe")))
            .arg0(ZYGOTE_NAME)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child, socket })
    }

    /// Sends the set-up. If that fails, the zygote has ended, which receiving shows.
    pub(super) fn set_up(&self, launch: &Launch, file: Option<&SharedFile>) {
        let _ = send(&self.socket, &launch.setup);
        if let (Some(runtime), Some(file)) = (&launch.runtime, file) {
            let _ = descriptors::send(&self.socket, [runtime.as_fd(), file.as_fd()]);
        }
    }

    pub(super) fn send<T: Serialize>(&self, message: &T) -> Result<(), OracleError> {
        send(&self.socket, message).map_err(|_| OracleError::ZygoteDied)
    }

    pub(super) fn receive<T: DeserializeOwned>(&self) -> Result<T, OracleError> {
        match receive(&self.socket) {
            Ok(Some(message)) => Ok(message),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(OracleError::System {
                action: "decode a message of the process that starts recoveries",
                source: error,
            }),
            Ok(None) | Err(_) => Err(OracleError::ZygoteDied),
        }
    }
}

impl ZygoteProcess {
    /// When the socket closes, the zygote ends, and with it everything that it started.
    pub(super) fn end(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

impl Drop for ZygoteProcess {
    fn drop(&mut self) {
        self.end();
    }
}
