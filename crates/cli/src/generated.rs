//! Completions and man pages, from the same definition as the command line itself.

use clap::CommandFactory;

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
        Some(folder) => clap_mangen::generate_to(Cli::command(), folder)
            .map_err(|error| anyhow::anyhow!("{}: {error}", folder.display()))?,
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            print(|out| Ok(out.write_all(&page)?))?;
        }
    }
    Ok(Exit::Clean)
}
