//! `powerfail init`: tries a program, and writes a first powerfail.toml.

use std::io;
use std::path::Path;

use anyhow::Context;
use powerfail_check::{
    InitError, InitOptions, SessionError, WorkloadError, WorkloadFailure, init as try_program,
};
use powerfail_config::{Config, FILE_NAME};
use powerfail_finding::RecoveryTrial;
use powerfail_report::init as report;

use crate::args::InitArgs;
use crate::check::refuse;
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::output::print;
use crate::record::QEMU_PLUGIN;
use crate::runtime::runtime;
use crate::watcher::Watcher;

pub(crate) fn init(args: &InitArgs) -> anyhow::Result<Exit> {
    let path = Path::new(FILE_NAME);
    // Before the trial, which may take a while.
    if !args.force && path.symlink_metadata().is_ok() {
        complain(&format!(
            "{FILE_NAME} exists already and was not changed; --force replaces it"
        ));
        return Ok(Exit::Setup);
    }
    let mut command = Vec::new();
    for word in &args.command {
        let Some(word) = word.to_str() else {
            complain(&format!(
                "{} is not UTF-8, and {FILE_NAME} can only hold text",
                word.display()
            ));
            return Ok(Exit::Setup);
        };
        command.push(word.to_owned());
    }
    let options = InitOptions {
        command,
        recover: args.recover.clone(),
        time_limit: args.record_timeout,
        plugin: QEMU_PLUGIN,
    };
    interrupt::watch();
    let proposal = match try_program(&options, runtime(), &mut Watcher::default()) {
        Ok(proposal) => proposal,
        Err(InitError::Session(SessionError::Workload(WorkloadError::Failed(
            failure @ WorkloadFailure::Fails(_),
        )))) => {
            complain(&format!(
                "{failure}. It got an empty standard input; give a program that reads one as /bin/sh -c 'COMMAND < FILE'"
            ));
            return Ok(Exit::Setup);
        }
        Err(InitError::Session(error)) => return refuse(error),
        Err(error @ (InitError::NothingWritten | InitError::NothingRecorded { .. })) => {
            complain(&error.to_string());
            return Ok(Exit::NotChecked);
        }
        Err(error) => return Err(error.into()),
    };
    let text = report::file(&proposal);
    // What is written must be what check will read.
    Config::parse(&text).context("the proposed file")?;
    write(path, &text, args.force).context(FILE_NAME)?;
    print(|out| Ok(report::text(out, &proposal, FILE_NAME)?))?;
    Ok(match proposal.recovery {
        RecoveryTrial::Succeeds => Exit::Clean,
        RecoveryTrial::ShowsNothing(_) => Exit::NotChecked,
        RecoveryTrial::Fails(_) => Exit::Setup,
    })
}

/// Writes the file. Without `force`, one that appeared during the trial is not replaced either.
fn write(path: &Path, text: &str, force: bool) -> io::Result<()> {
    if force {
        return powerfail_files::output::replace(path, text.as_bytes());
    }
    let mut file = std::fs::File::create_new(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}
