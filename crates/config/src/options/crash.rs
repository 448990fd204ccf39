//! `powerfail crash`.

use super::{
    EagerArgs, EagerSettings, LazyArgs, LazySettings, TestArgs, TestSettings, options, sections,
};
use crate::error::SettingsError;
use crate::value::Strategy;

options! {
    /// The option that chooses among the others.
    StrategyArgs => StrategySettings {
        /// Which contents of memory after a crash are tried [default: prefix]
        [long, value_enum, value_name = "STRATEGY"]
        strategy: Strategy = Strategy::default(),
    }
}

sections! {
    /// The options of `powerfail crash`.
    CrashArgs {
        strategy: StrategyArgs,
        test: TestArgs,
        lazy: LazyArgs,
        eager: EagerArgs,
    }
}

/// Which contents of memory after a crash are tried.
#[derive(Clone, Debug)]
pub enum CrashStrategy {
    /// All stores before the failure survive.
    Prefix,
    /// Combinations of stores survive.
    Eager(EagerSettings),
    /// Lines are lost or kept when recovery reads them.
    Lazy(LazySettings),
}

/// What `powerfail crash` is to do.
#[derive(Clone, Debug)]
pub struct CrashSettings {
    /// Which contents of memory are tried.
    pub strategy: CrashStrategy,
    /// How crashes are tested and reported.
    pub test: TestSettings,
}

impl CrashArgs {
    /// These options over those of the configuration file. A flag of another strategy is an error; in the file it
    /// waits for its strategy.
    pub fn settle(self, file: Self) -> Result<CrashSettings, SettingsError> {
        let given = self.clone();
        let lazy = self.lazy.clone().settle(file.lazy.clone())?;
        let all = self.over(file);
        let strategy = all.strategy.resolve().strategy;
        let (eager, is_lazy) = (&given.eager, strategy == Strategy::Lazy);
        let is_eager = strategy == Strategy::Eager;
        for (is_given, flag, fits, wanted) in [
            (eager.threshold.is_some(), "--threshold", is_eager, "eager"),
            (eager.sample.is_some(), "--sample", is_eager, "eager"),
            (eager.coalesce.is_some(), "--coalesce", is_eager, "eager"),
            (eager.segments.is_some(), "--segments", is_eager, "eager"),
            (
                eager.no_snapshot.is_some(),
                "--no-snapshot",
                is_eager,
                "eager",
            ),
            (given.lazy.depth.is_some(), "--depth", is_lazy, "lazy"),
            (
                given.lazy.max_executions.is_some(),
                "--max-executions",
                is_lazy,
                "lazy",
            ),
            (
                given.lazy.exhaustive.is_some(),
                "--exhaustive",
                is_lazy,
                "lazy",
            ),
            (given.lazy.no_fork.is_some(), "--no-fork", is_lazy, "lazy"),
            (given.lazy.random.is_some(), "--random", is_lazy, "lazy"),
        ] {
            if is_given && !fits {
                return Err(SettingsError::OtherStrategy(flag, wanted));
            }
        }
        if is_eager && all.test.failures.at.is_some() {
            return Err(SettingsError::Apart(
                "--at",
                "--strategy eager, which has --segments",
            ));
        }
        Ok(CrashSettings {
            strategy: match strategy {
                Strategy::Prefix => CrashStrategy::Prefix,
                Strategy::Eager => CrashStrategy::Eager(all.eager.resolve()),
                Strategy::Lazy => CrashStrategy::Lazy(lazy),
            },
            test: all.test.settle(false)?,
        })
    }
}
