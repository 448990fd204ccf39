//! `powerfail header`: the headers with annotations, for those who have the binary and not its sources.

use crate::args::HeaderArgs;
use crate::exit::Exit;
use crate::output::print;

const POWERFAIL: &str = include_str!("../../../include/powerfail.h");
const XFDETECTOR: &str = include_str!("../../../include/xfdetector_interface.h");

pub(crate) fn header(args: &HeaderArgs) -> anyhow::Result<Exit> {
    let text = if args.xfdetector {
        XFDETECTOR
    } else {
        POWERFAIL
    };
    print(|out| Ok(out.write_all(text.as_bytes())?))?;
    Ok(Exit::Clean)
}
