//! The life of a zygote: it is set up once, and then answers requests until its socket closes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;

use crate::message::{Level, RunReply, Setup, SetupReply, decode_request};
use crate::wire;
use crate::zygote::cover::Covers;
use crate::zygote::isolate;
use crate::zygote::stages::Stages;
use crate::zygote::system;

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
    let mut stages = match Stages::new(&setup, &socket, setup.level == Level::Full) {
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
        let traced = decode_request(&message)?;
        let reply = match covers.refresh() {
            Ok(()) => stages.run(traced),
            Err(reason) => RunReply::Broken { reason },
        };
        reply.encode().send(&socket)?;
    }
    Ok(())
}

/// The conversation is the standard input, which is then nothing, so that no child gets hold of it.
fn take_socket() -> io::Result<UnixStream> {
    system::move_away(libc::STDIN_FILENO).map(UnixStream::from)
}
