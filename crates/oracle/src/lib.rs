//! Runs recovery on crash images and judges it.
//!
//! An [`Oracle`] holds a [`RecoveryPlan`]. Each worker that recovers images has a [`Slot`]: a place with
//! private files that take the place of the pools, and a *zygote*, a small process that starts the
//! commands of the plan there. [`Slot::run`] gives a [`Verdict`] on whatever the private files hold now.
//!
//! ```no_run
//! use powerfail_oracle::{CommandLine, Oracle, PoolMapping, RecoveryPlan, Settings, Verdict};
//!
//! fn main() -> Result<(), powerfail_oracle::OracleError> {
//!     powerfail_oracle::serve_if_zygote();
//!     let plan = RecoveryPlan::new(CommandLine::new(["./store", "--recover", "{pool}"]));
//!     let oracle = Oracle::new(plan, Settings::default())?;
//!     let mut slot = oracle.slot(&[PoolMapping {
//!         original: "/mnt/pmem/store.pool".into(),
//!         private: "/tmp/images/0/store.pool".into(),
//!     }])?;
//!     if let Verdict::Failure(failure) = slot.run()? {
//!         println!("{:?}", failure.outcome);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Why a zygote
//!
//! Recovery must see the image at the pool's own path, so it needs mounts of its own, and nothing that
//! it starts may outlive it. A namespace for each run would cost more than the run. The zygote makes
//! namespaces of mounts and processes once, and then starts a command at the price of `posix_spawn`:
//! its memory is small, and it shares it with the child until the child executes. The zygote is the
//! same program again ([`serve_if_zygote`]), executed afresh, so it inherits no threads and no locks. As
//! the first process of its namespace it can end everything else in it, daemons included, and when
//! it dies the kernel does the same. It dies when the oracle's end of their socket closes, for
//! whatever reason.
//!
//! # How pools are covered
//!
//! If the private directory of a pool holds nothing but pools of one directory, under their own names,
//! it is mounted over that directory; whatever else lies there is mounted into it again. So recovery
//! can rename, remove and create the pool as it likes, and the files of the user are out of reach under
//! these names. Else, or if the directory is crowded, the files are mounted one by one; then a recovery
//! that replaces its pool by renaming gets EBUSY. A directory that is not there any more is made in a
//! file system in memory that only recovery sees. Where there are no namespaces, paths are replaced in
//! arguments and environment; a program that hard-codes its path then sees the user's pool, which is
//! why [`PathMode::Namespace`] exists.
//!
//! # Snapshots
//!
//! With the runtime in [`Settings::runtime`] and [`Settings::snapshot`], a command is executed once, up to
//! where it first touches a pool, and each run is forked from there: no execution of a program, no linking.
//! Whether that makes a difference is seen on the first images of a slot, which are run both ways.
//! [`Slot::snapshot_note`] says what is executed each time all the same, and why. A run whose snapshot is lost
//! has no verdict: [`OracleError::SnapshotLost`] asks for the image once more.
//!
//! # Lazy executions
//!
//! [`Slot::explore`] runs recovery on an image of which some lines are not decided ([`LineTable`]). What they
//! hold is decided when recovery loads from them, and everything that can be observed is: by forking at the
//! load, if the plan is nothing but a recovery, or else one execution at a time, whose choices say what was
//! left ([`Choice`]). After [`OracleError::NotForkable`] the same is asked without forks. Both give the
//! same executions.
//!
//! # What this crate does not do
//!
//! It makes no images and decides nothing about which to try. It words no results.

mod backup;
mod descriptors;
mod environment;
mod error;
mod lazy;
mod message;
mod oracle;
mod plan;
mod program;
mod ready;
mod slot;
mod substitute;
mod verdict;
mod zygote;

pub use error::OracleError;
pub use lazy::{
    Branch, Choice, Execution, ExploreRequest, Explored, LineTable, LogKind, Logged, Note,
    PageMask, StageStart, TableLine, Watch,
};
pub use oracle::{Oracle, PathMode, ProcessMode, Settings};
pub use plan::{CommandLine, Limits, PoolMapping, RecoveryPlan, Server};
pub use ready::{Ready, ReadyError};
pub use slot::{Isolation, KillHandle, Slot};
pub use verdict::{Backtrace, Failure, Stage, ThreadStack, Verdict};
pub use zygote::serve_if_zygote;
