//! A running guest: QEMU, its monitor, and the line over which the guest obeys.
//!
//! QEMU gets both connections as its standard input and output. So no name in a file system is needed, no other child
//! inherits them, and the end of QEMU is the end of the connection. It dies with the thread that has started it.

mod shell;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use powerfail_image::RunDirectory;
use serde_json::json;

use crate::archive::Archive;
use crate::error::{Result, VmError};
use crate::layout::EXCHANGE_LEN;
use crate::machine::{IsInterrupted, Machine, ignore_shared, make, run_directory};
use crate::qmp::Qmp;
use crate::tools::program;

/// Begins lines that are for the host.
const TOLD: u8 = 1;
/// How much of the console is shown when a guest ends.
const CONSOLE_LINES: usize = 30;
/// How long it may take until an interruption is noticed.
const INTERRUPTION_LATENCY: Duration = Duration::from_millis(100);
/// A longer line is taken for several: a guest can write anything.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// What a guest writes in an answer beyond this is left out.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long a guest may take for what it always does.
const ROUTINE_LIMIT: Duration = Duration::from_mins(2);

/// How a machine starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// From the beginning.
    Boot,
    /// From what was saved.
    Saved,
}

/// The plugin of QEMU, and what it is asked for.
#[derive(Clone, Debug)]
pub struct PluginUse {
    /// The library.
    pub plugin: PathBuf,
    /// The file that it writes.
    pub log: PathBuf,
    /// What it notes.
    pub notes: PluginNotes,
}

/// What the plugin notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginNotes {
    /// Stores, flushes and fences, with call stacks.
    Stores,
    /// Which lines are read.
    Loads,
}

/// What a guest answered.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The exit status of the command.
    pub status: i32,
    /// The lines, in order.
    pub lines: Vec<Line>,
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// What a command wrote.
    Output(String),
    /// What the script of the guest told the host.
    Told(String),
}

