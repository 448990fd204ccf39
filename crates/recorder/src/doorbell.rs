//! Lets one wait cover both the futex of retired chunks and the socket.
//!
//! Linux cannot wait for a futex and a descriptor at once. A thread waits for the socket and rings
//! the futex; after each ring it waits to be armed again, so that a message which is not read yet
//! does not make it spin.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fd::OwnedFd;

use crate::shared_file::SharedFile;

/// The thread that waits for the socket.
pub(crate) struct Doorbell {
    arm: Option<Sender<()>>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Doorbell {
    /// Begins to wait; the first ring needs no arming.
    pub(crate) fn start(socket: OwnedFd, shared: Arc<SharedFile>) -> io::Result<Self> {
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let (arm, armed) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("doorbell".into())
            .spawn(move || {
                loop {
                    let mut polled = [
                        PollFd::new(&socket, PollFlags::IN),
                        PollFd::new(&*stopped, PollFlags::IN),
                    ];
                    match rustix::event::poll(&mut polled, None) {
                        Err(rustix::io::Errno::INTR) => continue,
                        Err(_) => return,
                        Ok(_) => {}
                    }
                    if !polled[1].revents().is_empty() {
                        return;
                    }
                    shared.ring();
                    if armed.recv().is_err() {
                        return;
                    }
                    while armed.try_recv().is_ok() {}
                }
            })?;
        Ok(Self {
            arm: Some(arm),
            stop,
            thread: Some(thread),
        })
    }

    /// The socket has been emptied: ring again when there is more.
    pub(crate) fn arm(&self) {
        if let Some(arm) = &self.arm {
            // It fails only if the thread is gone; then waits end by their timeouts.
            let _ = arm.send(());
        }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.arm = None;
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
