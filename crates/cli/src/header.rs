//! `powerfail header`: the headers with annotations, for those who have the binary and not its sources, and what lets
//! build systems find them.

use std::path::Path;

use anyhow::Context;
use powerfail_files::output;

use crate::args::HeaderArgs;
use crate::exit::Exit;
use crate::output::print;

const POWERFAIL: &str = include_str!("../../../include/powerfail.h");
const XFDETECTOR: &str = include_str!("../../../include/xfdetector_interface.h");
const PKG_CONFIG: &str = include_str!("../../../include/install/powerfail.pc");
const CMAKE: &str = include_str!("../../../include/install/powerfailConfig.cmake");

/// What is installed below a prefix.
const FILES: [(&str, &str); 4] = [
    ("include/powerfail.h", POWERFAIL),
    ("include/xfdetector_interface.h", XFDETECTOR),
    ("share/pkgconfig/powerfail.pc", PKG_CONFIG),
    ("lib/cmake/powerfail/powerfailConfig.cmake", CMAKE),
];

pub(crate) fn header(args: &HeaderArgs) -> anyhow::Result<Exit> {
    if let Some(prefix) = &args.install {
        return install(prefix);
    }
    let text = if args.xfdetector {
        XFDETECTOR
    } else {
        POWERFAIL
    };
    print(|out| Ok(out.write_all(text.as_bytes())?))?;
    Ok(Exit::Clean)
}

/// Writes all files below a prefix, and names them.
fn install(prefix: &Path) -> anyhow::Result<Exit> {
    for (name, text) in FILES {
        let path = prefix.join(name);
        let context = || path.display().to_string();
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(context)?;
        }
        let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        output::replace(&path, text.as_bytes()).with_context(context)?;
        print(|out| Ok(writeln!(out, "{}", path.display())?))?;
    }
    Ok(Exit::Clean)
}
