//! `powerfail races`.

use super::{RaceArgs, RaceSettings, TestArgs, TestSettings, sections};
use crate::error::SettingsError;

sections! {
    // A flag that chooses failure points is refused with an explanation.
    /// The options of `powerfail races`.
    #[command(mut_arg("failure_points", |arg| arg.hide(true)))]
    #[command(mut_arg("per_stack", |arg| arg.hide(true)))]
    RacesArgs {
        races: RaceArgs,
        test: TestArgs,
    }
}

/// What `powerfail races` is to do.
#[derive(Clone, Debug)]
pub struct RacesSettings {
    /// Which reads are reported.
    pub races: RaceSettings,
    /// How crashes are tested and reported.
    pub test: TestSettings,
}

impl RacesArgs {
    /// These options over those of the configuration file.
    pub fn settle(self, file: Self) -> Result<RacesSettings, SettingsError> {
        let failures = &self.test.failures;
        for (is_given, flag) in [
            (failures.failure_points.is_some(), "--failure-points"),
            (failures.per_stack.is_some(), "--per-stack"),
        ] {
            if is_given {
                return Err(SettingsError::OrderingPoints(flag));
            }
        }
        let all = self.over(file);
        Ok(RacesSettings {
            races: all.races.resolve(),
            test: all.test.settle(false)?,
        })
    }
}
