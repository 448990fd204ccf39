//! The life of a zygote: it is set up once, and then answers requests until its socket closes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;

use crate::descriptors;
use crate::explore::ExploreFile;
use crate::message::{
    ExecutionReply, ExploreReply, Level, Ran, Request, RunReply, Setup, SetupReply,
};
use crate::wire;
use crate::zygote::cover::Covers;
use crate::zygote::isolate;
use crate::zygote::runtime::Runtime;
use crate::zygote::stages::Stages;
use crate::zygote::system;
use crate::zygote::tree::Exploration;

/// The name by which a process knows that it is to be a zygote.
pub(crate) const ZYGOTE_NAME: &str = "powerfail-zygote";

/// Makes this process a zygote if it was started to be one, and does not return then. Call it first thing
/// in `main`, while there is one thread: the oracle starts the program that it lives in once more.
pub fn serve_if_zygote() {
    if std::env::args_os().next().as_deref() == Some(OsStr::new(ZYGOTE_NAME)) {
        let status = i32::from(serve().is_err());
        std::process::exit(status);
    }
}

fn serve() -> io::Result<()> {
    let socket = take_socket()?;
    isolate::leave_the_terminal();
    let Some(message) = wire::receive(&socket)? else {
        return Ok(());
    };
    let setup = Setup::decode(&message)?;
    let mut runtime = None;
    if setup.has_runtime {
        let [library, file] = descriptors::receive(&socket)?;
        let file = ExploreFile::from_descriptor(file);
        runtime = Some(Runtime::new(library, file, &setup.environment));
    }
    let socket = match isolate::enter(setup.level, socket) {
        Ok(socket) => socket,
        Err((socket, reason)) => {
            return SetupReply::NotPossible { reason }.encode().send(&socket);
        }
    };
    let mut covers = Covers::new(&setup.cover);
    let placeholders = match covers.mount() {
        Ok(placeholders) => placeholders,
        Err(reason) => return SetupReply::NotPossible { reason }.encode().send(&socket),
    };
    if let Err(error) = std::env::set_current_dir(&setup.working_directory) {
        let failed = SetupReply::Failed {
            path: setup.working_directory.clone(),
            errno: error.raw_os_error().unwrap_or(0),
        };
        return failed.encode().send(&socket);
    }
    let mut stages = match Stages::new(&setup, &socket, setup.level == Level::Full, runtime) {
        Ok(stages) => stages,
        Err(error) => {
            let failed = SetupReply::Failed {
                path: setup.input.clone(),
                errno: error.raw_os_error().unwrap_or(0),
            };
            return failed.encode().send(&socket);
        }
    };
    SetupReply::Ready { placeholders }.encode().send(&socket)?;
    while let Some(message) = wire::receive(&socket)? {
        let request = Request::decode(&message)?;
        let refreshed = covers.refresh().and_then(|mounted| {
            if mounted {
                // What a snapshot holds on to may be gone.
                return stages.end_snapshots().map_err(|error| error.to_string());
            }
            Ok(())
        });
        answer(request, refreshed, &mut stages, &socket)?;
    }
    stages.end_snapshots()
}

fn answer(
    request: Request,
    refreshed: Result<(), String>,
    stages: &mut Stages<'_>,
    socket: &UnixStream,
) -> io::Result<()> {
    let broken = refreshed.err().map(|reason| RunReply::Broken { reason });
    match (request, broken) {
        (Request::Run { .. }, Some(reply)) => Ran {
            reply,
            texts: Vec::new(),
            by_snapshot: false,
            note: None,
        }
        .encode()
        .send(socket),
        (Request::Explore { .. }, Some(reply)) => {
            ExploreReply::Trouble(reply).encode().send(socket)
        }
        (
            Request::Run {
                traced,
                snapshot,
                texts,
            },
            None,
        ) => stages.run(traced, snapshot, texts).encode().send(socket),
        (
            Request::Explore {
                private,
                log,
                notes,
                max_executions,
            },
            None,
        ) => {
            let exploration = Exploration {
                private,
                log,
                notes,
                max_executions,
            };
            explore(exploration, stages, socket)
        }
        (Request::Modules, _) => stages.modules().encode().send(socket),
    }
}

/// Tells executions several at a time.
fn explore(
    exploration: Exploration,
    stages: &mut Stages<'_>,
    socket: &UnixStream,
) -> io::Result<()> {
    const ENOUGH_BYTES: usize = 1 << 20;
    let mut executions: Vec<ExecutionReply> = Vec::new();
    let mut bytes = 0;
    let mut tell = |execution: ExecutionReply| {
        bytes += execution.len_bytes();
        executions.push(execution);
        if bytes < ENOUGH_BYTES {
            return Ok(());
        }
        bytes = 0;
        let some = std::mem::take(&mut executions);
        ExploreReply::Executions(some).encode().send(socket)
    };
    let reply = stages.explore(exploration, &mut tell);
    if !executions.is_empty() {
        ExploreReply::Executions(executions).encode().send(socket)?;
    }
    reply.encode().send(socket)
}

/// The conversation is the standard input, which is then nothing, so that no child gets hold of it.
fn take_socket() -> io::Result<UnixStream> {
    system::move_away(libc::STDIN_FILENO).map(UnixStream::from)
}
