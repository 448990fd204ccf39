//! Where separate debug files can be.
//!
//! Distributions strip programs and install what was stripped elsewhere. Two ways lead there, and gdb's
//! manual ("Debugging Information in Separate Files") describes both: the build-id is the name of a
//! file, or a section `.gnu_debuglink` names it. A third, `.gnu_debugaltlink`, leads from there to
//! what `dwz` found common to several debug files.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::elf::{Elf, string_at};
use crate::{BuildId, Problem};

/// The debug file that a module names, and the checksum that it must have.
pub(crate) struct DebugLink {
    pub(crate) checksum: u32,
    name: PathBuf,
}

impl DebugLink {
    /// Reads a module's link; nothing if it has none.
    pub(crate) fn read(elf: &Elf) -> Result<Option<Self>, Problem> {
        let Some(bytes) = elf.section(".gnu_debuglink")? else {
            return Ok(None);
        };
        let damaged = || elf.damaged("the link to its debug file");
        let name = string_at(&bytes, 0).ok_or_else(damaged)?;
        let checksum = bytes
            .get((name.len() + 1).next_multiple_of(4)..)
            .and_then(|rest| rest.first_chunk())
            .ok_or_else(damaged)?;
        // It is the name of a file, never a path.
        let name = Path::new(OsStr::from_bytes(name))
            .file_name()
            .ok_or_else(damaged)?;
        Ok(Some(Self {
            checksum: u32::from_le_bytes(*checksum),
            name: name.into(),
        }))
    }

    /// Where the file can be, if the module is at `module`.
    pub(crate) fn candidates(&self, module: &Path, debug_directories: &[PathBuf]) -> Vec<PathBuf> {
        // The link is relative to where the file is, not to where links to it are.
        let module = module.canonicalize().unwrap_or_else(|_| module.into());
        let Some(directory) = module.parent() else {
            return Vec::new();
        };
        let mut candidates = vec![
            directory.join(&self.name),
            directory.join(".debug").join(&self.name),
        ];
        let below = directory.strip_prefix("/").unwrap_or(directory);
        candidates.extend(
            debug_directories
                .iter()
                .map(|it| it.join(below).join(&self.name)),
        );
        candidates.retain(|candidate| *candidate != module);
        candidates
    }
}

/// Where the debug file of a build can be.
pub(crate) fn by_build_id(build_id: &BuildId, debug_directories: &[PathBuf]) -> Vec<PathBuf> {
    let Some((first, rest)) = build_id.0.split_first() else {
        return Vec::new();
    };
    let mut name = format!("{first:02x}/");
    for byte in rest {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.push_str(".debug");
    debug_directories
        .iter()
        .map(|it| it.join(".build-id").join(&name))
        .collect()
}

/// The file with the part of the debug information that several files share.
pub(crate) struct Supplement {
    /// Its build-id.
    pub(crate) build_id: BuildId,
    /// Its path, as the debug file has it.
    pub(crate) path: PathBuf,
}

impl Supplement {
    /// Reads the link of a debug file; nothing if it has none.
    pub(crate) fn read(elf: &Elf) -> Result<Option<Self>, Problem> {
        let Some(bytes) = elf.section(".gnu_debugaltlink")? else {
            return Ok(None);
        };
        let path = string_at(&bytes, 0).ok_or_else(|| elf.damaged("the link to its supplement"))?;
        Ok(Some(Self {
            build_id: BuildId(bytes[path.len() + 1..].to_vec()),
            path: OsStr::from_bytes(path).into(),
        }))
    }

    /// Where the file can be.
    pub(crate) fn candidates(
        &self,
        debug_file: &Path,
        debug_directories: &[PathBuf],
    ) -> Vec<PathBuf> {
        let debug_file = debug_file
            .canonicalize()
            .unwrap_or_else(|_| debug_file.into());
        let beside = debug_file.parent().map(|it| it.join(&self.path));
        let mut candidates: Vec<PathBuf> = beside.into_iter().collect();
        candidates.extend(by_build_id(&self.build_id, debug_directories));
        candidates
    }

    /// Opens the file, if one of these is the right one.
    pub(crate) fn open(&self, candidates: &[PathBuf]) -> Option<Elf> {
        candidates
            .iter()
            .filter_map(|path| Elf::open(path).ok())
            .find(|elf| elf.build_id().is_ok_and(|found| found == self.build_id))
    }
}
