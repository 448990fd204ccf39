//! How recovery is run and judged, wherever that happens.

use std::path::PathBuf;

use powerfail_model::Atomicity;

use super::options;
use crate::value::{CommandText, Mebibytes, Pattern, atomicities};

options! {
    /// How recovery is run and judged.
    RecoveryArgs => RecoverySettings, "Recovery" {
        /// Command that recovers after a crash [default: the workload again]
        ///
        /// {pool} is replaced by the path of the pool, {port} by a free port. The command is split into words by
        /// the rules of the shell; if it has operators of the shell, such as | or &&, it is run by /bin/sh.
        [long, value_name = "CMD"]
        recover: CommandText,
        /// Command that checks the recovered pool; a nonzero exit status is a bug
        [long, value_name = "CMD"]
        checker: CommandText,
        /// Command that prints the logical content after recovery, to detect silent loss
        [long, value_name = "CMD"]
        dump: CommandText,
        /// File that the commands after a crash read as their standard input [default: empty]
        [long, value_name = "FILE"]
        recover_input: PathBuf,
        /// Exit codes of recovery that count as success besides 0
        [long, value_name = "CODES", value_delimiter = ',']
        ok_exit: Vec<u8> = Vec::new(),
        /// Treat recovery as failed if a line of its output matches; can be repeated
        [long, value_name = "REGEX"]
        fail_pattern: Vec<Pattern> = Vec::new(),
        /// Limit of the address space of recovery, in MiB
        [long, value_name = "MIB"]
        memory_limit: Mebibytes,
        /// Limit of the length of files that recovery writes, in MiB
        [long, value_name = "MIB"]
        file_limit: Mebibytes,
        /// File or directory that recovery may write to, besides its pools; can be repeated
        ///
        /// Recovery, checker, dump and client see the file system read-only. They write to the pools and to the
        /// directory of the pools, which are crash images, and to /tmp, /var/tmp, /dev/shm and $TMPDIR, which are
        /// private. Over the network they reach only each other.
        [long, value_name = "PATH"]
        writable: Vec<PathBuf> = Vec::new(),
        /// Let recovery write to all files of the user and use the network
        [long, num_args = 0, default_missing_value = "true"]
        no_confine: bool = false,
        /// Unit that becomes durable in one piece [default: store]
        [long, value_name = "UNIT", value_parser = atomicities(), help_heading = "Hardware"]
        atomicity: Atomicity = Atomicity::default(),
        /// Also fail while PMDK creates a pool, which is not failure-atomic by design
        [long, num_args = 0, default_missing_value = "true"]
        include_create: bool = false,
    }
}
