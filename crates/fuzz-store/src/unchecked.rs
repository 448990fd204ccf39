//! Why a campaign has checked nothing.

use powerfail_finding::NotChecked;
use serde::Serialize;

/// Why a campaign has checked nothing, so that the absence of findings says nothing. The later ones are the better reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unchecked {
    /// It ended before the first power failure was tried.
    NoTime,
    /// In no test case the target maps a pool or changes a file.
    NoPool,
    /// The target stores nothing in a pool.
    NoStore,
    /// There is no moment at which a power failure could make a difference.
    NoFailurePoint,
    /// Recovery may need a file that crash images lack.
    NeedsFile,
    /// Recovery does the same whatever the pools hold.
    RecoveryCannotFail,
    /// Recovery did not open a pool.
    PoolNotOpened,
    /// Recovery opened none of the files that the target changed.
    FilesNotOpened,
    /// Recovery fails without any power failure.
    RecoveryFails,
}

impl From<NotChecked> for Unchecked {
    fn from(reason: NotChecked) -> Self {
        match reason {
            NotChecked::NoStore => Self::NoStore,
            NotChecked::NoFailurePoint | NotChecked::NoFailurePointOfKind => Self::NoFailurePoint,
            NotChecked::NoTime => Self::NoTime,
            NotChecked::PoolNotOpened => Self::PoolNotOpened,
            NotChecked::FilesNotOpened => Self::FilesNotOpened,
            NotChecked::RecoveryCannotFail => Self::RecoveryCannotFail,
            NotChecked::NeedsFile => Self::NeedsFile,
        }
    }
}
