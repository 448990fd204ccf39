//! What the guest begins with: busybox, the modules of its kernel, and the script that obeys the host.

use std::fmt::Write as _;

use crate::archive::Archive;
use crate::error::{Result, VmError};
use crate::file_system::FileSystem;
use crate::kernel::Kernel;
use crate::layout::MemoryLayout;
use crate::operations::CALLS_MAX;
use crate::tools::Tools;

/// The first process of the guest.
const INIT: &str = include_str!("../guest/init.sh");
/// What it runs.
const PROGRAMS: [(&str, &[u8]); 4] = [
    ("functions.sh", include_bytes!("../guest/functions.sh")),
    ("lines.sh", include_bytes!("../guest/lines.sh")),
    ("list.sh", include_bytes!("../guest/list.sh")),
    ("calls", include_bytes!(concat!(env!("OUT_DIR"), "/calls"))),
];
/// What makes the device of persistent memory.
const PM_MODULES: [&str; 2] = ["nd_e820", "nd_pmem"];

/// The archive that the kernel unpacks at boot.
pub(crate) fn initramfs(
    tools: &Tools,
    kernel: &Kernel,
    file_system: FileSystem,
    more_modules: &[String],
    layout: MemoryLayout,
) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["dev", "proc", "sys", "mnt", "tmp", "powerfail"] {
        archive.directory(directory);
    }
    let busybox = std::fs::read(&tools.busybox).map_err(VmError::file("read", &tools.busybox))?;
    archive.file("bin/busybox", 0o755, busybox);
    archive.file("init", 0o755, INIT.as_bytes().to_vec());
    for (name, content) in PROGRAMS {
        archive.file(&format!("lib/powerfail/{name}"), 0o755, content.to_vec());
    }
    archive.file(
        "etc/powerfail.conf",
        0o644,
        configuration(file_system, layout).into_bytes(),
    );
    let mut names: Vec<&str> = Vec::from(PM_MODULES);
    for name in file_system.modules() {
        names.push(name);
    }
    names.extend(more_modules.iter().map(String::as_str));
    let mut order = String::new();
    for module in kernel.modules(&names)? {
        let _ = writeln!(order, "{}", module.name);
        let name = format!("lib/modules/{}.ko", module.name);
        archive.file(&name, 0o644, module.content);
    }
    archive.file("lib/modules/order", 0o644, order.into_bytes());
    Ok(archive.bytes())
}

/// What the script reads first.
fn configuration(file_system: FileSystem, layout: MemoryLayout) -> String {
    format!(
        "FS={}\nOPTIONS={}\nMARKS={}\nCALLS={CALLS_MAX}\n",
        file_system.kernel_name(),
        file_system.mount_options(),
        layout.marks_address()
    )
}
