//! The life of a zygote: it is set up once, and then answers requests until its socket closes.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;

use crate::descriptors;
use crate::lazy::SharedFile;
use crate::message::{
    ExploreOptions, ExploreReply, IsolationLevel, LazyReply, Request, RunReply, RunResult, Setup,
    SetupReply, receive, send,
};
use crate::zygote::file_access::FileAccess;
use crate::zygote::isolate;
use crate::zygote::landlock_rules::LandlockRules;
use crate::zygote::launcher::Launcher;
use crate::zygote::network;
use crate::zygote::plan_runner::{PlanRunner, Surroundings};
use crate::zygote::pool_mounts::PoolMounts;
use crate::zygote::privileges;
use crate::zygote::runtime::Runtime;
use crate::zygote::step::StepError;
use crate::zygote::system;

/// The name, as `argv[0]`, of a process that is to be a zygote.
pub(crate) const ZYGOTE_NAME: &str = "powerfail-zygote";

/// Makes this process a zygote if it was started as one, and does not return then.
///
/// Call it at the beginning of `main`, while there is one thread: the oracle executes the program that
/// contains it once more.
pub fn serve_if_zygote() {
    if is_zygote() {
        serve_and_exit(None);
    }
}

/// For tests of hangs: as [`serve_if_zygote`], but a recovery can make its own timeout pass.
///
/// `variable` is a variable in the environment of recovery with the path of a FIFO. A byte in the FIFO has the effect
/// of a timeout of the command that runs, so that a test needs no timeout that is short, and no other command runs
/// into it on a busy machine.
#[doc(hidden)]
pub fn serve_if_zygote_with_expiry(variable: &str) {
    if is_zygote() {
        serve_and_exit(Some(variable));
    }
}

fn is_zygote() -> bool {
    std::env::args_os().next().as_deref() == Some(OsStr::new(ZYGOTE_NAME))
}

fn serve_and_exit(expiry_variable: Option<&str>) -> ! {
    let status = i32::from(serve(expiry_variable).is_err());
    std::process::exit(status)
}

fn serve(expiry_variable: Option<&str>) -> io::Result<()> {
    let socket = take_socket()?;
    isolate::leave_the_terminal();
    let Some(mut setup) = receive::<Setup>(&socket)? else {
        return Ok(());
    };
    let mut runtime = None;
    if setup.has_runtime {
        let [library, file] = descriptors::receive(&socket)?;
        let file = SharedFile::from_descriptor(file);
        runtime = Some(Runtime::new(library, file, &setup.plan.environment));
    }
    let host = isolate::Host::current();
    let socket = match isolate::enter(setup.level, socket) {
        Ok(socket) => socket,
        Err((socket, error)) => {
            let reason = error.to_string();
            return send(&socket, &SetupReply::NotIsolated { reason });
        }
    };
    let trees = setup.mappings.iter().filter(|it| it.is_tree());
    let trees = trees.flat_map(|it| [it.original.clone(), it.private.clone()]);
    let trees = trees.collect();
    let mut mounts = PoolMounts::new(&setup.mounted_pools);
    let mut notes = Vec::new();
    let (access, rules) = match confine(&mut setup, &mut notes) {
        Ok(confined) => confined,
        Err(error) => {
            let reason = error.to_string();
            return send(&socket, &SetupReply::NotIsolated { reason });
        }
    };
    if let Some(access) = &access
        && setup.level != IsolationLevel::None
    {
        mounts.within(access);
    }
    let placeholders = match mounts.mount() {
        Ok(placeholders) => placeholders,
        Err(error) => {
            let reason = error.to_string();
            return send(&socket, &SetupReply::NotIsolated { reason });
        }
    };
    if let Some(directory) = &setup.plan.working_directory
        && let Err(error) = std::env::set_current_dir(directory)
    {
        let failed = SetupReply::Failed {
            path: directory.clone(),
            error: (&error).into(),
        };
        return send(&socket, &failed);
    }
    let expiry = open_expiry(&setup, expiry_variable)?;
    let input = Launcher::input(&setup.plan).to_path_buf();
    privileges::reduce_for_commands();
    notes.extend(rules.map(put_in_force));
    let surroundings = Surroundings {
        supervisors: host.supervisors(setup.level),
        owns_namespace: setup.level == IsolationLevel::Full,
        runtime,
        access,
        usage: setup.usage,
        expiry,
        trees,
    };
    let runner = PlanRunner::new(setup.plan, &socket, surroundings);
    let mut runner = match runner {
        Ok(runner) => runner,
        Err(error) => {
            let failed = SetupReply::Failed {
                path: input,
                error: (&error).into(),
            };
            return send(&socket, &failed);
        }
    };
    runner.keep_temporary_files()?;
    let ready = SetupReply::Ready {
        placeholders,
        notes,
    };
    send(&socket, &ready)?;
    while let Some(request) = receive(&socket)? {
        let refreshed = prepare(&mut mounts, &mut runner);
        match (request, refreshed) {
            (request, Ok(())) => answer(request, &mut runner, &socket)?,
            (request @ (Request::Modules | Request::Learn(_)), Err(_)) => {
                answer(request, &mut runner, &socket)?;
            }
            (Request::Run(_), Err(error)) => {
                let reply = RunReply::ZygoteFailed((&error).into());
                send(&socket, &RunResult::of(reply))?;
            }
            (Request::Explore(_), Err(error)) => {
                let reply = RunReply::ZygoteFailed((&error).into());
                send(&socket, &ExploreReply::NoVerdict(reply))?;
            }
        }
    }
    runner.end_snapshots()
}

