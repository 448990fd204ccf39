//! `powerfail explain`: what a code means, and what to do about it.

use powerfail_report::explain as report;

use crate::args::ExplainArgs;
use crate::exit::Exit;
use crate::output::{print, width};

pub(crate) fn explain(args: &ExplainArgs) -> anyhow::Result<Exit> {
    print(|out| {
        match args.code {
            Some(code) => report::explain(out, code, width())?,
            None => report::list(out)?,
        }
        Ok(())
    })?;
    Ok(Exit::Clean)
}
