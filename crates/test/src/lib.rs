//! Power failures in ordinary Rust tests.
//!
//! A test has a workload, which stores something, and a recovery, which opens what a crash has left and panics if it is
//! damaged. `cargo test` and `cargo nextest` run it like any other test. powerfail records the workload, lets the power fail
//! at each moment that makes a difference, and runs the recovery on what can be left. The test fails with the source lines of
//! the store that was lost and a command that shows the failure again.
//!
//! ```
//! use powerfail_test::Check;
//!
//! # fn main() {
//! Check::new()
//!     .workload(|pool| {
//!         pool.bytes_mut()[64..72].copy_from_slice(b"a record");
//!         pool.persist(64..72);
//!         pool.bytes_mut()[0] = 8; // The record has 8 bytes.
//!         pool.persist(0..1);
//!     })
//!     .recover(|pool| {
//!         if pool.bytes()[0] == 8 {
//!             assert_eq!(&pool.bytes()[64..72], b"a record");
//!         }
//!     })
//! #   .once()
//!     .run();
//! # }
//! ```
//!
//! With the attribute, the test is given its `Check`, which then knows the name of the test in every test harness:
//!
//! ```
//! use powerfail_test::{Check, Directory};
//!
//! #[powerfail_test::test]
//! fn settings_survive(check: Check<Directory>) {
//!     check
//!         .workload(|directory| -> std::io::Result<()> {
//!             let mut file = std::fs::File::create(directory.join("settings.new"))?;
//!             std::io::Write::write_all(&mut file, b"complete")?;
//!             file.sync_all()?;
//!             std::fs::rename(directory.join("settings.new"), directory.join("settings"))
//!         })
//!         .recover(|directory| match std::fs::read(directory.join("settings")) {
//!             Ok(text) => assert_eq!(text, b"complete"),
//!             Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
//!         })
//!         .run();
//! }
//! ```
//!
//! # How it works
//!
//! [`ReadyCheck::run`] starts `powerfail check`, which starts the test binary again, once as workload and many times as
//! recovery. There the test runs as far as `run`, which then calls one of the closures and ends the process. So what stands
//! before `run` in a test is executed in each of these processes.
//!
//! The binary `powerfail` is the value of the environment variable `POWERFAIL`, or is found in `PATH`. Without it the test
//! fails and says how to get it. With `POWERFAIL=once`, or [`ReadyCheck::once`], the closures run once without a crash.

mod child;
mod data;
mod name;
mod outcome;
mod pool;
mod session;

pub use data::{Data, Directory};
pub use outcome::Outcome;
pub use pool::Pool;
pub use powerfail_test_macros::test;

use std::ffi::OsString;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

/// A test to be: what it is called and how it is checked. The data is a [`Pool`] or a [`Directory`].
#[derive(Clone, Debug)]
pub struct Check<D = Pool> {
    settings: Settings,
    data: PhantomData<fn(D)>,
}

#[derive(Clone, Debug, Default)]
struct Settings {
    /// The name of the test in its harness.
    name: Option<String>,
    /// The length of the pool.
    len_bytes: u64,
    /// The binary, if it is not to be searched.
    binary: Option<PathBuf>,
    /// Whether the closures run once without powerfail.
    once: bool,
    /// Further arguments of `powerfail check`.
    arguments: Vec<OsString>,
}

impl Check<Pool> {
    /// A check of a mapped pool. The name of the test is that of its thread; use [`macro@test`] where tests run in the main
    /// thread, as with `--test-threads=1`.
    #[expect(
        clippy::new_without_default,
        reason = "a check without closures is nothing"
    )]
    pub fn new() -> Self {
        Self::with_name(None)
    }

    /// The length of the pool; without it 64 KiB.
    #[must_use]
    pub fn len_bytes(mut self, len_bytes: u64) -> Self {
        self.settings.len_bytes = len_bytes;
        self
    }
}

