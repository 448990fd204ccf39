//! Runs the plan of a zygote on request, and keeps what lasts from one run to the next.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;

use crate::hang::HangKnowledge;
use crate::message::{
    ExploreOptions, ExploreReply, LazyReply, Refusal, RunOptions, RunReply, RunResult,
    StageModules, StartMode, Usage,
};
use crate::plan::ResolvedPlan;
use crate::zygote::file_access::FileAccess;
use crate::zygote::launcher::Launcher;
use crate::zygote::processes::{Processes, Supervision};
use crate::zygote::run::{EarlyEnd, Mode, Run};
use crate::zygote::runtime::Runtime;
use crate::zygote::snapshots::Snapshots;
use crate::zygote::system;
use crate::zygote::tracer::Tracer;

/// What surrounds the commands of a plan.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// Processes that commands must not signal.
    pub(crate) supervisors: Vec<i32>,
    /// Whether this process is the first of its namespace.
    pub(crate) owns_namespace: bool,
    pub(crate) runtime: Option<Runtime>,
    /// What commands may touch, if that is restricted.
    pub(crate) access: Option<FileAccess>,
    /// How much commands may use, if that is restricted.
    pub(crate) usage: Option<Usage>,
    /// For tests: readable when the current command is to time out.
    pub(crate) expiry: Option<File>,
    /// The directories of trees, as commands see them.
    pub(crate) trees: Vec<PathBuf>,
}

/// Runs a plan.
#[derive(Debug)]
pub(crate) struct PlanRunner<'a> {
    plan: Rc<ResolvedPlan>,
    supervision: Supervision<'a>,
    launcher: Launcher,
    snapshots: Snapshots,
    known: HangKnowledge,
    trees: Vec<PathBuf>,
}

impl<'a> PlanRunner<'a> {
    pub(crate) fn new(
        plan: ResolvedPlan,
        socket: &'a UnixStream,
        surroundings: Surroundings,
    ) -> io::Result<Self> {
        let Surroundings {
            supervisors,
            owns_namespace,
            runtime,
            access,
            usage,
            expiry,
            trees,
        } = surroundings;
        // An input that cannot be opened is an error of the set-up.
        File::open(Launcher::input(&plan))?;
        let plan = Rc::new(plan);
        let launched = Rc::clone(&plan);
        let max_bytes = plan.max_dump_bytes;
        let mut supervision = Supervision::new(socket, owns_namespace, max_bytes, expiry)?;
        supervision.usage = usage;
        Ok(Self {
            supervision,
            launcher: Launcher::new(launched, owns_namespace, &supervisors, runtime, access),
            snapshots: Snapshots::default(),
            known: HangKnowledge::default(),
            plan,
            trees,
        })
    }

    /// Removes the temporary files of earlier commands.
    pub(crate) fn clear_temporary_files(&self) -> io::Result<()> {
        let access = self.launcher.access.as_ref();
        access.map_or(Ok(()), FileAccess::clear)
    }

    /// What is in directories for temporary files now stays there.
    pub(crate) fn keep_temporary_files(&mut self) -> io::Result<()> {
        let access = self.launcher.access.as_mut();
        access.map_or(Ok(()), FileAccess::settle)
    }

    /// Runs all commands, up to the first failure.
    pub(crate) fn run(&mut self, options: RunOptions) -> RunResult {
        let wants_snapshots = options.start == StartMode::ForkFromSnapshot;
        let is_server = self.plan.server.is_some();
        let start = if wants_snapshots && (is_server || self.launcher.runtime.is_none()) {
            StartMode::Execute
        } else {
            options.start
        };
        // Runs that are compared write both into one pipe, as those from snapshots do.
        self.launcher.separates_errors =
            start != StartMode::ForkFromSnapshot && !options.with_outputs;
        let mut outputs = Vec::new();
        let mut suspects = Vec::new();
        let mut denied = Vec::new();
        let mut file_uses = Vec::new();
        let mut from_snapshot = false;
        let mut shown = HangKnowledge::default();
        let used = system::time_of_children();
        let result = self.in_a_run(Mode::Run(start), |run| {
            run.patience = options.patience;
            if let (StartMode::ForkFromSnapshot, Some(runtime)) = (start, &run.launcher.runtime) {
                runtime.file.just_run()?;
            }
            let result = run.commands();
            // Whatever happened, no process is left behind.
            run.processes.end_all()?;
            from_snapshot = run.from_snapshot;
            if let Some(tracer) = &mut run.processes.tracer {
                denied = tracer.take_denied();
                file_uses = tracer.take_uses();
            }
            shown = std::mem::take(&mut run.shown);
            let commands = run.processes.commands.iter();
            suspects = commands
                .filter_map(|it| it.capture.suspect.clone())
                .collect();
            if options.with_outputs {
                let commands = run.processes.commands.iter();
                outputs = commands.map(|it| it.capture.text()).collect();
            }
            result
        });
        let reply = match result {
            Ok(reply) | Err(EarlyEnd::Reply(reply)) => reply,
            Err(EarlyEnd::Refused(refusal)) => RunReply::SnapshotLost {
                reason: refusal.reason,
            },
            Err(EarlyEnd::Io(error)) => RunReply::ZygoteFailed((&error).into()),
        };
        if matches!(reply, RunReply::Success { .. }) {
            shown.note_success(system::time_of_children().saturating_sub(used), false);
        } else {
            suspects.clear();
        }
        let snapshot_note = match (wants_snapshots, is_server) {
            (true, true) => Some("a server is started for each image".into()),
            (true, false) => self.snapshots.note(),
            (false, _) => None,
        };
        RunResult {
            reply,
            outputs,
            from_snapshot,
            snapshot_note,
            shown,
            suspects,
            denied,
            uses: file_uses,
        }
    }

