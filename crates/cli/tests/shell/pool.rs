//! A pool of a program in its own folder, and the steps that are applied to it before it is checked.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use powerfail_finding::Report;
use powerfail_image::{CursorOptions, ImageCursor, Layout, write_image};
use powerfail_model::{CrashState, Event, EventIndex};
use powerfail_symbol::Symbolizer;
use powerfail_trace::{Body, Trace};
use tempfile::TempDir;

use crate::trigger::{Step, Trigger};

/// Ends a command that hangs. Far longer than any command takes.
const GUARD_SECONDS: &str = "900";

/// See the module header.
pub(crate) struct Pool<'a> {
    binary: &'a Path,
    /// Further arguments of recovery after the path of the pool.
    recovery: &'a str,
    folder: TempDir,
}

impl<'a> Pool<'a> {
    /// No pool yet.
    pub(crate) fn absent(binary: &'a Path, recovery: &'a str) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder for a pool");
        Self {
            binary,
            recovery,
            folder,
        }
    }

    /// An empty pool, so that its creation need not be recorded.
    pub(crate) fn empty(binary: &'a Path, recovery: &'a str) -> Self {
        let pool = Self::absent(binary, recovery);
        // A command that changes nothing, or that the program does not know.
        pool.run("count\n");
        pool
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    /// The program on this pool, as words of a command.
    fn command(&self) -> [PathBuf; 2] {
        [self.binary.to_owned(), self.path()]
    }

    fn run(&self, commands: &str) {
        let mut shell = Command::new(self.binary);
        shell.arg(self.path()).env("PMEM_IS_PMEM_FORCE", "1");
        let output = feed(shell, commands);
        assert!(output.status.success(), "{commands}: {output:?}");
    }

    pub(crate) fn prepare(&self, step: &Step) {
        match step {
            Step::Run { commands } => self.run(commands),
            Step::Crash {
                function,
                fence,
                commands,
            } => self.crash(function, *fence, commands),
        }
    }

    /// Records a run, and replaces the pool by its content before a fence.
    fn crash(&self, function: &str, fence: usize, commands: &str) {
        let path = self.folder.path().join("run.trace");
        let mut record = powerfail(&["record", "-o"]);
        record.arg(&path).arg("--").args(self.command());
        let output = feed(record, commands);
        assert!(output.status.success(), "{output:?}");
        let trace = Trace::open(&path).expect("a trace");
        let at = fence_in(&trace, function, fence)
            .unwrap_or_else(|| panic!("{function} has no fence {fence}"));
        let mut cursor = ImageCursor::new(&trace, CursorOptions::default()).expect("a cursor");
        cursor.move_to(at).expect("a moment");
        let newest = CrashState::default();
        let layout = Layout::of(&trace, &[]).expect("the layout of the pools");
        let images = self.folder.path().join("images");
        let written = write_image(&cursor, &newest, &[], &layout, &images).expect("a crash image");
        let [(_, image)] = &written[..] else {
            panic!("one pool: {written:?}");
        };
        fs::copy(image, self.path()).expect("the crash image in place of the pool");
        fs::remove_dir_all(&images).expect("no images");
    }

    /// The output of `powerfail check` for the last step.
    pub(crate) fn check(&self, trigger: &Trigger, flags: &[&str]) -> Report {
        let out = self.folder.path().join("out");
        let [binary, pool] = self.command();
        let recover = format!("{} {} {}", binary.display(), pool.display(), self.recovery);
        let mut check = powerfail(&["check", "--format", "json", "--seed", "1", "--out"]);
        check.arg(out).args(["--recover", &recover]).args(flags);
        check.arg("--").args([binary, pool]);
        let output = feed(check, &trigger.commands);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("no report: {error}: {output:?}"))
    }
}

fn powerfail(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", GUARD_SECONDS])
        .arg(env!("CARGO_BIN_EXE_powerfail"))
        .args(arguments)
        // By default libpmemobj prepares 1,024 lanes whenever it opens a pool, which takes longer than all the rest.
        .env("PMEMOBJ_NLANES", "16");
    command
}

/// Runs a command with this standard input.
fn feed(mut command: Command, input: &str) -> Output {
    let pipes = command.stdin(Stdio::piped());
    let pipes = pipes.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("a command that can be run");
    // Dropped at the end of the statement, which closes the input. It fits into a pipe.
    let written = child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes());
    written.expect("a command that takes its input");
    child.wait_with_output().expect("a command that ends")
}

/// The `number`-th fence with this function on its stack.
fn fence_in(trace: &Trace, function: &str, number: usize) -> Option<EventIndex> {
    let mut symbolizer = Symbolizer::new(trace.modules());
    let mut records = trace.records_from(EventIndex(0));
    let mut seen = 0;
    while let Some(record) = records.next_record().expect("a record") {
        if !matches!(record.body, Body::Pm(Event::Fence(_))) {
            continue;
        }
        let (index, stack) = (record.index, record.stack);
        let frames = symbolizer.resolve_stack(trace.stack(stack));
        let mut frames = frames.iter().flat_map(|resolved| &resolved.frames);
        if frames.any(|frame| frame.function.as_deref() == Some(function)) {
            seen += 1;
            if seen == number {
                return Some(index);
            }
        }
    }
    None
}
