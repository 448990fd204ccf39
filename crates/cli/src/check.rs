//! `powerfail check`: records the workload and judges what a crash would leave of it.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use powerfail_check::{LazyTime, output_directory};
use powerfail_config::{CheckArgs, CheckSettings, CommandText};
use powerfail_oracle::Ready;
use powerfail_recorder::{Options, RecordError, Stacks, Summary, TargetStatus};
use regex::bytes::Regex;

use crate::crash::{self, Work};
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::progress::open_trace;
use crate::record::RUNTIME;
use crate::schedules;
use crate::settings;

/// What is said if nothing was tried yet.
const INTERRUPTED: &str = "interrupted while the workload was recorded; nothing was checked";

pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<Exit> {
    let config = settings::configuration()?;
    let settings = args.clone().settle(config.check)?;
    let workload = &settings.command;
    let baseline = settings::baseline(settings.test.output.baseline.as_deref())?;
    let heap_bytes = settings.recording.heap.map(|heap| heap.0);
    if settings.schedules > 1 {
        schedules::refuse_other_pools(workload, heap_bytes.is_some())?;
    }
    interrupt::watch();
    let out = settings.test.output.out.clone();
    let out = out.unwrap_or_else(|| PathBuf::from(output_directory::DEFAULT));
    let _owned = output_directory::create(&out)?;
    let trace_path = out.join(output_directory::TRACE);
    let port = free_port(&settings)?;
    let recorded: Vec<OsString> = workload.iter().map(|word| with_port(word, port)).collect();
    let mut options = Options::new(recorded, &trace_path);
    options.pools.clone_from(&settings.recording.pool);
    options.pm_dir.clone_from(&settings.recording.pm_dir);
    options.stacks = Stacks::Full;
    options.heap_bytes = heap_bytes;
    options.valgrind_requests = settings.recording.valgrind_requests;
    options.domain = settings.test.domain;
    // An acknowledgement is looked for in what the workload writes.
    options.output_prefix_bytes = 4096;
    let summary = match record(&settings, &options, port)? {
        Recorded::Done(summary) => summary,
        Recorded::Failed(sentence) => {
            complain(&sentence);
            return Ok(Exit::Setup);
        }
        Recorded::Ends(exit) => return Ok(exit),
    };
    for sentence in &summary.warnings {
        let _ = writeln!(anstream::stderr(), "warning: {sentence}");
    }
    if interrupt::is_interrupted() {
        complain(INTERRUPTED);
        return Ok(Exit::Setup);
    }
    let trace = open_trace(&trace_path)?;
    let recovery = settings::recovery(&settings.test, workload, &trace)?;
    let work = Work {
        trace: &trace,
        trace_path: &trace_path,
        recovery: &recovery,
        settings: &settings.test,
        suppress: &config.suppress,
        baseline: baseline.as_ref(),
        out: Some(&out),
        prefix: true,
        eager: None,
        no_snapshot: false,
        lazy: settings
            .lazy
            .as_ref()
            .map(|lazy| settings::lazy(lazy, LazyTime::Share)),
        races: settings.races.as_ref().map(settings::races),
        schedule: 0,
        share: 1,
    };
    if settings.schedules == 1 {
        return crash::judge(&work);
    }
    let again = |options: &Options| record(&settings, options, port);
    let depth = settings.recording.schedule_depth.to_u32();
    schedules::judge(&work, settings.schedules, &options, &again, depth, &summary)
}

/// What came of a recording.
pub(crate) enum Recorded {
    Done(Box<Summary>),
    /// The workload fails without any crash: a sentence.
    Failed(String),
    /// There is nothing more to do.
    Ends(Exit),
}

/// Whether this is how a target ends to which an interruption was passed on.
fn is_interruption(status: TargetStatus) -> bool {
    matches!(status, TargetStatus::Killed(libc::SIGINT | libc::SIGTERM))
}

/// Records the workload.
fn record(settings: &CheckSettings, options: &Options, port: u16) -> anyhow::Result<Recorded> {
    let server = &settings.test.server;
    let server = settings
        .client
        .as_ref()
        .zip(server.ready.as_ref())
        .map(|(client, ready)| ServerWorkload {
            client,
            ready,
            stop: server.stop.as_ref(),
            port,
            timeout: settings.test.failures.timeout,
            seen: Mutex::new(Vec::new()),
            ended: AtomicBool::new(false),
        });
    let summary = with_stdout_aside(server.as_ref(), || {
        powerfail_recorder::record(options, RUNTIME)
    })?;
    let (summary, client_failure) = summary;
    if server.as_ref().is_some_and(|server| server.stop.is_none()) {
        // The signal was our own, and came after the recorder if the server ended by itself.
        interrupt::forget();
    }
    let summary = match summary {
        Ok(summary) => summary,
        Err(RecordError::Unsupported(unsupported)) => {
            complain(&unsupported.to_string());
            return Ok(Recorded::Ends(Exit::Unsupported));
        }
        Err(error @ RecordError::SelfCheck(_)) => {
            complain(&error.to_string());
            return Ok(Recorded::Ends(Exit::Internal));
        }
        Err(RecordError::RuntimeSilent { status })
            if server.is_none() && is_interruption(status) =>
        {
            complain(INTERRUPTED);
            return Ok(Recorded::Ends(Exit::Setup));
        }
        Err(error) => return Err(error.into()),
    };
    for sentence in &summary.fatal {
        complain(sentence);
    }
    if !summary.fatal.is_empty() {
        return Ok(Recorded::Ends(Exit::Unsupported));
    }
    if let Some(failure) = client_failure {
        return Ok(Recorded::Failed(failure));
    }
    let stopped_by_us = server.is_some();
    if !stopped_by_us && is_interruption(summary.status) {
        complain(INTERRUPTED);
        return Ok(Recorded::Ends(Exit::Setup));
    }
    let is_fine = match summary.status {
        TargetStatus::Exited(code) => code == 0,
        TargetStatus::Killed(_) => stopped_by_us,
    };
    if summary.timed_out {
        return Ok(Recorded::Failed(
            "the workload did not end in time without any crash".into(),
        ));
    }
    if !is_fine {
        return Ok(Recorded::Failed(format!(
            "the workload itself fails ({}) without any crash; it has to succeed first",
            summary.status
        )));
    }
    Ok(Recorded::Done(Box::new(summary)))
}