impl Check<Directory> {
    /// A check of all files below a directory.
    pub fn directory() -> Self {
        Self::with_name(None)
    }
}

impl<D: Data> Check<D> {
    /// A check of the test with this path, which begins with the crate. [`macro@test`] calls it.
    pub fn of_test(path: &str) -> Self {
        // A test harness leaves the crate out.
        let name = path.split_once("::").map_or(path, |(_, name)| name);
        Self::with_name(Some(name.to_owned()))
    }

    fn with_name(name: Option<String>) -> Self {
        const LEN_BYTES: u64 = 64 << 10;
        Self {
            settings: Settings {
                name,
                len_bytes: LEN_BYTES,
                ..Settings::default()
            },
            data: PhantomData,
        }
    }

    /// How long the check may take; without it 2 minutes.
    #[must_use]
    pub fn budget(self, budget: Duration) -> Self {
        self.arguments(["--budget".to_owned(), format!("{}ms", budget.as_millis())])
    }

    /// Further arguments of `powerfail check`, such as `--races`.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.settings
            .arguments
            .extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The binary `powerfail`, instead of that of `POWERFAIL` or `PATH`.
    #[must_use]
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.binary = Some(path.into());
        self
    }

    /// What is recorded, and during which the power fails.
    pub fn workload<R: Outcome>(
        self,
        workload: impl FnOnce(&mut D) -> R,
    ) -> CheckWithWorkload<D, impl FnOnce(&mut D) -> Option<String>> {
        CheckWithWorkload {
            settings: self.settings,
            workload: |data: &mut D| workload(data).failure(),
            data: PhantomData,
        }
    }
}

/// A check that needs a recovery.
#[must_use = "a check needs a recovery, and is run by `run`"]
pub struct CheckWithWorkload<D, W> {
    settings: Settings,
    workload: W,
    data: PhantomData<fn(D)>,
}

impl<D: Data, W: FnOnce(&mut D) -> Option<String>> CheckWithWorkload<D, W> {
    /// What opens the data after a crash. It panics or returns an error if the data is damaged.
    pub fn recover<R: Outcome>(
        self,
        recover: impl FnOnce(&mut D) -> R,
    ) -> ReadyCheck<D, W, impl FnOnce(&mut D) -> Option<String>> {
        ReadyCheck {
            settings: self.settings,
            workload: self.workload,
            recover: |data: &mut D| recover(data).failure(),
            data: PhantomData,
        }
    }
}

/// A check that can be run.
#[must_use = "a check is run by `run`"]
pub struct ReadyCheck<D, W, R> {
    settings: Settings,
    workload: W,
    recover: R,
    data: PhantomData<fn(D)>,
}

impl<D, W, R> ReadyCheck<D, W, R>
where
    D: Data,
    W: FnOnce(&mut D) -> Option<String>,
    R: FnOnce(&mut D) -> Option<String>,
{
    /// Runs the closures once, one after the other, without powerfail: a test of the test.
    pub fn once(mut self) -> Self {
        self.settings.once = true;
        self
    }

    /// Runs the check. Panics with the report if there are findings, and if nothing could be checked.
    #[track_caller]
    pub fn run(self) {
        let Self {
            settings,
            workload,
            recover,
            ..
        } = self;
        let name = name::of_test(settings.name.as_deref());
        let number = name::next_number(name.as_deref().unwrap_or_default());
        if let Some(role) = child::role() {
            // The test has several checks, and another one is meant.
            if role.number != number {
                return;
            }
            match role.part {
                child::Part::Workload => child::play(&role, settings.len_bytes, workload),
                child::Part::Recovery => child::play(&role, settings.len_bytes, recover),
            }
        }
        if settings.once || session::is_once() {
            return session::run_once(settings.len_bytes, workload, recover);
        }
        let name = name.unwrap_or_else(|| panic!("{}", name::UNKNOWN));
        if let Err(message) = session::check::<D>(&settings, &name, number) {
            panic!("{message}");
        }
    }
}
