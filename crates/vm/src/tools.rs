//! The programs of this computer that guests need, and the packages that have them.

use std::path::{Path, PathBuf};

use crate::error::{Result, VmError};

/// Where programs are that `PATH` of an ordinary user may lack.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The programs that every guest needs.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The emulator.
    pub qemu: PathBuf,
    /// The programs of the guest, in one static file.
    pub busybox: PathBuf,
}

impl Tools {
    /// Finds them.
    pub fn find() -> Result<Self> {
        let qemu = program("qemu-system-x86_64", "qemu-system-x86")?;
        let busybox = program("busybox", "busybox-static")?;
        let bytes = std::fs::read(&busybox).map_err(VmError::file("read", &busybox))?;
        // The one of the package busybox needs libraries, which the guest does not have.
        if is_dynamic(&bytes) {
            return Err(VmError::Missing {
                what: format!("a static busybox ({} is dynamic)", busybox.display()),
                package: "busybox-static",
            });
        }
        Ok(Self { qemu, busybox })
    }
}

/// The path of a program, or the package that has it.
pub(crate) fn program(name: &str, package: &'static str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let given = std::env::split_paths(&path);
    let all = given.chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from));
    for directory in all {
        let file = directory.join(name);
        if is_executable(&file) {
            return Ok(file);
        }
    }
    Err(VmError::Missing {
        what: name.to_owned(),
        package,
    })
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Whether an ELF file asks for a dynamic linker.
pub(crate) fn is_dynamic(bytes: &[u8]) -> bool {
    use object::read::elf::{FileHeader as _, ProgramHeader as _};
    let endian = object::LittleEndian;
    let Ok(header) = object::elf::FileHeader64::<object::LittleEndian>::parse(bytes) else {
        return false;
    };
    let Ok(segments) = header.program_headers(endian, bytes) else {
        return false;
    };
    segments
        .iter()
        .any(|segment| segment.p_type(endian) == object::elf::PT_INTERP)
}
