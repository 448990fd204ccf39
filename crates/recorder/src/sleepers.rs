//! Tells the scheduler in the target which threads sleep.
//!
//! A scheduler must not wait for a thread that waits in the kernel, and must wait for one that only has no
//! processor. A file in /proc tells which it is, but opening a file takes a descriptor, which the target might
//! notice. So the host reads it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::error::RecordError;
use crate::shared_file::SharedFile;

/// The thread that answers.
pub(crate) struct Sleepers {
    shared: Arc<SharedFile>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sleepers {
    /// Begins to answer.
    pub(crate) fn start(shared: &Arc<SharedFile>) -> Result<Self, RecordError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, asked) = (Arc::clone(&stop), Arc::clone(shared));
        let thread = std::thread::Builder::new()
            .name("sleepers".into())
            .spawn(move || {
                while !stopped.load(Ordering::Acquire) {
                    let seen = asked.doubts();
                    asked.answer_doubts(sleeps);
                    asked.wait_for_doubt(seen);
                }
            })
            .map_err(|error| RecordError::system("watch the threads of the target", error))?;
        Ok(Self {
            shared: Arc::clone(shared),
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.shared.announce_doubt();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether a thread sleeps. An unknown thread does: the scheduler must not wait for it.
fn sleeps(process: u32, thread: u32) -> bool {
    let status = fs::read(format!("/proc/{process}/task/{thread}/stat")).unwrap_or_default();
    state_of(&status).is_none_or(|state| !matches!(state, b'R' | b'D'))
}

/// The letter behind the name, which may have anything in it.
fn state_of(status: &[u8]) -> Option<u8> {
    let end = status.iter().rposition(|byte| *byte == b')')?;
    status.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::{sleeps, state_of};

    #[test]
    fn names_may_look_like_states() {
        assert_eq!(state_of(b"12 (a) R (b)) S 1 2"), Some(b'S'));
        assert_eq!(state_of(b"12 (a) R 1 2"), Some(b'R'));
        assert_eq!(state_of(b""), None);
    }

    #[test]
    fn the_thread_that_asks_is_awake() {
        let process = std::process::id();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(!sleeps(process, thread.cast_unsigned()));
        assert!(sleeps(process, 0));
    }
}
