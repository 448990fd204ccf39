//! Progress on standard error, if it is a terminal and the work takes longer than a second.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use powerfail_trace::{ReadAt, Trace};

const PATIENCE: Duration = Duration::from_secs(1);
/// The label of the step in which a trace is read.
pub(crate) const READING: &str = "reading the trace";
/// How often the times in a bar are made anew.
const TICK: Duration = Duration::from_millis(500);

/// A bar that appears when the work has taken a second and vanishes when it is done.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Dropped with the bar: a thread waits for that, to show the bar if it takes longer than a second. The work
    /// itself may be silent for longer.
    _end: Sender<()>,
}

/// What is counted in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Items {
    /// Each takes about the same time, so those that are done tell how long the rest takes.
    Equal,
    /// What is done says nothing about the time of the rest.
    Unequal,
    /// Bytes.
    Bytes,
}

impl Items {
    /// How a step that counts them is shown.
    const fn template(self) -> &'static str {
        match self {
            Self::Equal => "{msg} {bar:30} {pos}/{len}, {eta} left",
            Self::Unequal => "{msg} {bar:30} {pos}/{len}, {elapsed} so far",
            Self::Bytes => "{msg} {bar:30} {binary_bytes}/{binary_total_bytes}, {eta} left",
        }
    }
}

impl Progress {
    /// Work of `len` items.
    pub(crate) fn items(len: u64) -> Self {
        Self::new(len, "{bar:40} {pos}/{len}, {eta} left", None)
    }

    /// Work in several steps, of which one is shown at a time.
    pub(crate) fn steps() -> Self {
        Self::new(0, Items::Equal.template(), Some(TICK))
    }

    /// Shows how far a step is.
    pub(crate) fn show(&self, label: &'static str, items: Items, done: u64, of: u64) {
        if self.bar.message() != label || done < self.bar.position() {
            self.bar.reset();
            if let Ok(style) = ProgressStyle::with_template(items.template()) {
                self.bar.set_style(style);
            }
            self.bar.set_message(label);
        }
        self.bar.set_length(of);
        let by = done.saturating_sub(self.bar.position());
        self.advance(by);
    }

    /// Writes a line above the bar.
    pub(crate) fn line(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Work on a file of `len` bytes.
    fn bytes(len: u64) -> Self {
        Self::new(len, "{bar:40} {percent}%, {eta} left", None)
    }

    /// With a `tick`, the times in the bar are made anew without any progress.
    fn new(len: u64, template: &str, tick: Option<Duration>) -> Self {
        let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let (end, ended) = channel();
        if io::stderr().is_terminal() {
            let bar = bar.clone();
            std::thread::spawn(move || {
                if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    // A bar that has vanished meanwhile stays hidden.
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    match tick {
                        Some(tick) => bar.enable_steady_tick(tick),
                        None => bar.tick(),
                    }
                }
            });
        }
        Self { bar, _end: end }
    }

    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A file that shows how much of it was read.
struct WatchedFile {
    file: File,
    progress: Arc<Progress>,
}

impl ReadAt for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        ReadAt::len(&self.file)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.progress.advance(buffer.len() as u64);
        ReadAt::read_exact_at(&self.file, buffer, offset)
    }
}

/// Opens a trace whose reading shows progress, for what reads all of it once.
pub(crate) fn open_watched(path: &Path) -> anyhow::Result<Trace> {
    let open = || -> anyhow::Result<Trace> {
        let len = len_of_file(path)?;
        let file = File::open(path)?;
        let progress = Arc::new(Progress::bytes(len));
        Ok(Trace::from_source(WatchedFile { file, progress })?)
    };
    open().with_context(|| path.display().to_string())
}

/// Opens a trace, and shows how far that is. What reads it then shows its own progress.
pub(crate) fn open_trace(path: &Path) -> anyhow::Result<Trace> {
    let open = || -> anyhow::Result<Trace> {
        len_of_file(path)?;
        read_trace(File::open(path)?)
    };
    open().with_context(|| path.display().to_string())
}

/// The same, of an open file.
pub(crate) fn read_trace(file: File) -> anyhow::Result<Trace> {
    let len = file.metadata()?.len();
    let progress = Progress::steps();
    let trace = Trace::read_with_progress(file, &mut |read| {
        progress.show(READING, Items::Bytes, read, len);
    });
    Ok(trace?)
}

/// The length of a regular file. Asked before opening: opening a FIFO would wait for its other end.
fn len_of_file(path: &Path) -> anyhow::Result<u64> {
    let metadata = std::fs::metadata(path)?;
    anyhow::ensure!(metadata.is_file(), "not a regular file");
    Ok(metadata.len())
}
