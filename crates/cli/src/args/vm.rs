//! `powerfail vm`: its commands and their flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use powerfail_config::{
    Count, EagerArgs, FailurePoints, OutputArgs, ReportArgs, Strategy, parse_duration, parse_size,
};

#[derive(Debug, Subcommand)]
pub(crate) enum VmCommand {
    /// Find crash-consistency bugs of a kernel's file system, on emulated persistent memory
    ///
    /// Boots Linux in QEMU once, without KVM, and saves the machine. From there it records what the kernel does to
    /// persistent memory while a script runs, lets the power fail, and mounts and checks what a crash could leave: the
    /// file system must mount, be readable and writable, pass fsck, and have what was synced. Needs the Debian packages
    /// qemu-system-x86, busybox-static, a kernel (linux-image-amd64), and e2fsprogs or xfsprogs.
    Check(Box<VmCheckArgs>),
    /// Recover one crash image in a guest: what vm check runs after each crash
    #[command(hide = true)]
    Recover(VmRecoverArgs),
    /// Open a shell in a guest that has a crash image as its persistent memory
    ///
    /// The image is a file of powerfail replay ID --image DIR. It is copied: what happens in the guest does not change it.
    Shell(VmShellArgs),
}

/// A file system that powerfail makes, mounts and checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FsArg {
    /// ext4 with DAX
    #[default]
    Ext4,
    /// XFS with DAX
    Xfs,
    /// No file system: scripts use /dev/pmem0
    None,
}

/// When operations are promised to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PromiseArg {
    /// After a sync
    Sync,
    /// When they return; each is atomic
    Return,
}

#[derive(Debug, Args)]
pub(crate) struct VmCheckArgs {
    /// The workload: a script for the shell of the guest
    ///
    /// It runs in the root of the file system. Each system call that changes something is an operation; `sync` and `fsync`
    /// make things durable, and powerfail knows that.
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) workload: PathBuf,
    /// The file system, which is made and mounted; --mkfs means the same
    #[arg(long, alias = "mkfs", value_enum, value_name = "FS", default_value_t)]
    pub(crate) fs: FsArg,
    /// Script that checks the recovered file system, in its root; a nonzero exit status is a bug
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) recover: Option<PathBuf>,
    /// Script that attaches persistent memory, instead of mount; with --fs none
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) attach: Option<PathBuf>,
    /// Script that detaches it, instead of umount; with --fs none
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) detach: Option<PathBuf>,
    /// Script that prints what is stored, a line for each thing; with --fs none
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) list: Option<PathBuf>,
    /// File that the guest gets in /powerfail, which is in its PATH; can be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// When an operation is promised to be durable [default: sync; return with --fs none]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) promise: Option<PromiseArg>,
    /// Size of persistent memory, such as 16M [default: 16M for ext4, 304M for xfs, 4M for none]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) pm: Option<u64>,
    /// What persistent memory has at the beginning [default: an empty file system]
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Option<PathBuf>,
    /// The kernel [default: the newest of /boot]
    #[arg(long, value_name = "VMLINUZ", help_heading = "Machine")]
    pub(crate) kernel: Option<PathBuf>,
    /// The directory of its modules [default: lib/modules/VERSION beside it, or of the system]
    #[arg(long, value_name = "DIR", help_heading = "Machine")]
    pub(crate) modules: Option<PathBuf>,
    /// Module that is loaded besides those of the file system; can be repeated
    #[arg(long, value_name = "NAME", help_heading = "Machine")]
    pub(crate) module: Vec<String>,
    /// Debug information of the kernel (vmlinux) or of a module (.ko), for lines in findings; can be repeated
    #[arg(long, value_name = "FILE", help_heading = "Machine")]
    pub(crate) debug_info: Vec<PathBuf>,
    /// Initial file system of your own, whose /init speaks the protocol of powerfail's
    #[arg(long, value_name = "CPIO", help_heading = "Machine")]
    pub(crate) initrd: Option<PathBuf>,
    /// Words for the command line of the kernel
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        help_heading = "Machine"
    )]
    pub(crate) append: String,
    /// Use the machine of this directory, which is made if it does not exist [default: machine in the output directory]
    #[arg(long, value_name = "DIR", help_heading = "Machine")]
    pub(crate) machine: Option<PathBuf>,
    /// Which contents of memory after a crash are tried [default: prefix; with --fs none also eager, for at most 2 minutes,
    /// if that finds no correctness bug]
    #[arg(long, value_enum, value_name = "STRATEGY", help_heading = "Failures")]
    pub(crate) strategy: Option<Strategy>,
    /// Events before which the power fails [default: each flush and fence]
    #[arg(long, value_enum, value_name = "WHICH", help_heading = "Failures")]
    pub(crate) failure_points: Option<FailurePoints>,
    /// Failure points for each call stack: 1 is the first, 2 adds the last, more are chosen at random; 0 is all
    /// [default: 1]
    #[arg(
        long,
        value_name = "K",
        default_value_t = 1,
        hide_default_value = true,
        help_heading = "Failures"
    )]
    pub(crate) per_stack: u64,
    /// Time limit for each recovery; exceeding it is a bug [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Failures")]
    pub(crate) timeout: Option<Duration>,
    /// Time limit for all recoveries and explanations together; the most valuable run first
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Failures")]
    pub(crate) budget: Option<Duration>,
    /// Number of guests that recover at a time [default: number of processors]
    #[arg(long, value_name = "N", help_heading = "Failures")]
    pub(crate) jobs: Option<Count>,
    /// Seed of all random choices [default: 0]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Failures"
    )]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) eager: EagerArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VmRecoverArgs {
    /// The saved machine
    #[arg(long, value_name = "DIR")]
    pub(crate) machine: PathBuf,
    /// The archive of the files that the guest gets
    #[arg(long, value_name = "FILE")]
    pub(crate) files: PathBuf,
    /// The socket of the check; without it a guest is started
    #[arg(long, value_name = "SOCKET")]
    pub(crate) service: PathBuf,
    /// How long the guest may take, in seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) limit: u64,
    /// The crash image
    #[arg(value_name = "POOL")]
    pub(crate) pool: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct VmShellArgs {
    /// The saved machine
    #[arg(long, value_name = "DIR", default_value = "powerfail-out/machine")]
    pub(crate) machine: PathBuf,
    /// The archive of the files that the guest gets: those of the check
    #[arg(long, value_name = "FILE", default_value = "powerfail-out/guest-files")]
    pub(crate) files: PathBuf,
    /// The crash image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,
}
