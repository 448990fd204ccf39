//! Starts the commands of a plan, with pipes for their output and, where needed, with the runtime.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;

use regex::bytes::Regex;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::plan::{ResolvedCommand, ResolvedPlan};
use crate::ready::Ready;
use crate::substitute::with_port;
use crate::verdict::Stage;
use crate::zygote::capture::{Capture, Patterns};
use crate::zygote::file_access::FileAccess;
use crate::zygote::processes::StartedCommand;
use crate::zygote::runtime::Runtime;
use crate::zygote::runtime_socket::RuntimeSocket;
use crate::zygote::signal_filter::SignalFilter;
use crate::zygote::spawn::{self, CStrings, ChildStack, Start};

/// What observes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandObserver {
    /// Nothing.
    None,
    /// The zygote, with ptrace.
    Tracer,
    /// The runtime, in explore mode.
    Runtime,
}

/// Starts the commands of a plan.
#[derive(Debug)]
pub(crate) struct Launcher {
    plan: Rc<ResolvedPlan>,
    /// The environment of a command without the runtime: `NAME=value`.
    variables: Vec<OsString>,
    /// What the output of recovery is compared with.
    recovery_patterns: Rc<Patterns>,
    /// What the output of other commands is compared with.
    other_patterns: Rc<Patterns>,
    stack: ChildStack,
    dies_with_parent: bool,
    filter: SignalFilter,
    /// What `{port}` stands for in this run.
    pub(crate) port: u16,
    /// Whether standard error of a command that is executed has a pipe of its own.
    pub(crate) separates_errors: bool,
    pub(crate) runtime: Option<Runtime>,
    /// What commands may touch, if that is restricted.
    pub(crate) access: Option<FileAccess>,
}

impl Launcher {
    pub(crate) fn new(
        plan: Rc<ResolvedPlan>,
        owns_namespace: bool,
        supervisors: &[i32],
        runtime: Option<Runtime>,
        access: Option<FileAccess>,
    ) -> Self {
        let ready = match plan.server.as_ref().map(|it| &it.ready) {
            Some(Ready::Output(pattern)) => Some(pattern.clone()),
            _ => None,
        };
        let fail = &plan.fail_patterns;
        Self {
            variables: variables(&plan.environment),
            recovery_patterns: Rc::new(Patterns {
                fail: fail.clone(),
                ready,
                suspect: suspect_pattern(),
            }),
            other_patterns: Rc::new(Patterns {
                fail: fail.clone(),
                ready: None,
                suspect: suspect_pattern(),
            }),
            stack: ChildStack::new(),
            dies_with_parent: !owns_namespace,
            filter: SignalFilter::new(supervisors),
            port: 0,
            separates_errors: false,
            runtime,
            access,
            plan,
        }
    }

    /// The file that commands read as standard input.
    pub(crate) fn input(plan: &ResolvedPlan) -> &Path {
        plan.input.as_deref().unwrap_or(Path::new("/dev/null"))
    }

    /// Starts a command. The inner error is that of executing it.
    pub(crate) fn start(
        &mut self,
        stage: Stage,
        command: &ResolvedCommand,
        observer: CommandObserver,
    ) -> io::Result<io::Result<StartedCommand>> {
        let (output, their_output) = pipe()?;
        let (content, their_content) = match stage {
            Stage::Dump => {
                let (ours, theirs) = pipe()?;
                (Some(Rc::new(ours)), Some(theirs))
            }
            _ => (None, None),
        };
        let separate = self.separates_errors && observer != CommandObserver::Runtime;
        let (errors, their_errors) = match (separate, stage) {
            // The output of a dump is its errors.
            (false, _) | (_, Stage::Dump) => (None, None),
            (true, _) => {
                let (ours, theirs) = pipe()?;
                (Some(ours), Some(theirs))
            }
        };
        let exploring = self.runtime.as_ref();
        let exploring = exploring.filter(|_| observer == CommandObserver::Runtime);
        // Clients and stop commands do not open pools.
        let opens_pools = !matches!(stage, Stage::Client | Stage::Stop);
        let preloaded = self.runtime.as_ref();
        let preloaded =
            preloaded.filter(|_| exploring.is_none() && self.plan.preload && opens_pools);
        let variables = match (exploring, preloaded) {
            (Some(runtime), _) => runtime.variables(),
            (None, Some(runtime)) => runtime.preload_variables(),
            (None, None) => &self.variables,
        };
        let (socket, inherited) = match exploring {
            Some(runtime) => {
                runtime.file.forget_root()?;
                let (ours, theirs) = RuntimeSocket::pair()?;
                let numbers = runtime.inherited(theirs.as_raw_fd(), their_output.as_raw_fd());
                (Some(Rc::new(ours)), Some((numbers, theirs)))
            }
            None => (None, None),
        };
        let library = preloaded.map(Runtime::preload_inherited);
        // Opened for each command: processes that inherit a descriptor share its position.
        let input = File::open(Self::input(&self.plan))?;
        let start = Start {
            program: &CString::new(command.program.as_os_str().as_bytes())?,
            words: &self.c_strings(&command.words)?,
            environment: &self.c_strings(variables)?,
            input: input.as_raw_fd(),
            output: their_content.as_ref().unwrap_or(&their_output).as_raw_fd(),
            errors: their_errors.as_ref().unwrap_or(&their_output).as_raw_fd(),
            limits: if exploring.is_some() || preloaded.is_some() {
                Runtime::limits(self.plan.limits)
            } else {
                self.plan.limits
            },
            traced: observer == CommandObserver::Tracer,
            dies_with_parent: self.dies_with_parent,
            inherited: match (&inherited, &library) {
                (Some((numbers, _)), _) => numbers,
                (None, Some(library)) => std::slice::from_ref(library),
                (None, None) => &[],
            },
            libraries_low: exploring.is_some(),
            filter: &self.filter,
        };
        let pid = match spawn::start(&start, &mut self.stack) {
            Ok(pid) => pid,
            Err(error) => return Ok(Err(error)),
        };
        let patterns = match stage {
            Stage::Recovery => &self.recovery_patterns,
            _ => &self.other_patterns,
        };
        let capture = Capture::new(Rc::clone(patterns));
        let mut started = StartedCommand::new(stage, pid, Rc::new(output), content, capture);
        started.socket = socket;
        started.errors = errors;
        Ok(Ok(started))
    }

    /// Strings as the kernel takes them, with `{port}` replaced.
    fn c_strings(&self, words: &[OsString]) -> io::Result<CStrings> {
        let strings: Result<_, _> = words
            .iter()
            .map(|it| CString::new(with_port(it, self.port).into_vec()))
            .collect();
        Ok(CStrings::new(strings?))
    }
}

/// Lines of programs that find something wrong, and may end with success all the same.
fn suspect_pattern() -> Option<Regex> {
    let words = "assert|abort|corrupt|crash|panic|AddressSanitizer|segmentation fault|inconsistent";
    Regex::new(&format!(r"(?i)\b({words})")).ok()
}

/// The variables of an environment as `NAME=value`.
pub(crate) fn variables(environment: &[(OsString, OsString)]) -> Vec<OsString> {
    let join = |(name, value): &(OsString, OsString)| {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        variable
    };
    environment.iter().map(join).collect()
}

/// Our end, which never blocks, and the command's.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}
