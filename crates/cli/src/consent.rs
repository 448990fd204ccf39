//! Asks before the commands of evidence run that this user did not make on this machine.

use std::io::{self, IsTerminal, Write};

use powerfail_check::{Recovery, output_directory};
use powerfail_files::seal::Origin;
use powerfail_report::foreign::{Foreign, Purpose};

use crate::args::ReplayArgs;

/// Returns if the user made the evidence, has given `--yes`, or agrees.
pub(crate) fn ask(args: &ReplayArgs, recovery: &Recovery, purpose: Purpose) -> anyhow::Result<()> {
    if args.yes {
        return Ok(());
    }
    let Origin::Foreign(reason) = output_directory::origin(&args.out)? else {
        return Ok(());
    };
    let commands = recovery.commands();
    let foreign = Foreign {
        directory: &args.out,
        reason,
        commands: commands
            .map(|(name, words)| (name, words.to_vec()))
            .collect(),
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