fn with_port(word: &OsString, port: u16) -> OsString {
    match word.to_str() {
        Some(text) if text.contains("{port}") => text.replace("{port}", &port.to_string()).into(),
        _ => word.clone(),
    }
}

/// A port that is free now, if anything asks for one.
fn free_port(settings: &CheckSettings) -> anyhow::Result<u16> {
    if !settings.uses_port() {
        return Ok(0);
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// A workload that is a server, with the client that gives it work.
struct ServerWorkload<'a> {
    client: &'a CommandText,
    ready: &'a Ready,
    stop: Option<&'a CommandText>,
    port: u16,
    timeout: Duration,
    /// What it has written so far.
    seen: Mutex<Vec<u8>>,
    ended: AtomicBool,
}

impl ServerWorkload<'_> {
    fn is_ready(&self) -> bool {
        self.ready
            .is_met(self.port, |pattern| self.has_written(pattern))
    }

    fn has_written(&self, pattern: &Regex) -> bool {
        let seen = self
            .seen
            .lock()
            .map(|seen| seen.clone())
            .unwrap_or_default();
        let mut lines = seen.split(|byte| *byte == b'\n');
        lines.any(|line| pattern.is_match(line))
    }

    fn run(&self, command: &CommandText) -> Option<String> {
        let text = &command.text;
        let words = command.words.iter();
        let words: Vec<OsString> = words.map(|word| with_port(word, self.port)).collect();
        let status = Command::new(&words[0]).args(&words[1..]).status();
        match status {
            Ok(status) if status.success() => None,
            Ok(status) => Some(format!("`{text}` fails ({status}) without any crash")),
            Err(error) => Some(format!("`{text}` cannot be run: {error}")),
        }
    }

    /// Waits until the server is ready, runs the client, stops the server. Gives what went wrong.
    fn serve(&self) -> Option<String> {
        let begun = Instant::now();
        let mut failure = None;
        for pause in Ready::pauses() {
            if self.ended.load(Ordering::Relaxed) {
                return Some("the server ended before it was ready".into());
            }
            if self.is_ready() {
                failure = failure.or_else(|| self.run(self.client));
                break;
            }
            if begun.elapsed() > self.timeout {
                failure =
                    Some("the server was not ready in time; see --ready and --timeout".into());
                break;
            }
            std::thread::sleep(pause);
        }
        match self.stop {
            Some(stop) => failure = failure.or_else(|| self.run(stop)),
            // It may have ended by itself; then there is nobody to pass it on.
            None if self.ended.load(Ordering::Relaxed) => {}
            None => {
                // The recorder passes it on to the target.
                let _ = rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::TERM,
                );
            }
        }
        failure
    }
}

/// Runs `work` with what the workload writes to standard output going to standard error: standard
/// output is for the report. If the workload is a server, its client runs beside.
fn with_stdout_aside<T>(
    server: Option<&ServerWorkload<'_>>,
    work: impl FnOnce() -> T,
) -> anyhow::Result<(T, Option<String>)> {
    std::io::stdout().flush()?;
    let kept: OwnedFd = rustix::io::dup(rustix::stdio::stdout()).context("standard output")?;
    let restore = || rustix::stdio::dup2_stdout(&kept);
    let Some(server) = server else {
        rustix::stdio::dup2_stdout(rustix::stdio::stderr()).context("standard output")?;
        let result = work();
        restore().context("standard output")?;
        return Ok((result, None));
    };
    let (from, to) = std::io::pipe().context("a pipe for the workload")?;
    rustix::stdio::dup2_stdout(&to).context("standard output")?;
    drop(to);
    let (result, failure) = std::thread::scope(|scope| {
        scope.spawn(move || pass_on(from, server));
        let client = scope.spawn(|| server.serve());
        let result = work();
        server.ended.store(true, Ordering::Relaxed);
        // Closes the last writer's end, which lets the other thread end.
        let _ = restore();
        (result, client.join().ok().flatten())
    });
    Ok((result, failure))
}

/// Passes what the workload writes on to standard error.
fn pass_on(mut from: std::io::PipeReader, server: &ServerWorkload<'_>) {
    let mut buffer = [0; 4096];
    while let Ok(len) = from.read(&mut buffer) {
        if len == 0 {
            return;
        }
        if let Ok(mut seen) = server.seen.lock() {
            seen.extend_from_slice(&buffer[..len]);
        }
        let _ = std::io::stderr().write_all(&buffer[..len]);
    }
}
