//! `powerfail fuzz afl`: acts as the target of afl-fuzz, and executes the real target for it.
//!
//! To afl-fuzz, this process is a fork server: it sends a greeting, receives an order to run, names the process that
//! runs, and then reports how that process ended. The named process is a stand-in that does nothing: executions are
//! made by the executor, and are not children of this process. afl-fuzz uses the process id for one purpose only: to
//! kill an execution that takes too long. So the death of the stand-in tells us that afl-fuzz has timed out. When the
//! executor times out first, the answer waits until afl-fuzz kills the stand-in, because without the kill afl-fuzz
//! would take the status for a crash.
//!
//! After the greeting, afl-fuzz reads a dictionary, which is learnt from the target ([`dictionary`]).
//!
//! The protocol is that of AFL++ 4.04c. Older and newer versions understand it, too.

mod cleanup;
mod dictionary;
mod host;
mod stand_in;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powerfail_image::{DirectoryContents, ImageError, RunDirectory};
use powerfail_recorder::InputChannel;
use powerfail_recorder::executor::{End, Executor, ExecutorError, ExecutorOptions, Opened};
use thiserror::Error;

use self::cleanup::Cleanup;
use self::host::{AflRequest, Host};
use self::stand_in::StandIn;
use crate::seeds::{program_words, read_image};

/// The end of every map: afl-fuzz refuses a target whose first input covers nothing, such as an empty line that leaves the
/// pool alone.
const EXECUTED: [u8; 1] = [1];
/// The wait status of a process that SIGKILL has ended.
const KILLED: i32 = libc::SIGKILL;

/// What afl-fuzz runs.
#[derive(Clone, Debug)]
pub struct AflOptions {
    /// The command of the target, with `{pool}` and, unless it reads its standard input, `{input}`.
    pub command: Vec<OsString>,
    /// How the target receives its input.
    pub input: InputChannel,
    /// The image that every execution starts from: a pool, or a directory with its files. Without it, the target
    /// creates its pool.
    pub image: Option<PathBuf>,
    /// How long an execution may take.
    pub timeout: Duration,
    /// Identify an operation by its whole call stack.
    pub stacks: bool,
    /// Give the target the same addresses, times, random numbers and ids in each execution.
    pub derandomise: bool,
    /// Feed sockets of the target from the input.
    pub desock: bool,
}

/// Why afl-fuzz cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AflError {
    /// There is no afl-fuzz.
    #[error("afl-fuzz must start this command, as its target; see powerfail fuzz afl --help")]
    NotStartedByAfl,
    /// Shared memory of afl-fuzz cannot be attached.
    #[error("cannot attach the shared memory of afl-fuzz, {variable}={value}")]
    SharedMemory {
        /// The environment variable that names it.
        variable: String,
        /// Its value.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// The operating system refused something.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The image cannot be read.
    #[error("--image: cannot read {}", path.display())]
    Image {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The target ends before it reads its input.
    #[error("the target ends with {0} before it reads its input, so its input does not matter")]
    InputUnread(End),
    /// The coverage map is too long for the protocol.
    #[error("the target has more branches than the protocol of afl-fuzz allows")]
    MapTooLong,
    /// The target cannot be executed.
    #[error(transparent)]
    Execute(#[from] ExecutorError),
    /// There is no directory for the pool.
    #[error(transparent)]
    Directory(#[from] ImageError),
}

impl AflError {
    fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |error| Self::System {
            what,
            source: error.into(),
        }
    }
}

/// Executes what afl-fuzz asks for until it goes away or `is_interrupted`. `prepare` is called when afl-fuzz was
/// found and before threads are started: the environment may not change any more then.
///
/// # Errors
/// See [`AflError`].
pub fn serve_afl(
    options: &AflOptions,
    runtime: &[u8],
    prepare: fn(),
    is_interrupted: fn() -> bool,
) -> Result<(), AflError> {
    let image = match &options.image {
        Some(path) => read(path)?,
        None => DirectoryContents::default(),
    };
    let host = Host::find(is_interrupted)?;
    prepare();
    let mut executor = ExecutorOptions::new(options.command.clone(), options.input);
    executor.timeout = options.timeout;
    executor.stacks = options.stacks;
    executor.derandomise = options.derandomise;
    executor.desock = options.desock;
    let parent = powerfail_image::default_parent();
    let _ = powerfail_image::sweep_leftovers(&parent);
    let directory = RunDirectory::create_in(&parent)?;
    let _cleanup = Cleanup::of_directory(directory.path())?;
    executor.directory = directory.path().join("afl");
    let words = program_words(&options.command);
    serve(host, &executor, runtime, &image, &words)
}

fn read(path: &Path) -> Result<DirectoryContents, AflError> {
    read_image(path).map_err(|source| AflError::Image {
        path: path.to_path_buf(),
        source,
    })
}

fn serve(
    mut host: Host,
    options: &ExecutorOptions,
    runtime: &[u8],
    image: &DirectoryContents,
    words: &[Vec<u8>],
) -> Result<(), AflError> {
    let mut executor = Executor::start(options, runtime)?;
    if let Opened::Ended(outcome) = executor.open(image)? {
        return Err(AflError::InputUnread(outcome.end));
    }
    // The first execution shows how many branches the target has, and so how long the map is.
    executor.run(b"")?;
    let coverage = executor.coverage();
    if host.greet(coverage.pm.len() + coverage.branches.len() + EXECUTED.len())? {
        let words = dictionary::dictionary(&mut executor, words)?;
        host.send_dictionary(&words)?;
    }
    let mut stand_in = StandIn::start()?;
    let mut input = Vec::new();
    while host.next_request(&mut input)? == AflRequest::Run {
        if stand_in.is_killed()? {
            // The kill was meant for the last execution, which had ended already.
            stand_in = StandIn::start()?;
        }
        host.answer(stand_in.id())?;
        let end = executor.run(&input)?.end;
        let coverage = executor.coverage();
        host.cover(&[coverage.pm, coverage.branches, &EXECUTED]);
        let mut status = status(end);
        if end == End::Timeout && !stand_in.wait_until_killed(&host)? {
            // afl-fuzz has gone.
            return Ok(());
        }
        if stand_in.is_killed()? {
            status = KILLED;
            stand_in = StandIn::start()?;
        }
        host.answer(status)?;
        if host.is_interrupted() {
            break;
        }
    }
    Ok(())
}

/// The wait status, as `waitpid` returns it.
const fn status(end: End) -> i32 {
    match end {
        End::Exit(code) => (code & 0xff) << 8,
        End::Signal(signal) => signal & 0x7f,
        End::Timeout => KILLED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_the_kernel() {
        use std::os::unix::process::ExitStatusExt;
        let of = |end| std::process::ExitStatus::from_raw(status(end));
        assert_eq!(of(End::Exit(3)).code(), Some(3));
        assert_eq!(of(End::Signal(libc::SIGSEGV)).signal(), Some(libc::SIGSEGV));
        assert_eq!(of(End::Timeout).signal(), Some(libc::SIGKILL));
    }
}
