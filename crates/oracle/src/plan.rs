//! What is run after a crash, and what counts as a failure.
//!
//! A plan has two forms: as the caller wrote it, with [`CommandLine`]s, and resolved for one slot, with
//! `ResolvedCommand`s. The zygote receives and runs the second.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use regex::bytes::Regex;
use serde::{Deserialize, Serialize};

use crate::message;
use crate::ready::Ready;
use crate::substitute::has_port;
use crate::verdict::Stage;

/// A program and its arguments. In arguments, `{pool}` stands for the path of the pool, `{dir}` for that of the tree,
/// and `{port}` for a free TCP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program, by path or to be found in `PATH`, then its arguments.
    pub words: Vec<OsString>,
}

impl CommandLine {
    /// A command of these words.
    pub fn new<I>(words: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Self {
            words: words.into_iter().map(Into::into).collect(),
        }
    }

    /// A line for the shell.
    pub fn shell(line: impl Into<OsString>) -> Self {
        Self::new([OsString::from("/bin/sh"), "-c".into(), line.into()])
    }
}

/// A command whose program was found and whose arguments were substituted, except for `{port}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResolvedCommand {
    #[serde(with = "message::path")]
    pub(crate) program: PathBuf,
    pub(crate) words: Vec<OsString>,
}

impl ResolvedCommand {
    pub(crate) fn has_port(&self) -> bool {
        self.words.iter().any(|it| has_port(it))
    }
}

/// What belongs to a recovery command that is a server and runs until it is stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server<C = CommandLine> {
    /// When the client can start.
    pub ready: Ready,
    /// Runs against the server; its outcome is judged.
    pub client: Option<C>,
    /// Stops the server; without one the server gets SIGTERM.
    pub stop: Option<C>,
    /// Whether the exit status of the server itself is judged after it was stopped. If SIGTERM stopped it,
    /// dying of that signal is not a failure.
    pub judge_exit: bool,
}

/// Limits for each process of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Size of the address space.
    pub memory_bytes: Option<u64>,
    /// Length of the longest file that it may write.
    pub file_bytes: Option<u64>,
}

/// Restricts what commands may touch: they write only to their pools, to private directories for temporary files and to
/// what is named here, and reach nothing over the network but each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Files and directories that they may write to, as absolute paths.
    #[serde(with = "message::path::list")]
    pub writable: Vec<PathBuf>,
    /// How much memory they may use together; `None` is half of that of this machine.
    pub memory_bytes: Option<u64>,
}

/// What is run on each crash image, in this order: recovery (and the client, if it is a server), the
/// checker, the dump.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryPlan<C = CommandLine> {
    /// Opens the pool after the crash.
    pub recover: C,
    /// Present if `recover` is a server.
    pub server: Option<Server<C>>,
    /// Runs on the same image after a recovery that succeeded.
    pub checker: Option<C>,
    /// Prints the logical content on its standard output.
    pub dump: Option<C>,
    /// How long each command may take, apart from the time in which it waits for a processor.
    pub timeout: Duration,
    /// A command that has been busy for this time, and for at least a hundred times as long as one that succeeded,
    /// hangs before its timeout passes. `None`: only the timeout counts.
    pub busy_limit: Option<Duration>,
    /// Exit statuses besides 0 that count as success.
    pub ok_exit: Vec<i32>,
    /// A line of output (of any command, except the standard output of the dump) that matches one of these is
    /// a failure.
    #[serde(with = "message::regexes")]
    pub fail_patterns: Vec<Regex>,
    /// Limits of resources.
    pub limits: Limits,
    /// Added to the environment of this process, which recovery inherits.
    pub environment: Vec<(OsString, OsString)>,
    /// Where the commands run; `None` is the working directory of this process.
    #[serde(with = "message::path::option")]
    pub working_directory: Option<PathBuf>,
    /// The file that the commands read as standard input; `None` is `/dev/null`.
    #[serde(with = "message::path::option")]
    pub input: Option<PathBuf>,
    /// The path that `{pool}` stands for; `None` is that of the first pool.
    #[serde(with = "message::path::option")]
    pub pool: Option<PathBuf>,
    /// The path that `{dir}` stands for; `None` is that of the first pool.
    #[serde(with = "message::path::option")]
    pub directory: Option<PathBuf>,
    /// Length of the longest dump; a longer one is an error of the set-up.
    pub max_dump_bytes: u64,
    /// Whether every command that opens pools runs with the runtime, because the runtime gives it persistent
    /// memory that is not a file. [`OracleSettings::runtime`](crate::OracleSettings::runtime) is required then.
    pub preload: bool,
}

