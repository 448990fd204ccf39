//! What is to be run after a crash, and what counts as a failure.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use regex::bytes::Regex;

/// A program and its arguments. In arguments, `{pool}` stands for the path of the pool and `{port}` for
/// a free TCP port.
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

/// When a server is ready for its client.
#[derive(Clone, Debug)]
pub enum Ready {
    /// When it accepts connections at this TCP port of the local host; `None` is the port that `{port}`
    /// stands for.
    Port(Option<u16>),
    /// When it accepts connections at this socket of the file system. `{pool}` and `{port}` are replaced.
    Unix(PathBuf),
    /// When it has written a line that matches.
    Output(Regex),
}

impl std::str::FromStr for Ready {
    type Err = String;

    /// Reads `port`, `port:N`, `unix:PATH` or `output:REGEX`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, argument) = match text.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (text, None),
        };
        match (kind, argument) {
            ("port", None) => Ok(Self::Port(None)),
            ("port", Some(port)) => match port.parse() {
                Ok(port) if port > 0 => Ok(Self::Port(Some(port))),
                _ => Err(format!("`{port}` is not a port; ports are 1 to 65535")),
            },
            ("unix", Some(path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            ("output", Some(pattern)) => match Regex::new(pattern) {
                Ok(pattern) => Ok(Self::Output(pattern)),
                Err(error) => Err(format!("`{pattern}` is not a regular expression: {error}")),
            },
            _ => Err(format!(
                "`{text}` is no readiness check; write port, port:N, unix:PATH or output:REGEX"
            )),
        }
    }
}

impl std::fmt::Display for Ready {
    /// Writes the form that `from_str` reads.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Port(None) => write!(to, "port"),
            Self::Port(Some(port)) => write!(to, "port:{port}"),
            Self::Unix(path) => write!(to, "unix:{}", path.display()),
            Self::Output(pattern) => write!(to, "output:{pattern}"),
        }
    }
}

/// For a recovery command that stays: a server.
#[derive(Clone, Debug)]
pub struct Server {
    /// How one knows that it is ready.
    pub ready: Ready,
    /// Runs against it and is judged.
    pub client: Option<CommandLine>,
    /// Stops it; without one it gets SIGTERM.
    pub stop: Option<CommandLine>,
    /// Whether the server's own exit status is judged after it was stopped. Being ended by the SIGTERM
    /// that it was sent is no failure.
    pub judge_exit: bool,
}

/// Limits for each process of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Address space.
    pub memory_bytes: Option<u64>,
    /// The longest file it may write.
    pub file_bytes: Option<u64>,
}

/// What is run on each crash image, in this order: recovery (and the client, if it is a server), the
/// checker, the dump.
#[derive(Clone, Debug)]
pub struct RecoveryPlan {
    /// Opens the pool after the crash.
    pub recover: CommandLine,
    /// If `recover` is a server that stays.
    pub server: Option<Server>,
    /// Runs after a recovery that succeeded, on the same image.
    pub checker: Option<CommandLine>,
    /// Prints the logical content on its standard output.
    pub dump: Option<CommandLine>,
    /// How long each command may take.
    pub timeout: Duration,
    /// Exit statuses that are a success besides 0.
    pub ok_exit: Vec<i32>,
    /// A line of output (of any command but the dump's standard output) that matches one of these is a
    /// failure.
    pub fail_patterns: Vec<Regex>,
    /// Limits of resources.
    pub limits: Limits,
    /// Added to the environment of this process, which recovery inherits.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; `None` is where this process runs.
    pub working_directory: Option<PathBuf>,
    /// What it reads from its standard input; `None` is nothing.
    pub input: Option<PathBuf>,
    /// The path that `{pool}` stands for; `None` is that of the first pool.
    pub pool: Option<PathBuf>,
    /// The longest dump; a longer one is an error of the set-up.
    pub max_dump_bytes: u64,
    /// Whether all commands that see pools have the runtime in them, because it gives them persistent memory
    /// that is no file of theirs: [`Settings::runtime`](crate::Settings::runtime) must be there then.
    pub preload: bool,
}

impl RecoveryPlan {
    /// A plan that runs one command and gives it ten seconds.
    pub fn new(recover: CommandLine) -> Self {
        Self {
            recover,
            server: None,
            checker: None,
            dump: None,
            timeout: Duration::from_secs(10),
            ok_exit: Vec::new(),
            fail_patterns: Vec::new(),
            limits: Limits::default(),
            environment: Vec::new(),
            working_directory: None,
            input: None,
            pool: None,
            max_dump_bytes: 16 << 20,
            preload: false,
        }
    }
}

/// A pool and the crash image that takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMapping {
    /// Where the workload had its pool: an absolute path.
    pub original: PathBuf,
    /// The crash image: an absolute path.
    pub private: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::Ready;

    #[test]
    fn readiness_checks_are_read() {
        assert!(matches!("port".parse(), Ok(Ready::Port(None))));
        assert!(matches!("port:7000".parse(), Ok(Ready::Port(Some(7000)))));
        assert!(matches!("unix:/a:b".parse(), Ok(Ready::Unix(path)) if path.as_os_str() == "/a:b"));
        assert!(
            matches!("output:ready: .*".parse(), Ok(Ready::Output(it)) if it.as_str() == "ready: .*")
        );
        for wrong in [
            "", "port:0", "port:x", "unix:", "unix", "output", "output:(", "file:/x",
        ] {
            assert!(wrong.parse::<Ready>().is_err(), "{wrong}");
        }
    }
}