    /// Learns what other slots have seen.
    pub(crate) fn learn(&mut self, known: HangKnowledge) {
        self.known = known;
    }

    /// Explores the crash states that the shared file describes. Executions are reported as they end.
    pub(crate) fn explore(
        &mut self,
        options: ExploreOptions,
        report: &mut dyn FnMut(LazyReply) -> io::Result<()>,
    ) -> ExploreReply {
        if self.launcher.runtime.is_none() {
            return ExploreReply::Refused(Refusal::not_explorable("there is no runtime"));
        }
        let forks = options.private && self.plan.is_recovery_only();
        let result = self.in_a_run(Mode::Lazy, |run| {
            let explored = if forks {
                run.explore_tree(options, report)
            } else {
                run.explore_once(options, report)
            };
            run.processes.end_all()?;
            let stopped = explored?;
            // A program that runs without the runtime opens the pool unobserved.
            let is_observed = match &run.launcher.runtime {
                Some(runtime) => runtime.file.has_begun()?,
                None => false,
            };
            if !is_observed {
                let reason = "recovery did not open the pool, or opened it in a process that is not \
                              observed";
                return Err(EarlyEnd::Refused(Refusal::not_explorable(reason)));
            }
            let shown = std::mem::take(&mut run.shown);
            Ok((stopped, std::mem::take(&mut run.warnings), shown))
        });
        match result {
            Ok((stopped, warnings, shown)) => ExploreReply::Done {
                stopped,
                warnings,
                shown,
            },
            Err(EarlyEnd::Refused(refusal)) => ExploreReply::Refused(refusal),
            Err(EarlyEnd::Reply(reply)) => ExploreReply::NoVerdict(reply),
            Err(EarlyEnd::Io(error)) => {
                ExploreReply::NoVerdict(RunReply::ZygoteFailed((&error).into()))
            }
        }
    }

    /// The modules that the processes of each command had loaded.
    pub(crate) fn modules(&self) -> Vec<StageModules> {
        self.snapshots.modules()
    }

    /// Ends all snapshots; they are made again when they are needed.
    pub(crate) fn end_snapshots(&mut self) -> io::Result<()> {
        let mut processes = Processes::new(&mut self.supervision, None);
        self.snapshots.end(&mut processes)
    }

    fn in_a_run<T>(
        &mut self,
        mode: Mode,
        work: impl FnOnce(&mut Run<'_, '_, 'a>) -> Result<T, EarlyEnd>,
    ) -> Result<T, EarlyEnd> {
        if self.plan.needs_port() {
            self.launcher.port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
                .local_addr()?
                .port();
        }
        let tracer = match mode {
            Mode::Run(StartMode::ExecuteTraced) => Some(Tracer::default()),
            Mode::Run(StartMode::ExecuteAudited) => {
                let access = self.launcher.access.as_ref();
                Some(Tracer::of_denials(
                    access.is_some_and(FileAccess::has_rules),
                ))
            }
            Mode::Run(StartMode::ExecuteWatched) => Some(Tracer::of_uses(self.trees.clone())),
            _ => None,
        };
        let processes = Processes::new(&mut self.supervision, tracer);
        let (launcher, snapshots) = (&mut self.launcher, &mut self.snapshots);
        let mut run = Run::new(
            &self.plan,
            processes,
            launcher,
            snapshots,
            mode,
            &self.known,
        );
        let result = work(&mut run);
        run.processes.end_all()?;
        result
    }
}
