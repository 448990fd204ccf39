//! The commands of a plan, and what is done with them.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use regex::bytes::Regex;

use crate::message::{
    ExecutionReply, ExploreReply, ModulesReply, Prepared, PreparedReady, PreparedServer, Ran,
    Refusal, RunReply, Setup,
};
use crate::substitute::has_port;
use crate::zygote::capture::Patterns;
use crate::zygote::kit::{Command, Kit, c_strings};
use crate::zygote::run::{Mode, Run, Stopped};
use crate::zygote::runtime::Runtime;
use crate::zygote::session::{Session, Supervision};
use crate::zygote::snapshots::Snapshots;
use crate::zygote::spawn::ChildStack;
use crate::zygote::tree::Exploration;

/// All commands of a plan.
#[derive(Debug)]
pub(crate) struct Stages<'a> {
    supervision: Supervision<'a>,
    kit: Kit,
    snapshots: Snapshots,
    recover: Command,
    server: Option<ServerCommands>,
    checker: Option<Command>,
    dump: Option<Command>,
    ok_exit: Vec<i32>,
    needs_port: bool,
}

/// What belongs to a server.
#[derive(Debug)]
pub(crate) struct ServerCommands {
    pub(crate) ready: PreparedReady,
    pub(crate) client: Option<Command>,
    pub(crate) stop: Option<Command>,
    pub(crate) judge_exit: bool,
}