/// The FIFO in a variable with which tests expire timeouts.
fn open_expiry(setup: &Setup, variable: Option<&str>) -> io::Result<Option<File>> {
    let Some(variable) = variable else {
        return Ok(None);
    };
    let mut environment = setup.plan.environment.iter();
    let found = environment.find(|(name, _)| name == variable);
    // Open for writing as well, so that it is never at its end.
    let open = |path| File::options().read(true).write(true).open(path);
    found.map(|(_, path)| open(path)).transpose()
}

/// Puts rules in force, and says what they do not restrict.
fn put_in_force(rules: LandlockRules) -> String {
    match rules.enforce() {
        Ok(more) => format!(
            "commands are confined by Landlock only: they can change permissions and times of files, use the network{more}, \
             and have no directory for temporary files but TMPDIR"
        ),
        Err(error) => format!("commands are not confined, because Landlock failed: {error}"),
    }
}

/// Restricts what commands may touch, as far as that is possible here. `notes` says what is not. Rules, if there are any, are
/// yet to be put in force.
fn confine(
    setup: &mut Setup,
    notes: &mut Vec<String>,
) -> Result<(Option<FileAccess>, Option<LandlockRules>), StepError> {
    let Some(confinement) = &setup.confinement else {
        return Ok((None, None));
    };
    if setup.level == IsolationLevel::None {
        let (plan, mappings) = (&mut setup.plan, &setup.mappings);
        let restricted = FileAccess::restrict_paths(plan, mappings, &confinement.writable)?;
        if restricted.is_none() {
            notes.push(
                "commands are not confined, because there is neither a mount namespace nor Landlock".into(),
            );
        }
        return Ok(restricted.unzip());
    }
    if let Err(error) = network::enter() {
        notes.push(format!("commands can use the network: {error}"));
    }
    // Shared memory, semaphores and queues of System V, and message queues.
    let system_v = system::unshare(libc::CLONE_NEWIPC);
    if let Err(error) = &system_v {
        notes.push(format!(
            "commands can change shared memory and semaphores of other processes: {error}"
        ));
    }
    let mut access = FileAccess::restrict(setup, &setup.mappings, &confinement.writable)?;
    access.owns_system_v = system_v.is_ok();
    notes.extend_from_slice(access.notes());
    Ok((Some(access), None))
}

/// Before each request, everything is as it was after the set-up.
fn prepare(mounts: &mut PoolMounts, runner: &mut PlanRunner<'_>) -> io::Result<()> {
    runner.clear_temporary_files()?;
    if mounts.refresh()? {
        // A snapshot may refer to files that are no longer mounted.
        runner.end_snapshots()?;
        runner.keep_temporary_files()?;
    }
    Ok(())
}

fn answer(request: Request, runner: &mut PlanRunner<'_>, socket: &UnixStream) -> io::Result<()> {
    match request {
        Request::Run(options) => send(socket, &runner.run(options)),
        Request::Explore(options) => explore(options, runner, socket),
        Request::Modules => send(socket, &runner.modules()),
        Request::Learn(known) => {
            runner.learn(known);
            Ok(())
        }
    }
}

/// Explores, and sends several executions in each message.
fn explore(
    options: ExploreOptions,
    runner: &mut PlanRunner<'_>,
    socket: &UnixStream,
) -> io::Result<()> {
    const ENOUGH_BYTES: usize = 1 << 20;
    let mut executions: Vec<LazyReply> = Vec::new();
    let mut bytes = 0;
    let mut report = |execution: LazyReply| {
        bytes += execution.len_bytes();
        executions.push(execution);
        if bytes < ENOUGH_BYTES {
            return Ok(());
        }
        bytes = 0;
        let batch = std::mem::take(&mut executions);
        send(socket, &ExploreReply::Executions(batch))
    };
    let reply = runner.explore(options, &mut report);
    if !executions.is_empty() {
        send(socket, &ExploreReply::Executions(executions))?;
    }
    send(socket, &reply)
}

/// The socket is standard input, which becomes `/dev/null` so that no child inherits the socket.
fn take_socket() -> io::Result<UnixStream> {
    system::move_away(libc::STDIN_FILENO).map(UnixStream::from)
}
