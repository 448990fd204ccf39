//! Why a command has no report.

use std::io;
use std::path::{Path, PathBuf};

use powerfail_config::BaselineError;

use crate::error::CheckError;
use crate::output_directory::DirectoryError;
use crate::schedules::ScheduleError;
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
    /// There is no command that recovers.
    #[error("the trace does not name its workload; give --recover")]
    NoRecovery,
    /// The recordings would not begin with the same content.
    #[error(
        "--schedules runs the workload several times, each time on a fresh pool: write {{pool}} in its command where \
         the path of the pool is"
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

impl From<ScheduleError> for SessionError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Workload(error) => Self::Workload(error),
            error => Self::Schedules(error),
        }
    }
}