fn regex(pattern: &str) -> io::Result<Regex> {
    Regex::new(pattern).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

impl<'a> Stages<'a> {
    pub(crate) fn new(
        setup: &Setup,
        socket: &'a UnixStream,
        owns_namespace: bool,
        runtime: Option<Runtime>,
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
                runtime_environment: runtime.as_ref().map(Runtime::environment).transpose()?,
                preload_environment: runtime
                    .as_ref()
                    .filter(|_| setup.preload)
                    .map(|runtime| c_strings(runtime.plain_variables()))
                    .transpose()?,
                runtime,
            },
            snapshots: Snapshots::default(),
            recover: Command::new(&setup.recover)?,
            server,
            checker: command(&setup.checker)?,
            dump: command(&setup.dump)?,
            ok_exit: setup.ok_exit.clone(),
            needs_port,
        })
    }

    /// Runs everything, up to the first failure.
    pub(crate) fn run(&mut self, traced: bool, snapshot: bool, texts: bool) -> Ran {
        let mode = if snapshot && self.server.is_none() && self.kit.runtime.is_some() {
            Mode::Snapshot
        } else {
            Mode::Plain
        };
        let mut ran = Ran {
            reply: RunReply::DumpTooLong,
            texts: Vec::new(),
            by_snapshot: false,
            note: None,
        };
        let result = self.just_run(traced, mode, texts, &mut ran);
        ran.reply = reply_of(result);
        ran.note = match (snapshot, &self.server) {
            (true, Some(_)) => Some("a server is started for each image".into()),
            (true, None) => self.snapshots.note(),
            (false, _) => None,
        };
        ran
    }

    fn just_run(
        &mut self,
        traced: bool,
        mode: Mode,
        texts: bool,
        ran: &mut Ran,
    ) -> Result<RunReply, Stopped> {
        if let (Mode::Snapshot, Some(runtime)) = (mode, &self.kit.runtime) {
            runtime.file.just_run()?;
        }
        self.in_a_run(traced, mode, |run, commands| {
            let result = commands.run(run);
            // Whatever happened, nothing is left behind.
            run.session.end_all()?;
            ran.by_snapshot = run.by_snapshot;
            if texts {
                let running = run.session.running.iter();
                ran.texts = running.map(|it| it.capture.text()).collect();
            }
            result
        })
    }

    /// Explores what the shared file describes. Executions are told as they end.
    pub(crate) fn explore(
        &mut self,
        request: Exploration,
        tell: &mut dyn FnMut(ExecutionReply) -> io::Result<()>,
    ) -> ExploreReply {
        let only_recovery = self.server.is_none() && self.checker.is_none() && self.dump.is_none();
        if self.kit.runtime.is_none() {
            return ExploreReply::Refused(Refusal::not_explorable("there is no runtime"));
        }
        let result = self.in_a_run(false, Mode::Lazy, |run, commands| {
            let mut explored = Ok(false);
            if request.private && only_recovery {
                explored = run.explore_tree(commands.recover, request, tell);
            } else {
                let result = commands.run(run);
                run.session.end_all()?;
                let reply = match result {
                    Ok(reply) | Err(Stopped::Reply(reply)) => reply,
                    Err(stopped) => return Err(stopped),
                };
                if !is_verdict(&reply) {
                    return Err(Stopped::Reply(reply));
                }
                let execution = run.execution(reply, request)?;
                tell(execution)?;
            }
            run.session.end_all()?;
            let stopped = std::mem::replace(&mut explored, Ok(false))?;
            // A program that is started without the runtime uses the pool unseen.
            let is_seen = match &run.kit.runtime {
                Some(runtime) => runtime.file.has_begun()?,
                None => false,
            };
            if !is_seen {
                let reason = "recovery did not open the pool, or opened it in a process that is not \
                              explored";
                return Err(Stopped::Refused(Refusal::not_explorable(reason)));
            }
            Ok((stopped, std::mem::take(&mut run.warnings)))
        });
        match result {
            Ok((stopped, warnings)) => ExploreReply::Done { stopped, warnings },
            Err(Stopped::Refused(refusal)) => ExploreReply::Refused(refusal),
            Err(Stopped::Reply(reply)) => ExploreReply::Trouble(reply),
            Err(Stopped::Trouble(error)) => ExploreReply::Trouble(RunReply::Broken {
                reason: error.to_string(),
            }),
        }
    }

    /// Where files lay in the processes of each command.
    pub(crate) fn modules(&self) -> ModulesReply {
        ModulesReply(self.snapshots.modules())
    }

    /// Ends everything that stays from run to run; it is made again when it is needed.
    pub(crate) fn end_snapshots(&mut self) -> io::Result<()> {
        let mut session = Session::new(&mut self.supervision, false);
        self.snapshots.end(&mut session)
    }

    fn in_a_run<T>(
        &mut self,
        traced: bool,
        mode: Mode,
        work: impl FnOnce(&mut Run<'_, '_, 'a>, &Commands<'_>) -> Result<T, Stopped>,
    ) -> Result<T, Stopped> {
        if self.needs_port {
            self.kit.port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
                .local_addr()?
                .port();
        }
        let session = Session::new(&mut self.supervision, traced);
        let (kit, snapshots) = (&mut self.kit, &mut self.snapshots);
        let mut run = Run::new(session, kit, snapshots, &self.ok_exit, mode);
        let commands = Commands {
            recover: &self.recover,
            server: self.server.as_ref(),
            checker: self.checker.as_ref(),
            dump: self.dump.as_ref(),
        };
        let result = work(&mut run, &commands);
        run.session.end_all()?;
        result
    }
}

/// The commands of a plan.
struct Commands<'c> {
    recover: &'c Command,
    server: Option<&'c ServerCommands>,
    checker: Option<&'c Command>,
    dump: Option<&'c Command>,
}

impl Commands<'_> {
    fn run(&self, run: &mut Run<'_, '_, '_>) -> Result<RunReply, Stopped> {
        run.stages(self.recover, self.server, self.checker, self.dump)
    }
}

fn reply_of(result: Result<RunReply, Stopped>) -> RunReply {
    match result {
        Ok(reply) | Err(Stopped::Reply(reply)) => reply,
        Err(Stopped::Refused(refusal)) => RunReply::Lost {
            reason: refusal.reason,
        },
        Err(Stopped::Trouble(error)) => RunReply::Broken {
            reason: error.to_string(),
        },
    }
}

/// Whether a reply says something about the image.
fn is_verdict(reply: &RunReply) -> bool {
    matches!(reply, RunReply::Success { .. } | RunReply::Failure { .. })
}
