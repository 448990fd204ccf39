//! Runs recovery on crash images and judges it.
//!
//! An [`Oracle`] holds a [`RecoveryPlan`]. Each worker that recovers images has a [`Slot`]: private files that
//! replace the pools, and a *zygote*, a small process that starts the commands of the plan on them.
//! [`Slot::run`] gives a [`Verdict`] on the current content of the private files.
//!
//! ```no_run
//! use powerfail_oracle::{CommandLine, Oracle, PoolMapping, RecoveryPlan, OracleSettings, Verdict};
//!
//! fn main() -> Result<(), powerfail_oracle::OracleError> {
//!     powerfail_oracle::serve_if_zygote();
//!     let plan = RecoveryPlan::new(CommandLine::new(["./store", "--recover", "{pool}"]));
//!     let oracle = Oracle::new(plan, OracleSettings::default())?;
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
//! Recovery must find the image at the path of the pool, so it needs a mount namespace, and no process that it
//! starts may outlive it. Namespaces for each run would cost more than the run. The zygote enters mount and
//! process namespaces once, and then starts a command at the cost of `posix_spawn`: its memory is small, and the
//! child shares it until it executes. The zygote is this program executed once more ([`serve_if_zygote`]), so it
//! inherits no threads and no locks. As the first process of its namespace it can end all others, daemons
//! included, and when it dies the kernel ends them. It dies when the oracle's end of their socket closes.
//!
//! # How images replace pools
//!
//! If the private directory of a pool holds only pools of one directory, under their own names, it is mounted
//! over that directory. Files beside the pools are copied into it and restored before each run; what is long, is
//! executable or is a directory is mounted into it again. So recovery can rename, remove and create the pool and files
//! beside it, and cannot reach the files of the user under these names. Otherwise, or if the
//! directory has too many entries, the files are mounted one by one; then a recovery that replaces its pool by
//! renaming gets EBUSY. A directory that no longer exists is created in a file system in memory that only recovery
//! sees. Without namespaces, paths are replaced in arguments and environment, and a plan in which there is nothing to
//! replace is refused. A program that hard-codes its path and is also given it then opens the pool of the user, which
//! [`PathMode::Namespace`] rules out.
//!
//! # Snapshots
//!
//! With [`OracleSettings::runtime`] and [`OracleSettings::snapshot`], a command is executed once, until it first touches a
//! pool, and each run is forked from there, without executing or linking a program. The first images of a slot are
//! run both ways, to see whether that makes a difference. [`Slot::snapshot_note`] says which commands are executed
//! each time all the same, and why. A run whose snapshot ends has no verdict: after
//! [`OracleError::SnapshotLost`], prepare the image and run it again.
//!
//! # Lazy executions
//!
//! [`Slot::explore`] runs recovery on an image in which the content of some lines is open ([`LineTable`]). It is
//! decided when recovery loads from them, and every value that can be observed is explored: by forking at the
//! load, if the plan consists of a recovery alone, or else by one execution at a time, whose choices tell what is
//! left ([`Choice`]). After [`OracleError::NotForkable`], request the same without forks. Both give the same
//! executions.
//!
//! # What this crate does not do
//!
//! It creates no images, does not choose which to try, and does not format results.

mod backup;
mod denied;
mod descriptors;
mod environment;
mod error;
mod file_use;
mod hang;
mod lazy;
mod message;
mod opened;
mod oracle;
mod plan;
mod program;
mod ready;
mod slot;
mod stored;
mod substitute;
mod verdict;
mod zygote;

pub use denied::DeniedAccess;
pub use error::OracleError;
pub use file_use::{FileUse, WatchedRun};
pub use lazy::{
    Branch, Choice, ExploreRequest, LazyExecution, LazyExecutions, LineTable, LogKind, Logged,
    Note, NotedLoad, PageMask, REST_OF_LINE, StageStart, TableLine, Watch,
};
pub use message::StageModules;
pub use opened::OpenWatch;
pub use oracle::{Oracle, OracleSettings, PathMode, ProcessMode};
pub use plan::{CommandLine, Confinement, Limits, PoolMapping, RecoveryPlan, Server};
pub use ready::{Ready, ReadyError};
pub use slot::{Isolation, KillHandle, Slot};
pub use substitute::Substitution;
pub use verdict::{Backtrace, Failure, Stage, SuspectLine, ThreadStack, Verdict};
pub use zygote::{serve_if_zygote, serve_if_zygote_with_expiry};