/// A plan that a zygote can run.
pub(crate) type ResolvedPlan = RecoveryPlan<ResolvedCommand>;

impl RecoveryPlan {
    /// A plan that runs one command, with a timeout of ten seconds.
    pub fn new(recover: CommandLine) -> Self {
        Self {
            recover,
            server: None,
            checker: None,
            dump: None,
            timeout: Duration::from_secs(10),
            busy_limit: None,
            ok_exit: Vec::new(),
            fail_patterns: Vec::new(),
            limits: Limits::default(),
            environment: Vec::new(),
            working_directory: None,
            input: None,
            pool: None,
            directory: None,
            max_dump_bytes: 16 << 20,
            preload: false,
        }
    }
}

impl<C> RecoveryPlan<C> {
    /// The same plan with other commands.
    pub(crate) fn try_map<D, E>(
        &self,
        mut map: impl FnMut(Stage, &C) -> Result<D, E>,
    ) -> Result<RecoveryPlan<D>, E> {
        let recover = map(Stage::Recovery, &self.recover)?;
        let mut map_any = |stage, command: &Option<C>| match command {
            Some(command) => map(stage, command).map(Some),
            None => Ok(None),
        };
        let server = match &self.server {
            Some(server) => Some(Server {
                ready: server.ready.clone(),
                client: map_any(Stage::Client, &server.client)?,
                stop: map_any(Stage::Stop, &server.stop)?,
                judge_exit: server.judge_exit,
            }),
            None => None,
        };
        Ok(RecoveryPlan {
            recover,
            server,
            checker: map_any(Stage::Checker, &self.checker)?,
            dump: map_any(Stage::Dump, &self.dump)?,
            timeout: self.timeout,
            busy_limit: self.busy_limit,
            ok_exit: self.ok_exit.clone(),
            fail_patterns: self.fail_patterns.clone(),
            limits: self.limits,
            environment: self.environment.clone(),
            working_directory: self.working_directory.clone(),
            input: self.input.clone(),
            pool: self.pool.clone(),
            directory: self.directory.clone(),
            max_dump_bytes: self.max_dump_bytes,
            preload: self.preload,
        })
    }

    /// Whether there is nothing but a recovery that ends by itself.
    pub(crate) fn is_recovery_only(&self) -> bool {
        self.server.is_none() && self.checker.is_none() && self.dump.is_none()
    }
}

impl ResolvedPlan {
    /// Whether a free port must be found for each run.
    pub(crate) fn needs_port(&self) -> bool {
        let of_server = self.server.iter();
        of_server.clone().any(|it| match &it.ready {
            Ready::Port(port) => port.is_none(),
            Ready::Unix(path) => has_port(path.as_os_str()),
            Ready::Output(_) => false,
        }) || self.environment_has_port()
            || of_server
                .flat_map(|it| [it.client.as_ref(), it.stop.as_ref()])
                .chain([self.checker.as_ref(), self.dump.as_ref()])
                .flatten()
                .chain([&self.recover])
                .any(ResolvedCommand::has_port)
    }

    pub(crate) fn environment_has_port(&self) -> bool {
        self.environment.iter().any(|(_, value)| has_port(value))
    }
}

/// A pool and the crash image that takes its place; or a directory and the image of a tree, which is a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMapping {
    /// The absolute path that the pool had in the recorded run.
    #[serde(with = "message::path")]
    pub original: PathBuf,
    /// The absolute path of the crash image.
    #[serde(with = "message::path")]
    pub private: PathBuf,
}

impl PoolMapping {
    /// Whether the image is that of a tree.
    pub(crate) fn is_tree(&self) -> bool {
        self.private.is_dir()
    }

    /// The lengths of the files of the image.
    pub(crate) fn file_lengths(&self) -> Vec<u64> {
        let mut lengths = Vec::new();
        let mut waiting = vec![self.private.clone()];
        while let Some(path) = waiting.pop() {
            match path.symlink_metadata() {
                Ok(it) if it.is_dir() => {
                    for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                        waiting.push(entry.path());
                    }
                }
                Ok(it) => lengths.push(it.len()),
                Err(_) => {}
            }
        }
        lengths
    }
}
