//! What can go wrong with a guest, each in one sentence.

use std::io;
use std::path::{Path, PathBuf};

use powerfail_trace::TraceError;

/// The result of this crate.
pub type Result<T> = std::result::Result<T, VmError>;

/// Why there is no guest, or no recording.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// A program or file of a Debian package is not there.
    #[error("{what} is missing: install the package {package}")]
    Missing {
        /// What is missing.
        what: String,
        /// The package that has it.
        package: &'static str,
    },
    /// No kernel was found.
    #[error(
        "no kernel was found in /boot: install the package linux-image-amd64, or give --kernel VMLINUZ and --modules DIR"
    )]
    NoKernel,
    /// The given kernel has no modules.
    #[error("{kernel} has no modules in {modules}: give their directory with --modules")]
    NoModules {
        /// The kernel.
        kernel: PathBuf,
        /// Where they were looked for.
        modules: PathBuf,
    },
    /// A module is neither a file nor built in.
    #[error("the kernel has no module {name}, in {directory}, and it is not built in")]
    NoModule {
        /// The module.
        name: String,
        /// The directory of the modules.
        directory: PathBuf,
    },
    /// A file cannot be used.
    #[error("cannot {action} {path}: {cause}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        cause: io::Error,
    },
    /// A file has other content than it should.
    #[error("{path}: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// QEMU or its monitor failed.
    #[error("QEMU: {0}")]
    Qemu(String),
    /// A host command failed.
    #[error("{command} failed: {output}")]
    Command {
        /// The command.
        command: String,
        /// What it wrote.
        output: String,
    },
    /// The guest did not do what it should, and no crash is to blame.
    #[error("{0}")]
    Guest(String),
    /// A line of the workload failed without any crash.
    #[error("the workload fails without any crash: `{text}` ended with status {status}{output}")]
    Line {
        /// The line of the script.
        text: String,
        /// Its exit status.
        status: String,
        /// What the guest wrote, with a leading colon.
        output: String,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The user has ended it.
    #[error("interrupted")]
    Interrupted,
    /// Another run makes the machine.
    #[error("another run boots the machine in {}: use it when that has ended, or give another directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The recording does not give the final content of memory.
    #[error("internal error: {0}")]
    SelfCheck(String),
}

impl VmError {
    /// Whether something must be installed before guests can run here.
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::NoKernel)
    }

    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |cause| Self::File {
            action,
            path,
            cause,
        }
    }
}
