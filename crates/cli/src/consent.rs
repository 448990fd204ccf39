//! Asks before commands run that this user did not write on this machine: those of evidence and of campaigns.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use powerfail_check::{ForeignTrace, Recovery, output_directory};
use powerfail_files::seal::Origin;
use powerfail_fuzz::{CampaignOptions, MachineLink};
use powerfail_report::foreign::{Foreign, Purpose};

/// Returns if the user made the evidence, has given `--yes`, or agrees.
pub(crate) fn ask(
    directory: &Path,
    yes: bool,
    recovery: &Recovery,
    purpose: Purpose,
) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    let origin = output_directory::origin(directory)?;
    ask_about(&origin, directory, commands_of(recovery), recovery, purpose)
}

/// The same for a share of a run, whose command is done once more.
pub(crate) fn ask_for_share(
    directory: &Path,
    yes: bool,
    command: &[OsString],
    recovery: &Recovery,
) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    let origin = output_directory::origin(directory)?;
    let mut commands = vec![("command", command.to_vec())];
    commands.extend(commands_of(recovery));
    ask_about(&origin, directory, commands, recovery, Purpose::Run)
}

/// The same for a trace whose command would run as recovery.
pub(crate) fn ask_for_trace(foreign: &ForeignTrace<'_>) -> anyhow::Result<()> {
    let recovery = foreign.recovery;
    let origin = Origin::Foreign(foreign.reason);
    ask_about(
        &origin,
        foreign.path,
        commands_of(recovery),
        recovery,
        Purpose::Run,
    )
}

/// The same for a campaign that is to be continued.
pub(crate) fn ask_for_campaign(
    directory: &Path,
    options: &CampaignOptions,
    yes: bool,
) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    let origin = powerfail_fuzz_store::origin(directory)?;
    let recovery = options.recovery();
    let mut commands = vec![("target", options.command.clone())];
    commands.extend(commands_of(&recovery));
    let read = [
        &options.seeds,
        &options.images,
        &options.dictionary,
        &options.grammar,
    ];
    let read = read.into_iter().flatten().chain(&options.sync);
    commands.extend(read.map(|path| ("reads", vec![path.clone().into_os_string()])));
    let link = match &options.machines {
        Some(MachineLink::Broker(port)) => Some(("listens on port", port.to_string())),
        Some(MachineLink::Join(address)) => Some(("connects to", address.clone())),
        None => None,
    };
    commands.extend(link.map(|(what, place)| (what, vec![place.into()])));
    ask_about(&origin, directory, commands, &recovery, Purpose::Run)
}

fn commands_of(recovery: &Recovery) -> Vec<(&'static str, Vec<OsString>)> {
    let commands = recovery.commands();
    commands
        .map(|(name, words)| (name, words.to_vec()))
        .collect()
}

fn ask_about(
    origin: &Origin,
    directory: &Path,
    commands: Vec<(&str, Vec<OsString>)>,
    recovery: &Recovery,
    purpose: Purpose,
) -> anyhow::Result<()> {
    let Origin::Foreign(reason) = origin else {
        return Ok(());
    };
    let foreign = Foreign {
        directory,
        reason,
        commands,
        working_directory: &recovery.working_directory,
        environment: &recovery.environment,
        purpose,
    };
    anyhow::ensure!(
        io::stdin().is_terminal() && io::stderr().is_terminal(),
        foreign.refusal()
    );
    let mut err = anstream::stderr();
    foreign.question(&mut err)?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    let agrees = ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    anyhow::ensure!(agrees, "nothing was run or copied");
    Ok(())
}
