//! Records the workload of a check: a program that ends, or a server that a client gives work to.
//!
//! What the workload writes to standard output goes to standard error, because standard output is for the report.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use powerfail_oracle::Ready;
use powerfail_recorder::{
    FreshPath, RecordError, RecordOptions, RecordingSummary, StopHandle, TargetStatus, interrupt,
};

/// Stands for the port in commands.
const PORT_PLACEHOLDER: &str = "{port}";

/// Why a workload has no trace that can be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The recorder failed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The runtime has ended a process of the workload, or a process was not recorded, for these reasons.
    #[error("{}", .0.join("; "))]
    Unsupported(Vec<String>),
    /// The user has interrupted the recording.
    #[error("interrupted while the workload was recorded; nothing was checked")]
    Interrupted,
    /// The workload fails without any crash.
    #[error(transparent)]
    Failed(#[from] WorkloadFailure),
    /// Standard output cannot be redirected.
    #[error("standard output")]
    Output(#[source] io::Error),
}

/// How a workload fails without any crash.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadFailure {
    /// It ends with another status than 0 or by a signal.
    #[error("the workload itself fails ({0}) without any crash; it has to succeed first")]
    Fails(TargetStatus),
    /// It takes longer than its time limit.
    #[error(
        "the workload did not end in time without any crash{}",
        at_the_end(waiting)
    )]
    TimedOut {
        /// What its threads did then, in sentences.
        waiting: Vec<String>,
    },
    /// The server ends before the client could run.
    #[error("the server ended before it was ready")]
    EndedEarly,
    /// The server does not become ready.
    #[error("the server was not ready in time; see --ready and --timeout")]
    NotReady,
    /// The client or the stop command fails.
    #[error("`{command}` fails ({status}) without any crash")]
    CommandFails {
        /// The command, as the user gave it.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The client or the stop command cannot be started.
    #[error("`{command}` cannot be run: {error}")]
    CommandNotRun {
        /// The command, as the user gave it.
        command: String,
        /// The error of the system.
        error: io::Error,
    },
}

/// Sentences, behind another one.
fn at_the_end(sentences: &[String]) -> String {
    match sentences {
        [] => String::new(),
        sentences => format!(": {}", sentences.join("; ")),
    }
}

/// A command that runs beside the server.
#[derive(Clone, Debug)]
pub(crate) struct ServerCommand {
    /// The command, as the user gave it.
    pub(crate) text: String,
    /// Its words. `{port}` stands for the port of the server, `{pool}` for the path that the server got.
    pub(crate) words: Vec<OsString>,
}

/// The part of a workload that makes it a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerWorkload {
    /// The command that gives the server work.
    pub(crate) client: ServerCommand,
    /// When the server is ready for the client.
    pub(crate) ready: Ready,
    /// The command that stops the server; without one it gets SIGTERM.
    pub(crate) stop: Option<ServerCommand>,
    /// The port that `{port}` stands for.
    pub(crate) port: u16,
    /// How long the server may take to become ready.
    pub(crate) timeout: Duration,
}

/// A TCP port that is free now.
pub(crate) fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}

/// A word with the port in place of its placeholder.
pub(crate) fn with_port(word: &OsString, port: u16) -> OsString {
    match word.to_str() {
        Some(text) => text.replace(PORT_PLACEHOLDER, &port.to_string()).into(),
        None => word.clone(),
    }
}

/// Records a workload that has to succeed. `tell` gets sentences while it is recorded.
pub(crate) fn record_workload(
    options: &RecordOptions,
    runtime: &[u8],
    server: Option<&ServerWorkload>,
    tell: &mut dyn FnMut(&str),
) -> Result<RecordingSummary, WorkloadError> {
    let mut options = options.clone();
    // A handle for this recording alone: a request that comes too late must not stop the next one.
    options.stop = StopHandle::default();
    options.fresh = FreshPath::default();
    let record = || powerfail_recorder::record_and_tell(&options, runtime, tell);
    let (summary, failure) = match server {
        None => (beside_report(record).map_err(WorkloadError::Output)?, None),
        Some(server) => {
            let client = Client::new(server, options.stop.clone(), options.fresh.clone());
            client.run_beside(record).map_err(WorkloadError::Output)?
        }
    };
    if interrupt::is_interrupted() {
        return Err(WorkloadError::Interrupted);
    }
    let is_interruption = |status| {
        // The terminal has interrupted the target, but not this process.
        server.is_none() && matches!(status, TargetStatus::Killed(libc::SIGINT | libc::SIGTERM))
    };
    let summary = match summary {
        Err(RecordError::RuntimeSilent { status }) if is_interruption(status) => {
            return Err(WorkloadError::Interrupted);
        }
        // What a process did that was not recorded explains the difference.
        Err(RecordError::SelfCheck(failure)) if !failure.summary.unrecorded.is_empty() => {
            return Err(WorkloadError::Unsupported(failure.summary.unrecorded));
        }
        Err(RecordError::TreeCheck(failure)) if !failure.summary.unrecorded.is_empty() => {
            return Err(WorkloadError::Unsupported(failure.summary.unrecorded));
        }
        summary => summary?,
    };
    if !summary.fatal.is_empty() || !summary.unrecorded.is_empty() {
        let reasons = summary.fatal.into_iter().chain(summary.unrecorded);
        return Err(WorkloadError::Unsupported(reasons.collect()));
    }
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    if is_interruption(summary.status) {
        return Err(WorkloadError::Interrupted);
    }
    if summary.timed_out {
        let waiting = summary.waiting;
        return Err(WorkloadFailure::TimedOut { waiting }.into());
    }
    match summary.status {
        TargetStatus::Exited(0) => Ok(summary),
        // A server is stopped by a signal.
        TargetStatus::Killed(_) if server.is_some() => Ok(summary),
        status => Err(WorkloadFailure::Fails(status).into()),
    }
}

