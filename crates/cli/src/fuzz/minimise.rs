//! `powerfail fuzz cmin` and `tmin`.

use crate::args::{FuzzCminArgs, FuzzTminArgs};
use crate::exit::Exit;

pub(crate) fn corpus(args: &FuzzCminArgs) -> anyhow::Result<Exit> {
    let _ = &args.out;
    anyhow::bail!("not there yet")
}

pub(crate) fn case(args: &FuzzTminArgs) -> anyhow::Result<Exit> {
    let _ = (&args.out, args.number);
    anyhow::bail!("not there yet")
}