impl Answer {
    /// What commands wrote.
    pub fn output(&self) -> String {
        let lines = self.lines.iter().filter_map(|line| match line {
            Line::Output(text) => Some(text.as_str()),
            Line::Told(_) => None,
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Why a guest gave no answer.
#[derive(Clone, Debug)]
pub enum GuestEnd {
    /// It took too long.
    Hang {
        /// How long it had.
        limit: Duration,
        /// What it had written.
        output: String,
    },
    /// Its kernel stopped.
    Stopped {
        /// The last lines of the console.
        console: String,
    },
    /// The user has ended it.
    Interrupted,
}

impl GuestEnd {
    /// The same as an error; what was tried is said before it.
    pub(crate) fn error(&self, sentence: &str) -> VmError {
        match self {
            Self::Interrupted => VmError::Interrupted,
            end => VmError::Guest(format!("{sentence}: {end}")),
        }
    }
}

/// QEMU with a machine.
pub(crate) struct Process {
    child: Child,
    qmp: Qmp,
    control: BufReader<UnixStream>,
    run: PathBuf,
    is_interrupted: IsInterrupted,
}

impl Process {
    /// Starts QEMU. `run` is the directory for the files of this guest; those of its memory are made if they are missing.
    pub(crate) fn start(
        machine: &Machine,
        run: &Path,
        start: Start,
        plugin: Option<&PluginUse>,
    ) -> Result<Self> {
        if machine.is_interrupted() {
            return Err(VmError::Interrupted);
        }
        for (name, len) in [
            ("pm", machine.layout().pm_file_len()),
            ("exchange", EXCHANGE_LEN),
        ] {
            if !run.join(name).exists() {
                make(&run.join(name), len)?;
            }
        }
        let pair = || UnixStream::pair().map_err(|error| VmError::Qemu(error.to_string()));
        let ((qmp, qmp_of_qemu), (control, control_of_qemu)) = (pair()?, pair()?);
        let errors = run.join("errors");
        let file = fs::File::create(&errors).map_err(VmError::file("create", &errors))?;
        let mut command = ends_with_this_thread()?;
        command.arg(machine.qemu());
        command.args(machine.arguments(run, start)?);
        command.args(["-chardev", "socket,id=monitor,fd=0"]);
        command.args(["-mon", "chardev=monitor,mode=control"]);
        command.arg("-chardev");
        command.arg(format!(
            "file,id=console,path={}",
            run.join("console").display()
        ));
        command.args(["-serial", "chardev:console"]);
        command.args(["-chardev", "socket,id=control,fd=1"]);
        command.args(["-serial", "chardev:control"]);
        if start == Start::Saved {
            command.args(["-incoming", "defer", "-S"]);
        }
        if let Some(plugin) = plugin {
            command
                .arg("-plugin")
                .arg(plugin_value(machine, run, plugin));
        }
        // A signal of the terminal is for powerfail, which ends QEMU.
        command.process_group(0);
        let child = command
            .stdin(OwnedFd::from(qmp_of_qemu))
            .stdout(OwnedFd::from(control_of_qemu))
            .stderr(Stdio::from(file))
            .spawn()
            .map_err(VmError::file("run", machine.qemu()))?;
        let mut child = EndedOnDrop(Some(child));
        let greeted = Qmp::greet(qmp).map_err(|error| {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            match said.trim() {
                "" => error,
                said => VmError::Qemu(said.to_owned()),
            }
        });
        let mut process = Self {
            qmp: greeted?,
            child: child.0.take().expect("it was just put there"),
            control: BufReader::new(control),
            run: run.to_path_buf(),
            is_interrupted: machine.interruption(),
        };
        if start == Start::Saved {
            ignore_shared(&mut process.qmp)?;
            let source = machine.state_source()?;
            process
                .qmp
                .execute("migrate-incoming", &json!({ "uri": source }))?;
            process.qmp.wait_for_migration()?;
            process.qmp.execute("cont", &json!({}))?;
        }
        Ok(process)
    }

    pub(crate) const fn qmp(&mut self) -> &mut Qmp {
        &mut self.qmp
    }

    /// Waits for the first process of a guest that boots.
    pub(crate) fn wait_until_ready(&mut self, limit: Duration) -> Result<()> {
        let mut lines = Vec::new();
        let end = Instant::now() + limit;
        loop {
            match self.line(end, limit, &lines) {
                Ok(Line::Told(text)) if text == "ready" => return Ok(()),
                Ok(Line::Told(text)) if text.starts_with("no-module ") => {
                    return Err(VmError::Guest(format!(
                        "the guest cannot load the module {}: {}",
                        &text["no-module ".len()..],
                        self.console()
                    )));
                }
                Ok(line) => lines.push(line),
                Err(end) => return Err(end.error("the guest does not boot")),
            }
        }
    }

    /// Gives a command and waits for its end.
    pub(crate) fn obey(
        &mut self,
        command: &str,
        limit: Duration,
    ) -> std::result::Result<Answer, GuestEnd> {
        let mut answer = Answer::default();
        let mut bytes = 0;
        let end = Instant::now() + limit;
        // If it has ended, reading tells.
        let _ = writeln!(self.control.get_mut(), "{command}");
        loop {
            let line = self.line(end, limit, &answer.lines)?;
            if let Line::Told(text) = &line
                && let Some(status) = text.strip_prefix("done ")
            {
                answer.status = status.trim().parse().unwrap_or(-1);
                return Ok(answer);
            }
            let (Line::Output(text) | Line::Told(text)) = &line;
            bytes += text.len();
            if bytes <= ANSWER_BYTES_MAX {
                answer.lines.push(line);
            }
        }
    }

    fn line(
        &mut self,
        end: Instant,
        limit: Duration,
        before: &[Line],
    ) -> std::result::Result<Line, GuestEnd> {
        let mut line = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let hang = || GuestEnd::Hang {
                limit,
                output: Answer {
                    status: 0,
                    lines: before.to_vec(),
                }
                .output(),
            };
            if (self.is_interrupted)() {
                return Err(GuestEnd::Interrupted);
            }
            if left.is_zero() {
                return Err(hang());
            }
            let wait = left.min(INTERRUPTION_LATENCY);
            let _ = self.control.get_ref().set_read_timeout(Some(wait));
            let room = LINE_BYTES_MAX - line.len() as u64;
            let control = Read::by_ref(&mut self.control);
            match control.take(room).read_until(b'\n', &mut line) {
                Ok(_) if line.last() == Some(&b'\n') => {
                    line.pop();
                    break;
                }
                // The rest is another line.
                Ok(_) if line.len() as u64 == LINE_BYTES_MAX => break,
                Ok(0) => return Err(self.stopped()),
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(_) => return Err(self.stopped()),
            }
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(match line.strip_prefix(&[TOLD]) {
            Some(told) => Line::Told(text(told)),
            None => Line::Output(text(&line)),
        })
    }

    /// QEMU has ended. A signal of the terminal that ends it reaches this process, too.
    fn stopped(&self) -> GuestEnd {
        if (self.is_interrupted)() {
            return GuestEnd::Interrupted;
        }
        GuestEnd::Stopped {
            console: self.console(),
        }
    }

    /// The last lines of the console.
    pub(crate) fn console(&self) -> String {
        let text = fs::read(self.run.join("console")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n")
    }

    /// Ends QEMU in good order: a plugin writes its last words.
    pub(crate) fn quit(mut self) -> Result<()> {
        self.qmp.execute("quit", &json!({}))?;
        let status = self.child.wait();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(VmError::Qemu(format!("it ended with {status}"))),
            Err(error) => Err(VmError::Qemu(error.to_string())),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs the program and the arguments that are added to it. The kernel kills the program when this thread ends.
fn ends_with_this_thread() -> Result<Command> {
    let mut command = Command::new(program("setpriv", "util-linux")?);
    command.args(["--pdeathsig", "KILL", "/bin/sh", "-c"]);
    // The kernel sends no signal if this process ended before `setpriv` asked for it. Then the parent is another process.
    command.arg(r#"[ "$PPID" = "$0" ] && exec "$@""#);
    command.arg(std::process::id().to_string());
    Ok(command)
}

/// A child that is ended unless it was taken out.
struct EndedOnDrop(Option<Child>);

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl std::fmt::Display for GuestEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hang { limit, output } => {
                write!(f, "no answer of the guest within {} s", limit.as_secs())?;
                if output.is_empty() {
                    Ok(())
                } else {
                    write!(f, "\n{output}")
                }
            }
            Self::Stopped { console } => {
                write!(f, "the kernel of the guest stopped\n{console}")
            }
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

/// The value of QEMU's option for the plugin.
fn plugin_value(machine: &Machine, run: &Path, plugin: &PluginUse) -> String {
    let layout = machine.layout();
    let mut value = format!(
        "{},log={},pm={},ram={:x},len={:x},gpa={:x},marks={:x}",
        plugin.plugin.display(),
        plugin.log.display(),
        run.join("pm").display(),
        crate::layout::MemoryLayout::pm_number(),
        layout.pm_file_len(),
        crate::layout::MemoryLayout::pm_address(),
        layout.pm_len,
    );
    value.push_str(match plugin.notes {
        PluginNotes::Stores => ",stacks=on",
        PluginNotes::Loads => ",loads=on",
    });
    value
}

/// A guest that was started from a saved machine.
pub struct Guest {
    process: Process,
    run: RunDirectory,
}

impl Guest {
    /// Starts one, perhaps with the plugin.
    pub fn start(machine: &Machine, plugin: Option<&PluginUse>) -> Result<Self> {
        let run = run_directory()?;
        let process = Process::start(machine, run.path(), Start::Saved, plugin)?;
        Ok(Self { process, run })
    }

    /// The file behind its persistent memory, and behind the marks.
    pub fn pm_file(&self) -> PathBuf {
        self.run.path().join("pm")
    }

    /// The file of the device through which files come in and go out.
    pub(crate) fn exchange_file(&self) -> PathBuf {
        self.run.path().join("exchange")
    }

    /// Puts files into the guest.
    pub fn take_files(&mut self, files: &Archive) -> Result<()> {
        self.take_archive(&files.bytes())
    }

    /// Puts the files of an archive into the guest.
    pub(crate) fn take_archive(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 > EXCHANGE_LEN {
            return Err(VmError::Guest(format!(
                "the files for the guest have {} bytes; at most {EXCHANGE_LEN} fit",
                bytes.len()
            )));
        }
        let path = self.exchange_file();
        let file = fs::OpenOptions::new().write(true).open(&path);
        let file = file.and_then(|mut file| file.write_all(bytes));
        file.map_err(VmError::file("write", &path))?;
        let answer = self.routine("files")?;
        let output = answer.output();
        if answer.status == 0 && output.is_empty() {
            return Ok(());
        }
        Err(VmError::Guest(format!(
            "the guest cannot be set up (status {}): {output}",
            answer.status
        )))
    }

    /// A command that cannot fail because of a crash.
    pub(crate) fn routine(&mut self, command: &str) -> Result<Answer> {
        let answer = self.process.obey(command, ROUTINE_LIMIT);
        answer.map_err(|end| end.error("the guest cannot be set up"))
    }

    /// What a command, which cannot fail because of a crash, writes to the device for files: text up to the first zero.
    pub(crate) fn answer_in_exchange(&mut self, command: &str) -> Result<Vec<u8>> {
        let answer = self.routine(command)?;
        if answer.status != 0 {
            return Err(VmError::Guest(format!(
                "the guest cannot answer `{command}` (status {}): {}",
                answer.status,
                answer.output()
            )));
        }
        let path = self.exchange_file();
        let mut bytes = fs::read(&path).map_err(VmError::file("read", &path))?;
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        Ok(bytes)
    }

    /// Gives a command and waits for its end.
    pub fn obey(
        &mut self,
        command: &str,
        limit: Duration,
    ) -> std::result::Result<Answer, GuestEnd> {
        self.process.obey(command, limit)
    }

    /// How much the kernel has written on its console.
    pub(crate) fn console_len(&self) -> u64 {
        fs::metadata(self.run.path().join("console")).map_or(0, |it| it.len())
    }

    /// What the kernel has written on its console since then.
    pub(crate) fn console_since(&self, len: u64) -> String {
        let bytes = fs::read(self.run.path().join("console")).unwrap_or_default();
        let since = bytes.get(len as usize..).unwrap_or_default();
        String::from_utf8_lossy(since).replace('\r', "")
    }

    /// Ends it in good order. What it leaves is still there while the result is.
    pub(crate) fn quit(self) -> Result<RunDirectory> {
        let Self { process, run } = self;
        process.quit()?;
        Ok(run)
    }
}
