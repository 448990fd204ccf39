//! `powerfail check`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::record::workload;
use super::{
    LazyArgs, LazySettings, RaceArgs, RaceSettings, RecordingArgs, RecordingSettings, TestArgs,
    TestSettings, options, sections,
};
use crate::error::SettingsError;
use crate::value::{CommandText, Count};

/// How long `check` takes at most if it is told neither a budget nor to be exhaustive: enough for everything that
/// recovery of a small program can observe.
pub const CHECK_BUDGET: Duration = Duration::from_mins(2);

options! {
    /// Options of `check` alone.
    CheckOwnArgs => CheckOwnSettings {
        /// Do not explore lost and reordered lines: all stores before a failure survive
        [long, conflicts_with_all = ["exhaustive", "depth", "max_executions", "random", "no_fork"],
            num_args = 0, default_missing_value = "true"]
        no_lazy: bool = false,
        /// Also report unsafe reads of recovery, even those that it survives: see powerfail races
        [long, num_args = 0, default_missing_value = "true"]
        races: bool = false,
        /// Record the workload this many times, with different orders of its threads, and check each that differs
        /// [default: 1]
        ///
        /// Before each operation on persistent memory, each read from it, and each lock, condition variable and the
        /// like, --seed decides which thread runs next. The workload must use {pool}, so that each recording begins
        /// with the same content.
        [long, value_name = "N"]
        schedules: Count = Count::clamped(1),
        /// Check this trace instead of recording a workload
        [long, value_name = "FILE", conflicts_with_all = ["client", "schedules", "command"]]
        trace: PathBuf,
        /// The workload is a server: command that uses it while it is recorded
        [long, value_name = "CMD"]
        client: CommandText,
        /// Workload: a command and its arguments
        ///
        /// {pool} in an argument is replaced by the path of a fresh pool, {dir} by that of a fresh directory, {port} by a
        /// free port.
        [last = true, value_name = "CMD"]
        command: Vec<OsString> = Vec::new(),
    }
}

sections! {
    /// The options of `powerfail check`.
    CheckArgs {
        own: CheckOwnArgs,
        recording: RecordingArgs,
        test: TestArgs,
        lazy: LazyArgs,
        races: RaceArgs,
    }
}

/// What `powerfail check` is to do.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    /// The trace to check instead of recording a workload.
    pub trace: Option<PathBuf>,
    /// The workload: the program and its arguments; not empty, unless there is a trace.
    pub command: Vec<OsString>,
    /// The command that uses a workload that is a server.
    pub client: Option<CommandText>,
    /// How often the workload is recorded.
    pub schedules: u64,
    /// How it is recorded.
    pub recording: RecordingSettings,
    /// How crashes are tested and reported.
    pub test: TestSettings,
    /// How lost and reordered lines are explored, if they are.
    pub lazy: Option<LazySettings>,
    /// Which reads of recovery are reported, if any.
    pub races: Option<RaceSettings>,
}

impl CheckSettings {
    /// Whether the workload or its client may use `{port}`.
    pub fn uses_port(&self) -> bool {
        let mut words = self.command.iter();
        self.client.is_some()
            || words.any(|word| word.to_str().is_some_and(|word| word.contains("{port}")))
    }
}

impl CheckArgs {
    /// These options over those of the configuration file.
    pub fn settle(self, file: Self) -> Result<CheckSettings, SettingsError> {
        let lazy = self.lazy.clone().settle(file.lazy.clone())?;
        let is_depth_given = self.recording.schedule_depth.is_some();
        let (is_strict_given, is_infer_given) =
            (self.races.strict.is_some(), self.races.infer.is_some());
        let all = self.over(file);
        let own = all.own.resolve();
        for (is_given, flag) in [(is_strict_given, "--strict"), (is_infer_given, "--infer")] {
            if is_given && !own.races {
                return Err(SettingsError::Needs(flag, "--races"));
            }
        }
        let schedules = own.schedules.get();
        if is_depth_given && schedules == 1 {
            return Err(SettingsError::Needs("--schedule-depth", "--schedules"));
        }
        if schedules > 1 && all.test.failures.at.is_some() {
            // Each recording numbers its own events.
            return Err(SettingsError::Apart("--at", "--schedules"));
        }
        let mut test = all.test.settle(own.client.is_some())?;
        if test.shares.partition.is_some() && own.trace.is_none() {
            // Two recordings of a workload are not the same.
            return Err(SettingsError::Needs(
                "--partition",
                "--trace, with a trace of powerfail record",
            ));
        }
        if test.shares.resume && schedules > 1 {
            return Err(SettingsError::Apart("--resume", "--schedules"));
        }
        if test.failures.budget.is_none() && !lazy.exhaustive {
            test.failures.budget = Some(CHECK_BUDGET);
        }
        Ok(CheckSettings {
            command: match own.trace {
                Some(_) => Vec::new(),
                None => workload(own.command, "check")?,
            },
            trace: own.trace,
            test,
            client: own.client,
            schedules,
            recording: all.recording.resolve(),
            lazy: (!own.no_lazy).then_some(lazy),
            races: own.races.then(|| all.races.resolve()),
        })
    }
}
