//! Finds the program of a command before it is needed, so that a wrong name is an error of the set-up.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::error::OracleError;
use crate::verdict::Stage;

/// The file that is executed for the name of a program.
pub(crate) fn find(
    command: Stage,
    name: &OsStr,
    working_directory: &Path,
    search: Option<&OsStr>,
) -> Result<PathBuf, OracleError> {
    if name.is_empty() {
        return Err(OracleError::EmptyCommand { command });
    }
    if name.as_bytes().contains(&b'/') {
        let path = working_directory.join(name);
        return match is_program(&path) {
            Some(true) => Ok(path),
            Some(false) => Err(OracleError::NotExecutable {
                command,
                program: path,
            }),
            None => Err(OracleError::NotFound {
                command,
                program: path,
            }),
        };
    }
    let mut unusable = None;
    for directory in std::env::split_paths(search.unwrap_or(OsStr::new("/usr/bin:/bin"))) {
        let path = working_directory.join(directory).join(name);
        match is_program(&path) {
            Some(true) => return Ok(path),
            Some(false) => unusable = unusable.or(Some(path)),
            None => {}
        }
    }
    Err(match unusable {
        Some(program) => OracleError::NotExecutable { command, program },
        None => OracleError::NotFound {
            command,
            program: name.into(),
        },
    })
}

/// Whether a file may be executed; `None` if it does not exist.
fn is_program(path: &Path) -> Option<bool> {
    let metadata = path.metadata().ok()?;
    Some(metadata.is_file() && access(path, Access::EXEC_OK).is_ok())
}