/// Runs `work` with standard output redirected to standard error.
fn beside_report<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    io::stdout().flush()?;
    let kept: OwnedFd = rustix::io::dup(rustix::stdio::stdout())?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    let result = work();
    rustix::stdio::dup2_stdout(&kept)?;
    Ok(result)
}

/// The client of a server that is being recorded.
struct Client<'a> {
    server: &'a ServerWorkload,
    stop: StopHandle,
    pool: FreshPath,
    /// What the server has written so far.
    output: Mutex<Vec<u8>>,
    has_ended: AtomicBool,
}

impl<'a> Client<'a> {
    const fn new(server: &'a ServerWorkload, stop: StopHandle, pool: FreshPath) -> Self {
        Self {
            server,
            stop,
            pool,
            output: Mutex::new(Vec::new()),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Runs `record` and, at the same time, the client. Returns the result of `record`, and how the client failed.
    fn run_beside<T>(
        &self,
        record: impl FnOnce() -> T,
    ) -> io::Result<(T, Option<WorkloadFailure>)> {
        io::stdout().flush()?;
        let kept: OwnedFd = rustix::io::dup(rustix::stdio::stdout())?;
        let (from, to) = io::pipe()?;
        rustix::stdio::dup2_stdout(&to)?;
        drop(to);
        Ok(std::thread::scope(|scope| {
            scope.spawn(move || self.pass_on(from));
            let client = scope.spawn(|| self.serve().err());
            let result = record();
            self.has_ended.store(true, Ordering::Relaxed);
            // Closes the last end for writing, which lets the other thread end.
            let _ = rustix::stdio::dup2_stdout(&kept);
            (result, client.join().ok().flatten())
        }))
    }

    /// Waits until the server is ready, runs the client, and stops the server.
    fn serve(&self) -> Result<(), WorkloadFailure> {
        let result = self.run_client();
        if matches!(result, Err(WorkloadFailure::EndedEarly)) {
            return result;
        }
        match &self.server.stop {
            Some(stop) => result.and_then(|()| self.run(stop)),
            None => {
                self.stop.stop();
                result
            }
        }
    }

    fn run_client(&self) -> Result<(), WorkloadFailure> {
        let begun = Instant::now();
        let mut pauses = Ready::pauses();
        while !self.is_ready() {
            if self.has_ended.load(Ordering::Relaxed) {
                return Err(WorkloadFailure::EndedEarly);
            }
            if begun.elapsed() > self.server.timeout {
                return Err(WorkloadFailure::NotReady);
            }
            std::thread::sleep(pauses.next().unwrap_or_default());
        }
        self.run(&self.server.client)
    }

    fn is_ready(&self) -> bool {
        if self.has_ended.load(Ordering::Relaxed) {
            return false;
        }
        let ready = match &self.server.ready {
            Ready::Unix(path) => Ready::Unix(self.pool.replace(path.as_os_str()).into()),
            ready => ready.clone(),
        };
        ready.is_met(self.server.port, |pattern| {
            let output = self.output.lock();
            let output = output.map(|output| output.clone()).unwrap_or_default();
            let mut lines = output.split(|byte| *byte == b'\n');
            lines.any(|line| pattern.is_match(line))
        })
    }

    fn run(&self, command: &ServerCommand) -> Result<(), WorkloadFailure> {
        let words = command.words.iter();
        let words: Vec<OsString> = words
            .map(|word| with_port(&self.pool.replace(word), self.server.port))
            .collect();
        let Some((program, arguments)) = words.split_first() else {
            return Ok(());
        };
        let text = command.text.clone();
        match Command::new(program).args(arguments).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(WorkloadFailure::CommandFails {
                command: text,
                status,
            }),
            Err(error) => Err(WorkloadFailure::CommandNotRun {
                command: text,
                error,
            }),
        }
    }

    /// Passes what the server writes on to standard error.
    fn pass_on(&self, mut from: io::PipeReader) {
        let mut buffer = [0; 4096];
        while let Ok(len) = from.read(&mut buffer) {
            if len == 0 {
                return;
            }
            if let Ok(mut output) = self.output.lock() {
                output.extend_from_slice(&buffer[..len]);
            }
            let _ = io::stderr().write_all(&buffer[..len]);
        }
    }
}
