//! The commands of a plan, one after another, and what becomes of them.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use regex::bytes::Regex;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::message::{End, Prepared, PreparedReady, PreparedServer, RunReply, Setup};
use crate::plan::Limits;
use crate::substitute::{has_port, with_port};
use crate::verdict::Stage;
use crate::zygote::capture::Patterns;
use crate::zygote::session::{Ended, Running, Session, Supervision};
use crate::zygote::spawn::{self, CStrings, ChildStack, Start};
use crate::zygote::{stack, system};

/// How often one looks whether a server is ready: often at first, as most are.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(20);
/// The status with which a shell says that SIGTERM ended a command.
const SHELL_TERMINATED: i32 = 128 + libc::SIGTERM;

/// A command, as the kernel takes it.
#[derive(Debug)]
struct Command {
    prepared: Prepared,
    program: CString,
    words: CStrings,
    has_port: bool,
}

/// All commands of a plan.
#[derive(Debug)]
pub(crate) struct Stages<'a> {
    supervision: Supervision<'a>,
    kit: Kit,
    recover: Command,
    server: Option<ServerCommands>,
    checker: Option<Command>,
    dump: Option<Command>,
    ok_exit: Vec<i32>,
    needs_port: bool,
}

#[derive(Debug)]
struct ServerCommands {
    ready: PreparedReady,
    client: Option<Command>,
    stop: Option<Command>,
    judge_exit: bool,
}

/// What every start needs.
#[derive(Debug)]
struct Kit {
    variables: Vec<OsString>,
    environment: CStrings,
    environment_has_port: bool,
    input_path: PathBuf,
    limits: Limits,
    timeout: Duration,
    patterns: Rc<Patterns>,
    quiet: Rc<Patterns>,
    stack: ChildStack,
    port: u16,
    dies_with_parent: bool,
}

/// Why a run has no verdict, or has one early.
enum Stopped {
    Reply(RunReply),
    Trouble(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Trouble(error)
    }
}

impl Command {
    fn new(prepared: &Prepared) -> io::Result<Self> {
        Ok(Self {
            program: CString::new(prepared.program.as_os_str().as_bytes())?,
            words: c_strings(&prepared.words)?,
            has_port: prepared.words.iter().any(|it| has_port(it)),
            prepared: prepared.clone(),
        })
    }
}

fn c_strings(words: &[OsString]) -> io::Result<CStrings> {
    let strings: Result<_, _> = words
        .iter()
        .map(|it| CString::new(it.clone().into_vec()))
        .collect();
    Ok(CStrings::new(strings?))
}

fn regex(pattern: &str) -> io::Result<Regex> {
    Regex::new(pattern).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

impl<'a> Stages<'a> {
    pub(crate) fn new(
        setup: &Setup,
        socket: &'a UnixStream,
        owns_namespace: bool,
    ) -> io::Result<Self> {
        let command = |it: &Option<Prepared>| it.as_ref().map(Command::new).transpose();
        let server = match &setup.server {
            Some(PreparedServer {
                ready,
                client,
                stop,
                judge_exit,
            }) => Some(ServerCommands {
                ready: ready.clone(),
                client: command(client)?,
                stop: command(stop)?,
                judge_exit: *judge_exit,
            }),
            None => None,
        };
        let ready = match server.as_ref().map(|it| &it.ready) {
            Some(PreparedReady::Output(pattern)) => Some(regex(pattern)?),
            _ => None,
        };
        let fail: io::Result<Vec<Regex>> = setup.fail_patterns.iter().map(|it| regex(it)).collect();
        let fail = fail?;
        File::open(&setup.input)?;
        let environment_has_port = setup.environment.iter().any(|it| has_port(it));
        let commands = [
            Some(&setup.recover),
            setup.checker.as_ref(),
            setup.dump.as_ref(),
        ];
        let of_server = setup.server.iter();
        let needs_port = environment_has_port
            || of_server.clone().any(|it| match &it.ready {
                PreparedReady::Port(port) => port.is_none(),
                PreparedReady::Unix(path) => has_port(path),
                PreparedReady::Output(_) => false,
            })
            || of_server
                .flat_map(|it| [it.client.as_ref(), it.stop.as_ref()])
                .chain(commands)
                .flatten()
                .any(|it| it.words.iter().any(|word| has_port(word)));
        Ok(Self {
            supervision: Supervision::new(socket, owns_namespace, setup.max_dump_bytes)?,
            kit: Kit {
                environment: c_strings(&setup.environment)?,
                environment_has_port,
                variables: setup.environment.clone(),
                input_path: setup.input.clone(),
                limits: setup.limits,
                timeout: Duration::from_millis(setup.timeout_ms),
                quiet: Rc::new(Patterns {
                    fail: fail.clone(),
                    ready: None,
                }),
                patterns: Rc::new(Patterns { fail, ready }),
                stack: ChildStack::new(),
                port: 0,
                dies_with_parent: !owns_namespace,
            },
            recover: Command::new(&setup.recover)?,
            server,
            checker: command(&setup.checker)?,
            dump: command(&setup.dump)?,
            ok_exit: setup.ok_exit.clone(),
            needs_port,
        })
    }

    /// Runs everything, up to the first failure.
    pub(crate) fn run(&mut self, traced: bool) -> RunReply {
        match self.run_all(traced) {
            Ok(reply) | Err(Stopped::Reply(reply)) => reply,
            Err(Stopped::Trouble(error)) => RunReply::Broken {
                reason: error.to_string(),
            },
        }
    }

    fn run_all(&mut self, traced: bool) -> Result<RunReply, Stopped> {
        if self.needs_port {
            self.kit.port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
                .local_addr()?
                .port();
        }
        let session = Session::new(&mut self.supervision, traced);
        let mut run = Run {
            session,
            kit: &mut self.kit,
            ok_exit: &self.ok_exit,
        };
        let result = run.stages(
            &self.recover,
            self.server.as_ref(),
            self.checker.as_ref(),
            self.dump.as_ref(),
        );
        // Whatever happened, nothing is left behind.
        run.session.end_all()?;
        result
    }
}

/// One run.
struct Run<'r, 's, 'a> {
    session: Session<'s, 'a>,
    kit: &'r mut Kit,
    ok_exit: &'r [i32],
}

