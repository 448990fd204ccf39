//! Guests that wait for crash images: the process of a check has them, and each recovery is a short process that asks.
//!
//! To the rest of powerfail a recovery is a command that is given a pool. Starting a guest takes longer than most recoveries,
//! so the command only sends its image, as an open file over a socket, and gets the result. Without the service, as in a replay, the
//! command starts a guest of its own.

use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::error::{Result, VmError};
use crate::machine::Machine;
use crate::recovery::{RecoveryReply, RecoveryRequest, UsedGuest, recover_in};

/// Guests that wait. They end with it.
pub struct Service {
    path: PathBuf,
    listener: UnixListener,
    is_over: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

impl Service {
    /// Starts workers, each with a guest of its own, that listen at a socket. Guests get the files of an archive.
    pub fn start(machine: &Machine, files: &Path, socket: &Path, workers: usize) -> Result<Self> {
        let path = socket.to_path_buf();
        let _ = fs::remove_file(&path);
        let failed = |error: std::io::Error| VmError::File {
            action: "listen at",
            path: path.clone(),
            cause: error,
        };
        let listener = listen(&path).map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let mut service = Self {
            path: path.clone(),
            listener: listener.try_clone().map_err(failed)?,
            is_over: Arc::clone(&is_over),
            workers: Vec::new(),
        };
        for _ in 0..workers.max(1) {
            let listener = listener.try_clone().map_err(failed)?;
            let (machine, is_over) = (machine.clone(), Arc::clone(&is_over));
            let files = files.to_path_buf();
            service.workers.push(thread::spawn(move || {
                serve(&machine, &files, &listener, &is_over);
            }));
        }
        Ok(service)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the workers that wait for a connection, whatever became of the name of the socket.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn serve(machine: &Machine, files: &Path, listener: &UnixListener, is_over: &AtomicBool) {
    let mut kept = UsedGuest::default();
    while let Ok((mut stream, _)) = listener.accept() {
        if is_over.load(Ordering::Acquire) {
            return;
        }
        // The process that asks may be killed at any time; then the answer is lost.
        let Some((image, limit)) = receive(&stream) else {
            continue;
        };
        let request = RecoveryRequest {
            image: &image,
            files,
            limit,
        };
        let reply = recover_in(machine, &mut kept, &request).map_err(|error| error.to_string());
        if let Ok(text) = serde_json::to_vec(&reply) {
            let _ = stream.write_all(&text);
        }
    }
}

/// Asks a service to recover an image. `None` if there is none, or if it ended meanwhile.
pub fn ask(
    socket: &Path,
    image: &File,
    limit: Duration,
) -> Option<std::result::Result<RecoveryReply, String>> {
    let mut stream = connect(socket).ok()?;
    let seconds = limit.as_secs().to_le_bytes();
    let files = [image.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    let text = [IoSlice::new(&seconds)];
    sendmsg(&stream, &text, &mut control, SendFlags::empty()).ok()?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).ok()?;
    serde_json::from_slice(&reply).ok()
}

fn receive(stream: &UnixStream) -> Option<(File, Duration)> {
    let mut seconds = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [IoSliceMut::new(&mut seconds)];
    let received = recvmsg(stream, &mut text, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    let len = received.bytes;
    let mut file: Option<OwnedFd> = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.into_iter().next().or(file);
        }
    }
    (len == seconds.len()).then(|| {
        let limit = Duration::from_secs(u64::from_le_bytes(seconds));
        file.map(|file| (File::from(file), limit))
    })?
}

/// Calls with a name of the socket that is short enough for its address, however deep the directory is.
fn with_short_name<T>(
    path: &Path,
    call: impl FnOnce(&Path) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    let directory = File::open(parent)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    call(&short.join(name))
}

fn listen(path: &Path) -> std::io::Result<UnixListener> {
    with_short_name(path, |path| UnixListener::bind(path))
}

fn connect(path: &Path) -> std::io::Result<UnixStream> {
    with_short_name(path, |path| UnixStream::connect(path))
}
