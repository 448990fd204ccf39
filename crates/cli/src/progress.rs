//! Progress on standard error, if it is a terminal and the work takes longer than a second.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use powerfail_trace::{ReadAt, Trace};

const PATIENCE: Duration = Duration::from_secs(1);

/// A bar that appears when the work has taken a second and vanishes when it is done.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
    shown: AtomicBool,
}

impl Progress {
    /// Work of `len` items.
    pub(crate) fn items(len: u64) -> Self {
        Self::new(len, "{bar:40} {pos}/{len}, {eta} left")
    }

    /// Work in several steps, of which one is shown at a time.
    pub(crate) fn steps() -> Self {
        Self::new(0, "{msg} {bar:30} {pos}/{len}")
    }

    /// Shows how far a step is. `has_equal_items` if what is done tells how long the rest takes.
    pub(crate) fn show(&self, label: &'static str, done: u64, of: u64, has_equal_items: bool) {
        if self.bar.message() != label || done < self.bar.position() {
            self.bar.reset();
            let time = if has_equal_items {
                "{eta} left"
            } else {
                "{elapsed} so far"
            };
            let template = format!("{{msg}} {{bar:30}} {{pos}}/{{len}}, {time}");
            if let Ok(style) = ProgressStyle::with_template(&template) {
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
        Self::new(len, "{bar:40} {percent}%, {eta} left")
    }

    fn new(len: u64, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self {
            bar,
            start: Instant::now(),
            shown: AtomicBool::new(false),
        }
    }

    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
        if self.start.elapsed() > PATIENCE && !self.shown.swap(true, Ordering::Relaxed) {
            // Hidden by itself where standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
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

/// Opens a trace whose reading shows progress.
pub(crate) fn open_trace(path: &Path) -> anyhow::Result<Trace> {
    let open = || {
        // Asked before opening: opening a FIFO would wait for its other end.
        anyhow::ensure!(std::fs::metadata(path)?.is_file(), "not a regular file");
        let file = File::open(path)?;
        let progress = Arc::new(Progress::bytes(file.metadata()?.len()));
        Ok(Trace::from_source(WatchedFile { file, progress })?)
    };
    open().with_context(|| path.display().to_string())
}
