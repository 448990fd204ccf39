//! Why a command has no report.

use std::io;
use std::path::{Path, PathBuf};

use powerfail_config::BaselineError;

use crate::error::CheckError;
use crate::outcomes::OutcomesError;
use crate::output_directory::DirectoryError;
use crate::schedules::ScheduleError;
use crate::shares::SharesError;
use crate::workload::WorkloadError;

/// Why a command has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The workload has no trace that can be checked.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Schedules cannot be recorded or compared.
    #[error(transparent)]
    Schedules(ScheduleError),
    /// The trace cannot be tested.
    #[error(transparent)]
    Check(CheckError),
    /// The output directory cannot be written.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Outcomes cannot be kept or read.
    #[error(transparent)]
    Outcomes(#[from] OutcomesError),
    /// Directories are not the shares of this run.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// The trace cannot be read.
    #[error("{}", path.display())]
    Trace {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        source: CheckError,
    },
    /// The path of the trace is that of something else.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The trace ends early.
    #[error(
        "{}: the recording ended before the trace was finished, so it cannot be judged; record again",
        path.display()
    )]
    Unfinished {
        /// The path of the trace.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("{}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The baseline is not a report.
    #[error("{}", path.display())]
    Baseline {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        source: BaselineError,
    },
    /// The trace has no such event.
    #[error("--at {at} is out of range: the trace has {events} events, so expected 0 to {events}")]
    NoSuchEvent {
        /// The number that was given.
        at: u64,
        /// How many events there are.
        events: u64,
    },
    /// The power does not fail there, by the choice of failure points.
    #[error("--at {at} is not a failure point that --failure-points chooses: {}", nearest(*before, *after))]
    NotAFailurePoint {
        /// The number that was given.
        at: u64,
        /// The nearest failure point before it.
        before: Option<u64>,
        /// The nearest one after it.
        after: Option<u64>,
    },
    /// There is no command that recovers.
    #[error("the trace does not name its workload; give --recover")]
    NoRecovery,
    /// The command of a trace of others may not run. The sentence says why.
    #[error("{0}")]
    NotAllowed(String),
    /// The recordings would not begin with the same content.
    #[error(
        "--schedules runs the workload several times, each time on a fresh pool: write {{pool}} or {{dir}} in its command \
         where its path is"
    )]
    PoolNotFresh,
    /// No port is free.
    #[error("find a free port")]
    Port(#[source] io::Error),
}

impl SessionError {
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        |source| Self::File { path, source }
    }
}

/// The failure points next to an event that is none.
fn nearest(before: Option<u64>, after: Option<u64>) -> String {
    match (before, after) {
        (Some(before), Some(after)) => format!("the nearest are {before} and {after}"),
        (Some(only), None) | (None, Some(only)) => format!("the nearest is {only}"),
        (None, None) => "the trace has none".to_owned(),
    }
}

impl From<ScheduleError> for SessionError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Workload(error) => Self::Workload(error),
            error => Self::Schedules(error),
        }
    }
}
