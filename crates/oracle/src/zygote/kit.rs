//! The commands of a plan as the kernel takes them, and what every start needs.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::message::Prepared;
use crate::plan::Limits;
use crate::substitute::{has_port, with_port};
use crate::verdict::Stage;
use crate::zygote::capture::{Capture, Patterns};
use crate::zygote::conversation::Conversation;
use crate::zygote::runtime::Runtime;
use crate::zygote::session::Running;
use crate::zygote::spawn::{self, CStrings, ChildStack, Start};

/// A command.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) prepared: Prepared,
    program: CString,
    words: CStrings,
    pub(crate) has_port: bool,
}

impl Command {
    pub(crate) fn new(prepared: &Prepared) -> io::Result<Self> {
        Ok(Self {
            program: CString::new(prepared.program.as_os_str().as_bytes())?,
            words: c_strings(&prepared.words)?,
            has_port: prepared.words.iter().any(|it| has_port(it)),
            prepared: prepared.clone(),
        })
    }
}

/// What every start needs.
#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) variables: Vec<OsString>,
    pub(crate) environment: CStrings,
    pub(crate) environment_has_port: bool,
    pub(crate) input_path: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) timeout: Duration,
    pub(crate) patterns: Rc<Patterns>,
    pub(crate) quiet: Rc<Patterns>,
    pub(crate) stack: ChildStack,
    pub(crate) port: u16,
    pub(crate) dies_with_parent: bool,
    /// Nothing if there is none.
    pub(crate) runtime: Option<Runtime>,
    /// The environment with the runtime in it.
    pub(crate) runtime_environment: Option<CStrings>,
    /// The same for commands that are not explored, if they have the runtime in them, too.
    pub(crate) preload_environment: Option<CStrings>,
}

pub(crate) fn c_strings(words: &[OsString]) -> io::Result<CStrings> {
    let strings: Result<_, _> = words
        .iter()
        .map(|it| CString::new(it.clone().into_vec()))
        .collect();
    Ok(CStrings::new(strings?))
}

impl Kit {
    /// Starts a command, with the runtime in it if that is asked for and there is one. The inner error
    /// is that of executing it.
    pub(crate) fn start(
        &mut self,
        stage: Stage,
        command: &Command,
        traced: bool,
        with_runtime: bool,
    ) -> io::Result<io::Result<Running>> {
        let (output, their_output) = pipe()?;
        let (content, their_content) = match stage {
            Stage::Dump => {
                let (ours, theirs) = pipe()?;
                (Some(Rc::new(ours)), Some(theirs))
            }
            _ => (None, None),
        };
        let port = self.port;
        let with_ports = |words: &[OsString]| -> io::Result<CStrings> {
            let words: Vec<_> = words.iter().map(|it| with_port(it, port)).collect();
            c_strings(&words)
        };
        let own_words = command
            .has_port
            .then(|| with_ports(&command.prepared.words))
            .transpose()?;
        let runtime = self.runtime.as_ref().filter(|_| with_runtime);
        // Clients and those who stop a server have no business with pools.
        let preloaded = self
            .runtime
            .as_ref()
            .zip(self.preload_environment.as_ref())
            .filter(|_| runtime.is_none() && !matches!(stage, Stage::Client | Stage::Stop));
        let (variables, environment) = match (runtime, &self.runtime_environment, preloaded) {
            (Some(runtime), Some(environment), _) => (runtime.variables(), environment),
            (_, _, Some((runtime, environment))) => (runtime.plain_variables(), environment),
            _ => (&self.variables[..], &self.environment),
        };
        let own_environment = self
            .environment_has_port
            .then(|| with_ports(variables))
            .transpose()?;
        let (conversation, inherited) = match runtime {
            Some(runtime) => {
                runtime.file.forget_root()?;
                let (ours, theirs) = Conversation::new()?;
                let numbers = runtime.inherited(theirs.as_raw_fd(), their_output.as_raw_fd());
                (Some(Rc::new(ours)), Some((numbers, theirs)))
            }
            None => (None, None),
        };
        let library = preloaded.map(|(runtime, _)| runtime.plain_inherited());
        // Opened anew each time: the position in a file is shared by all who inherit it.
        let input = File::open(&self.input_path)?;
        let start = Start {
            program: &command.program,
            words: own_words.as_ref().unwrap_or(&command.words),
            environment: own_environment.as_ref().unwrap_or(environment),
            input: input.as_raw_fd(),
            output: their_content.as_ref().unwrap_or(&their_output).as_raw_fd(),
            errors: their_output.as_raw_fd(),
            limits: if runtime.is_some() || preloaded.is_some() {
                Runtime::limits(self.limits)
            } else {
                self.limits
            },
            traced,
            dies_with_parent: self.dies_with_parent,
            inherited: match (&inherited, &library) {
                (Some((numbers, _)), _) => numbers,
                (None, Some(library)) => std::slice::from_ref(library),
                (None, None) => &[],
            },
            libraries_low: runtime.is_some(),
        };
        let pid = match spawn::start(&start, &mut self.stack) {
            Ok(pid) => pid,
            Err(error) => return Ok(Err(error)),
        };
        let patterns = match stage {
            Stage::Recovery => &self.patterns,
            _ => &self.quiet,
        };
        let capture = Capture::new(Rc::clone(patterns));
        let mut running = Running::new(stage, pid, Rc::new(output), content, capture);
        running.conversation = conversation;
        Ok(Ok(running))
    }
}

/// Our end, which never blocks, and theirs.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}