impl Run<'_, '_, '_> {
    fn stages(
        &mut self,
        recover: &Command,
        server: Option<&ServerCommands>,
        checker: Option<&Command>,
        dump: Option<&Command>,
    ) -> Result<RunReply, Stopped> {
        match server {
            Some(server) => self.serve(recover, server)?,
            None => {
                self.judged(Stage::Recovery, recover)?;
            }
        }
        if let Some(checker) = checker {
            self.judged(Stage::Checker, checker)?;
        }
        let mut content = None;
        if let Some(dump) = dump {
            let place = self.judged(Stage::Dump, dump)?;
            content = Some(std::mem::take(
                &mut self.session.running[place].content_bytes,
            ));
        }
        Ok(RunReply::Success { dump: content })
    }

    /// Runs a command to its end, and whatever it left behind, and judges it.
    fn judged(&mut self, stage: Stage, command: &Command) -> Result<usize, Stopped> {
        let place = self.start(stage, command)?;
        self.wait_for(place, place)?;
        self.session.end_all()?;
        if self.session.too_long(place) {
            return Err(Stopped::Reply(RunReply::DumpTooLong));
        }
        self.judge(place, false)?;
        Ok(place)
    }

    /// A server, its client, and its end.
    fn serve(&mut self, recover: &Command, commands: &ServerCommands) -> Result<(), Stopped> {
        let server = self.start(Stage::Recovery, recover)?;
        self.wait_until_ready(server, &commands.ready)?;
        if let Some(client) = &commands.client {
            let client = self.start(Stage::Client, client)?;
            self.wait_for(client, server)?;
            system::kill(-self.session.running[client].pid, libc::SIGKILL);
            if self.end_of(client).is_some() {
                // If the server died, that is the cause.
                self.session.pump(Instant::now())?;
                if self.session.running[server].ended.is_some() {
                    self.session.end_all()?;
                    self.judge(server, false)?;
                }
            }
            self.judge(client, false)?;
        }
        let signalled = commands.stop.is_none();
        match &commands.stop {
            Some(stop) => {
                let stop = self.start(Stage::Stop, stop)?;
                self.wait_for(stop, server)?;
                self.judge(stop, false)?;
            }
            None => system::kill(self.session.running[server].pid, libc::SIGTERM),
        }
        if !self.wait(server)? {
            return Err(self.hang(server, server, "it did not stop when it was told to"));
        }
        self.session.end_all()?;
        if commands.judge_exit {
            self.judge(server, signalled)?;
        } else if let Some(end @ End::Matched(_)) = self.end_of(server) {
            return Err(self.failure(server, end, ""));
        }
        Ok(())
    }

    fn wait_until_ready(&mut self, server: usize, ready: &PreparedReady) -> Result<(), Stopped> {
        let deadline = Instant::now() + self.kit.timeout;
        let mut look = FIRST_LOOK;
        loop {
            let is_ready = match ready {
                PreparedReady::Output(_) => self.session.running[server].capture.ready,
                PreparedReady::Port(port) => {
                    let port = port.unwrap_or(self.kit.port);
                    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                    TcpStream::connect_timeout(&address, LAST_LOOK).is_ok()
                }
                PreparedReady::Unix(path) => {
                    UnixStream::connect(with_port(path, self.kit.port)).is_ok()
                }
            };
            if is_ready {
                return Ok(());
            }
            if let Some(ended) = self.session.running[server].ended {
                self.session.end_all()?;
                let end = match ended {
                    Ended::Exited(status) => End::Exited(status),
                    Ended::Signaled(signal) => End::Signaled(signal),
                };
                return Err(self.failure(server, end, "it ended before it was ready"));
            }
            if Instant::now() >= deadline {
                return Err(self.hang(server, server, "it was not ready in time"));
            }
            let next = match ready {
                PreparedReady::Output(_) => deadline,
                _ => deadline.min(Instant::now() + look),
            };
            self.session.pump(next)?;
            look = LAST_LOOK.min(look * 2);
        }
    }

    /// Waits for a command; a hang is blamed on `culprit`, whose stack is taken.
    fn wait_for(&mut self, place: usize, culprit: usize) -> Result<(), Stopped> {
        if self.wait(place)? {
            return Ok(());
        }
        Err(self.hang(place, culprit, ""))
    }

    /// Whether it ended in time.
    fn wait(&mut self, place: usize) -> io::Result<bool> {
        let deadline = Instant::now() + self.kit.timeout;
        while self.session.running[place].ended.is_none() && !self.session.too_long(place) {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            self.session.pump(deadline)?;
        }
        Ok(true)
    }

    fn start(&mut self, stage: Stage, command: &Command) -> Result<usize, Stopped> {
        let (output, their_output) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        rustix::io::ioctl_fionbio(&output, true).map_err(io::Error::from)?;
        let mut content = None;
        let mut their_content = None;
        if stage == Stage::Dump {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
            rustix::io::ioctl_fionbio(&ours, true).map_err(io::Error::from)?;
            content = Some(ours);
            their_content = Some(theirs);
        }
        let kit = &mut *self.kit;
        let port = kit.port;
        let with_ports = |words: &[OsString]| -> io::Result<CStrings> {
            c_strings(
                &words
                    .iter()
                    .map(|it| with_port(it, port))
                    .collect::<Vec<_>>(),
            )
        };
        let own_words = command
            .has_port
            .then(|| with_ports(&command.prepared.words))
            .transpose()?;
        let own_environment = kit
            .environment_has_port
            .then(|| with_ports(&kit.variables))
            .transpose()?;
        // Opened anew each time: the position in a file is shared by all who inherit it.
        let input = File::open(&kit.input_path)?;
        let start = Start {
            program: &command.program,
            words: own_words.as_ref().unwrap_or(&command.words),
            environment: own_environment.as_ref().unwrap_or(&kit.environment),
            input: input.as_raw_fd(),
            output: their_content.as_ref().unwrap_or(&their_output).as_raw_fd(),
            errors: their_output.as_raw_fd(),
            limits: kit.limits,
            traced: self.session.tracer.is_some(),
            dies_with_parent: kit.dies_with_parent,
        };
        let pid = spawn::start(&start, &mut kit.stack).map_err(|error| {
            Stopped::Reply(RunReply::CannotStart {
                stage,
                program: command.prepared.program.clone(),
                errno: error.raw_os_error().unwrap_or(0),
            })
        })?;
        let patterns = match stage {
            Stage::Recovery => &kit.patterns,
            _ => &kit.quiet,
        };
        let running = Running::new(stage, pid, output, content, Rc::clone(patterns));
        Ok(self.session.add(running))
    }

    /// How a command that ended failed, if it did.
    fn end_of(&self, place: usize) -> Option<End> {
        let running = &self.session.running[place];
        match running.ended? {
            Ended::Signaled(signal) => return Some(End::Signaled(signal)),
            Ended::Exited(0) => {}
            Ended::Exited(status) if self.ok_exit.contains(&status) => {}
            Ended::Exited(status) => return Some(End::Exited(status)),
        }
        let pattern = &self.kit.patterns.fail[running.capture.failed?];
        Some(End::Matched(pattern.as_str().into()))
    }

    /// Fails if the command did. `terminated`: it was sent SIGTERM, and may end of it.
    fn judge(&self, place: usize, terminated: bool) -> Result<(), Stopped> {
        match self.end_of(place) {
            None => Ok(()),
            Some(End::Signaled(libc::SIGTERM) | End::Exited(SHELL_TERMINATED)) if terminated => {
                Ok(())
            }
            Some(end) => Err(self.failure(place, end, "")),
        }
    }

    fn hang(&mut self, place: usize, culprit: usize, note: &str) -> Stopped {
        let backtrace = match self.session.tracer {
            Some(_) => None,
            None => stack::of_hang(self.session.running[culprit].pid),
        };
        if let Err(error) = self.session.end_all() {
            return Stopped::Trouble(error);
        }
        let mut failure = self.failure(place, End::TimedOut, note);
        if let Stopped::Reply(RunReply::Failure { backtrace: it, .. }) = &mut failure {
            *it = backtrace;
        }
        failure
    }

    fn failure(&self, place: usize, end: End, note: &str) -> Stopped {
        let running = &self.session.running[place];
        let mut output = running.capture.text();
        if !note.is_empty() {
            if !output.is_empty() && !output.ends_with('\n') {
                output.push('\n');
            }
            output.push_str("[powerfail: ");
            output.push_str(note);
            output.push_str("]\n");
        }
        Stopped::Reply(RunReply::Failure {
            stage: running.stage,
            end,
            output,
            backtrace: self
                .session
                .tracer
                .as_ref()
                .and_then(|it| it.crash(running.pid)),
        })
    }
}
