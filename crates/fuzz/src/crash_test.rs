//! From a trace to findings: lint, and crashes at the failure points that are worth it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use powerfail_check::{
    CheckError, CheckEvent, Checker, CrashOptions, LazyOptions, LazyTime, Observer, RaceOptions,
    Recovery, Selection, Undisturbed,
};
use powerfail_explore::{FailurePointOptions, Granularity};
use powerfail_finding::{Code, Finding, NotChecked, RecoveryOutcome, Severity};
use powerfail_trace::Trace;

use crate::error::CampaignError;
use crate::options::{CampaignOptions, Checks};

/// Executions at one failure point whose lost lines are explored.
const EXECUTIONS_MAX: u64 = 200;

/// How many failure points of each call stack are tried in a trace of ordinary files.
const FILES_PER_STACK: usize = 3;

/// Tests traces with the recovery of the campaign.
#[derive(Debug)]
pub(crate) struct TraceTester {
    options: Arc<CampaignOptions>,
    runtime: Arc<[u8]>,
    /// How recovery is run by default.
    recovery: Recovery,
}

/// The result of a crash test.
pub(crate) enum CrashTestResult {
    Findings {
        findings: Vec<Finding>,
        /// Why the absence of findings says nothing, if that is so.
        unchecked: Option<NotChecked>,
        /// It is known that what recovery does depends on the pools.
        depends_on_pools: bool,
    },
    /// Recovery fails where no crash is to blame.
    FailsUndisturbed(Undisturbed, Box<RecoveryOutcome>),
    /// There is nothing that could be damaged.
    NoPool,
}

/// Where the lint sees something that only a crash can prove.
pub(crate) type Suspect = (Code, String, u32);

/// What is tried in a trace.
pub(crate) struct CrashTest {
    pub(crate) checks: Checks,
    pub(crate) selection: Arc<dyn Selection>,
    pub(crate) recovery: Recovery,
    pub(crate) budget: Duration,
    pub(crate) seed: u64,
    /// Test whether recovery can fail at all.
    pub(crate) tests_oracle: bool,
}

struct Silent<'a>(&'a dyn Fn() -> bool);

impl Observer for Silent<'_> {
    fn event(&mut self, _event: CheckEvent<'_>) {}

    fn is_interrupted(&self) -> bool {
        (self.0)()
    }
}

impl TraceTester {
    pub(crate) fn new(options: &Arc<CampaignOptions>, runtime: &Arc<[u8]>) -> Self {
        Self {
            options: Arc::clone(options),
            runtime: Arc::clone(runtime),
            recovery: options.recovery(),
        }
    }

    /// How recovery is run by default.
    pub(crate) const fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The same, for the persistence domain of a recorded run: unless it is given, it is chosen as `check` does.
    pub(crate) fn recovery_for(&self, trace: &Trace) -> Result<Recovery, CampaignError> {
        let mut recovery = self.recovery.clone();
        if !self.options.judging.is_domain_given {
            recovery.domain = powerfail_check::domain_of(trace)?;
        }
        Ok(recovery)
    }

    /// The target itself as recovery, fed with an input. `file` is where the input will be.
    pub(crate) fn recovery_with(&self, input: &[u8], file: &Path, base: &Recovery) -> Recovery {
        Recovery {
            recover: self.options.command_with(input),
            input: Some(file.to_path_buf()),
            desock: self.options.desock,
            client: None,
            ready: None,
            stop: None,
            ..base.clone()
        }
    }

    /// What the trace alone shows, and where it shows something that only a crash can prove.
    pub(crate) fn lint(
        &self,
        trace: &Trace,
    ) -> Result<(Vec<Finding>, Vec<Suspect>), CampaignError> {
        let recovery = self.recovery_for(trace)?;
        let options = recovery.lint_options(self.options.judging.warnings);
        let linted = powerfail_check::lint(trace, &options, &mut |_| ())?;
        let unproven = linted.findings.iter();
        let unproven = unproven.filter(|finding| finding.severity == Severity::Warning);
        let suspects = unproven.filter_map(|finding| {
            let place = finding.places.first()?;
            Some((finding.code, place.file.clone()?, place.line?))
        });
        let suspects = suspects.collect();
        Ok((self.wanted(linted.findings), suspects))
    }

    /// What crashes show, and the trace.
    pub(crate) fn crash(
        &self,
        trace: &Trace,
        test: &CrashTest,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<CrashTestResult, CampaignError> {
        let checker = Checker::new(trace, &test.recovery, Arc::clone(&self.runtime), 1);
        let mut options = self.crash_options(test);
        if trace.pools().is_empty() {
            // All moments of a trace of files are alike to the campaign, so a few of each call stack are tried.
            options.tree.per_stack = FILES_PER_STACK;
        }
        let crashed = checker.crash(&options, &mut Silent(is_interrupted));
        match crashed {
            Ok(crashed) => Ok(CrashTestResult::Findings {
                findings: self.wanted(crashed.findings),
                unchecked: crashed.totals.not_checked,
                depends_on_pools: crashed.depends_on_pools,
            }),
            Err(CheckError::Undisturbed { image, outcome, .. }) => {
                Ok(CrashTestResult::FailsUndisturbed(image, outcome))
            }
            Err(CheckError::NoPool) => Ok(CrashTestResult::NoPool),
            Err(error) => Err(error.into()),
        }
    }

    fn crash_options(&self, test: &CrashTest) -> CrashOptions {
        let checks = test.checks;
        CrashOptions {
            tree: FailurePointOptions {
                granularity: Granularity::FlushAndFence,
                per_stack: 0,
                seed: test.seed,
                include_create: self.options.judging.include_create,
                digests: true,
            },
            budget: Some(test.budget),
            warnings: self.options.judging.warnings,
            prefix: checks.prefix,
            lazy: checks.lazy.then(|| LazyOptions {
                limit: Some(EXECUTIONS_MAX),
                robustness: self.options.judging.warnings,
                time: LazyTime::Share,
                ..LazyOptions::default()
            }),
            races: checks.races.then(|| RaceOptions {
                confirm: true,
                ..RaceOptions::default()
            }),
            selection: Some(Arc::clone(&test.selection)),
            tests_oracle: test.tests_oracle,
            ..CrashOptions::default()
        }
    }

    fn wanted(&self, mut findings: Vec<Finding>) -> Vec<Finding> {
        if !self.options.judging.warnings {
            findings.retain(|finding| finding.severity != Severity::Warning);
        }
        findings
    }
}
