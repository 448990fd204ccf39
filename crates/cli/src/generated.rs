//! Completions and man pages, from the same definition as the command line itself.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;
use powerfail_files::output;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::exit::Exit;
use crate::output::print;

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "powerfail", &mut script);
    print(|out| Ok(out.write_all(&script)?))?;
    Ok(Exit::Clean)
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<Exit> {
    match &args.out {
        Some(folder) => {
            let mut command = Cli::command().disable_help_subcommand(true);
            command.build();
            write_pages(&command, folder)?;
        }
        None => {
            let mut page = Vec::new();
            Man::new(Cli::command()).render(&mut page)?;
            print(|out| Ok(out.write_all(&page)?))?;
        }
    }
    Ok(Exit::Clean)
}

/// Writes the page of a command and those of its subcommands. A link that lies in the place of one is replaced.
fn write_pages(command: &clap::Command, folder: &Path) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        write_pages(subcommand, folder)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    let path = folder.join(man.get_filename());
    output::replace(&path, &page).with_context(|| path.display().to_string())
}
