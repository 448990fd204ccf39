//! Which outcomes of recoveries a command knows before it begins, and where it keeps new ones.

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use powerfail_config::{
    CheckSettings, Count, CrashSettings, Partition, RacesSettings, TestSettings,
};
use powerfail_trace::Trace;

use super::SessionError;
use crate::outcomes::{About, Outcomes, OutcomesError, Stored};
use crate::output_directory;
use crate::recovery::Recovery;
use crate::shares::Shares;

/// What a command is to do, as text: the same text means the same recoveries and the same report.
pub(super) struct Purpose(String);

impl Purpose {
    pub(super) fn check(settings: &CheckSettings) -> Self {
        let mut settings = settings.clone();
        // Traces are told apart by what is in them.
        settings.trace = None;
        Self::of("check", &mut settings, |it| &mut it.test)
    }

    pub(super) fn crash(settings: &CrashSettings) -> Self {
        Self::of("crash", &mut settings.clone(), |it| &mut it.test)
    }

    pub(super) fn races(settings: &RacesSettings) -> Self {
        Self::of("races", &mut settings.clone(), |it| &mut it.test)
    }

    /// Without what changes no outcome.
    fn of<T: Debug>(
        command: &str,
        settings: &mut T,
        test: impl FnOnce(&mut T) -> &mut TestSettings,
    ) -> Self {
        let test = test(settings);
        test.failures.jobs = Count::clamped(1);
        test.output.out = None;
        test.output.format.clear();
        test.output.html = None;
        test.shares.partition = None;
        test.shares.resume = false;
        Self(format!("{command} {settings:?}"))
    }
}

/// What outcomes are of.
pub(super) fn about(
    purpose: &Purpose,
    arguments: &[OsString],
    trace: &Trace,
    recovery: &Recovery,
    partition: Option<Partition>,
    companions: &[PathBuf],
) -> Result<About, SessionError> {
    let digest = trace
        .digest()
        .map_err(|error| SessionError::Check(error.into()))?;
    Ok(About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arguments: arguments.to_vec(),
        directory: std::env::current_dir().unwrap_or_default(),
        trace: digest,
        options: purpose.0.clone(),
        recovery: serde_json::to_string(recovery).unwrap_or_default(),
        share: partition.map(|it| (it.number(), it.of())),
        companions: companions.to_vec(),
    })
}

/// The output directory of a command. `usual` is that of a command that always has one.
pub(super) fn output_directory_of(test: &TestSettings, usual: Option<&str>) -> Option<PathBuf> {
    let shares = &test.shares;
    let usual = match shares.partition {
        Some(partition) => Some(share_directory(partition)),
        None if shares.resume => Some(PathBuf::from(output_directory::DEFAULT)),
        None => usual.map(PathBuf::from),
    };
    test.output.out.clone().or(usual)
}

/// The output directory of a share if none is given.
pub(crate) fn share_directory(partition: Partition) -> PathBuf {
    let (number, of) = (partition.number(), partition.of());
    PathBuf::from(format!("{}.{number}-of-{of}", output_directory::DEFAULT))
}

/// The outcomes that a command begins with: those of shares, those of the run that it resumes, or none.
pub(super) fn outcomes(
    about: &About,
    shares: Option<Shares>,
    resume: bool,
    out: &Path,
) -> Result<Outcomes, SessionError> {
    if let Some(shares) = shares {
        return Ok(shares.outcomes(about, out)?);
    }
    if let Some(stored) = resume.then(|| Stored::read(out)).transpose()?.flatten() {
        let is_other_share = stored.about.share != about.share;
        let what = stored.about.difference(about);
        let what = what.or(is_other_share.then_some("the share is another one"));
        return match what {
            None => Ok(Outcomes::resume(stored)?),
            Some(what) => Err(OutcomesError::OtherRun {
                path: out.to_path_buf(),
                what,
            }
            .into()),
        };
    }
    Ok(Outcomes::begin(out, about)?)
}
