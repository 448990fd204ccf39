//! `powerfail record`, and what it has in common with `check`.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are help texts, and a terminal shows backticks as they are"
)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use powerfail_model::Domain;

use super::{DomainArgs, options, sections};
use crate::error::SettingsError;
use crate::value::{Backend, HeapSize, Mode, ScheduleDepth, Stacks, parse_duration};

options! {
    /// How a workload is recorded.
    RecordingArgs => RecordingSettings, "Recording" {
        /// Path or pattern of the files that are pools, such as '/mnt/pmem/*.pool'; can be repeated
        ///
        /// By default every regular file and every DAX device that the workload maps shared and writable is a pool,
        /// except for files that are known to hold no data, such as the lock file of LMDB. The summary lists both.
        [long, value_name = "PATH|GLOB"]
        pool: Vec<PathBuf> = Vec::new(),
        /// Path or pattern of files that are not pools; can be repeated
        [long, value_name = "PATH|GLOB"]
        not_pool: Vec<PathBuf> = Vec::new(),
        /// Directory whose files are recorded, with everything below it; can be repeated. {dir} always is one
        ///
        /// 'auto', the default, is the directory of {pool}, or, without that, every directory below the current one in which
        /// the workload changes something. What is written elsewhere is listed and left alone. 'none' is {dir} at most: only
        /// mapped pools are checked.
        [long, value_name = "DIR"]
        tree: Vec<PathBuf> = Vec::new(),
        /// What records the workload [default: auto]
        ///
        /// A statically linked program loads no libraries, so it runs under QEMU (qemu-x86_64 of the package qemu-user), which is
        /// slower. Recovery runs without QEMU.
        [long, value_enum, value_name = "BACKEND"]
        backend: Backend = Backend::default(),
        /// Directory for the pool that replaces {pool}, and for {dir} [default: /dev/shm]
        [long, value_name = "DIR"]
        pm_dir: PathBuf,
        /// Make what the workload allocates with malloc or operator new persistent
        ///
        /// The memory has the same address in recovery, which finds it again by powerfail_root() of
        /// include/powerfail.h. SIZE is the size of the heap: 512M, 2G [default: 256M]. What the C library
        /// and other libraries of the system allocate for themselves stays volatile.
        [long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "256M"]
        heap: HeapSize,
        /// Scheduling depth: number of changes of the order of threads, plus one [default: 3]
        [long, value_name = "N"]
        schedule_depth: ScheduleDepth = ScheduleDepth::clamped(3),
        /// Time limit for the recording of the workload; exceeding it is an error [default: 30m]
        [long, value_name = "TIME", value_parser = parse_duration]
        record_timeout: Duration = Duration::from_mins(30),
        /// Give the workload, and recovery of its crashes, the same time, random numbers and process ids in every run
        [long, num_args = 0, default_missing_value = "true"]
        derandomise: bool = false,
        /// Answer like Valgrind's pmemcheck, so that PMDK and other libraries report what they do by client requests
        [long, num_args = 0, default_missing_value = "true"]
        valgrind_requests: bool = false,
    }
}

options! {
    /// Options of `record` alone.
    RecordOwnArgs => RecordOwnSettings {
        /// Trace to write; an existing file is replaced [default: powerfail.trace]
        [short, long, value_name = "TRACE"]
        output: PathBuf = "powerfail.trace".into(),
        /// How stores are intercepted [default: patch]
        [long, value_enum, value_name = "MODE"]
        mode: Mode = Mode::default(),
        /// What is recorded of the call stack of each event [default: full]
        [long, value_enum, value_name = "WHAT"]
        stacks: Stacks = Stacks::default(),
        /// Schedule the threads of the workload at random, decided by this seed
        [long, value_name = "N"]
        schedule_seed: u64,
        /// Expected number of operations, to place the changes of the order of threads [default: unknown]
        [long, value_name = "N"]
        schedule_length: u64,
        /// Print the summary as one JSON object
        [long, num_args = 0, default_missing_value = "true"]
        json: bool = false,
        /// Workload: a command and its arguments
        ///
        /// {pool} in an argument is replaced by the path of a fresh pool, {dir} by that of a fresh directory. Both are
        /// removed afterwards.
        [last = true, value_name = "CMD"]
        command: Vec<OsString> = Vec::new(),
    }
}

sections! {
    /// The options of `powerfail record`.
    RecordArgs {
        own: RecordOwnArgs,
        recording: RecordingArgs,
        domain: DomainArgs,
    }
}

/// A random order of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Number of changes of the order, plus one.
    pub depth: u32,
    /// Decides the order.
    pub seed: u64,
    /// Expected number of operations; 0 if it is not known.
    pub length: u64,
}

/// What `powerfail record` is to do.
#[derive(Clone, Debug)]
pub struct RecordSettings {
    /// The program and its arguments; not empty.
    pub command: Vec<OsString>,
    /// The trace to write.
    pub output: PathBuf,
    /// How stores are intercepted.
    pub mode: Mode,
    /// What is recorded of call stacks.
    pub stacks: Stacks,
    /// The order of threads, if it is not that of the system.
    pub schedule: Option<Schedule>,
    /// Whether the summary is JSON.
    pub json: bool,
    /// What it has in common with `check`.
    pub recording: RecordingSettings,
    /// The persistence domain to note in the trace.
    pub domain: Option<Domain>,
}

/// A workload that can be run.
pub(crate) fn workload(
    command: Vec<OsString>,
    name: &'static str,
) -> Result<Vec<OsString>, SettingsError> {
    match command.first() {
        Some(program) if !program.is_empty() => Ok(command),
        _ => Err(SettingsError::NoWorkload(name)),
    }
}

impl RecordArgs {
    /// These options over those of the configuration file.
    pub fn settle(self, file: Self) -> Result<RecordSettings, SettingsError> {
        let is_depth_given = self.recording.schedule_depth.is_some();
        let is_length_given = self.own.schedule_length.is_some();
        let all = self.over(file);
        let (own, recording) = (all.own.resolve(), all.recording.resolve());
        for (is_given, flag) in [
            (is_depth_given, "--schedule-depth"),
            (is_length_given, "--schedule-length"),
        ] {
            if is_given && own.schedule_seed.is_none() {
                return Err(SettingsError::Needs(flag, "--schedule-seed"));
            }
        }
        let schedule = own.schedule_seed.map(|seed| Schedule {
            depth: recording.schedule_depth.to_u32(),
            seed,
            length: own.schedule_length.unwrap_or(0),
        });
        Ok(RecordSettings {
            command: workload(own.command, "record")?,
            output: own.output,
            mode: own.mode,
            stacks: own.stacks,
            schedule,
            json: own.json,
            recording,
            domain: all.domain.domain,
        })
    }
}
