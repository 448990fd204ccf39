//! Finds the program of a command and decides whether it can be recorded.
//!
//! Examines what the kernel and the loader will use: the file that `PATH` leads to, the interpreters of scripts,
//! the headers of the ELF file. Runs nothing.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::error::{RecordError, Unsupported};

/// A program that can be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// The file that the command names.
    pub path: PathBuf,
    /// The program that the kernel runs: the same, or the interpreter of the script.
    pub program: PathBuf,
}

/// Finds the program of a command and decides whether it can be recorded on this machine.
///
/// # Errors
///
/// [`RecordError::Unsupported`] if it cannot, [`RecordError::NotFound`] or [`RecordError::NotExecutable`] if there is
/// no program.
pub fn inspect(command: &OsStr) -> Result<Executable, RecordError> {
    check_machine()?;
    let path = find(command, std::env::var_os("PATH"))?;
    let program = check_program(&path)?;
    Ok(Executable { path, program })
}

/// `HWCAP2_FSGSBASE` of the kernel: programs may use `wrgsbase`.
const HWCAP2_FSGSBASE: usize = 1 << 1;

/// Decides whether programs can be recorded on this machine.
///
/// # Errors
///
/// What it lacks.
pub fn check_machine() -> Result<(), Unsupported> {
    let (_, capabilities) = rustix::param::linux_hwcap();
    if capabilities & HWCAP2_FSGSBASE == 0 {
        return Err(Unsupported::NoFsGsBase);
    }
    Ok(())
}

/// Where the C library looks if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

pub(crate) fn find(command: &OsStr, search_path: Option<OsString>) -> Result<PathBuf, RecordError> {
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return executable_file(&path).map(|()| path);
    }
    let mut result = Err(RecordError::NotFound {
        program: command.into(),
    });
    if command.is_empty() {
        return result;
    }
    for directory in std::env::split_paths(&search_path.unwrap_or_else(|| DEFAULT_PATH.into())) {
        let path = if directory.as_os_str().is_empty() {
            Path::new(".").join(command)
        } else {
            directory.join(command)
        };
        match executable_file(&path) {
            Ok(()) => return Ok(path),
            // Like execvp: keep searching, but report why the first one was not usable.
            Err(error @ RecordError::NotExecutable { .. })
                if matches!(result, Err(RecordError::NotFound { .. })) =>
            {
                result = Err(error);
            }
            Err(_) => {}
        }
    }
    result
}

fn executable_file(path: &Path) -> Result<(), RecordError> {
    let metadata = path.metadata().map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => RecordError::NotExecutable {
            program: path.into(),
        },
        _ => RecordError::NotFound {
            program: path.into(),
        },
    })?;
    let executable = metadata.permissions().mode() & 0o111 != 0
        && rustix::fs::access(path, Access::EXEC_OK).is_ok();
    if !metadata.is_file() || !executable {
        return Err(RecordError::NotExecutable {
            program: path.into(),
        });
    }
    Ok(())
}

/// How many interpreters in a row Linux follows.
const INTERPRETERS_MAX: usize = 5;
/// How much of a script Linux looks at.
const SCRIPT_HEAD_BYTES: u64 = 256;

fn check_program(path: &Path) -> Result<PathBuf, RecordError> {
    let mut program = path.to_path_buf();
    for _ in 0..=INTERPRETERS_MAX {
        // A program that may be executed but not read cannot be examined; the kernel can still run it.
        let mut file = match File::open(&program) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(program),
            Err(error) => return Err(RecordError::system("read the program", error)),
        };
        let mut head = Vec::new();
        file.by_ref()
            .take(SCRIPT_HEAD_BYTES)
            .read_to_end(&mut head)
            .map_err(|error| RecordError::system("read the program", error))?;
        let Some(line) = head.strip_prefix(b"#!") else {
            check_privileges(&program, &file)?;
            check_elf(&program, &head, &file)?;
            return Ok(program);
        };
        let interpreter = interpreter(line);
        if interpreter.is_empty() {
            return Err(Unsupported::NotElf { program }.into());
        }
        program = PathBuf::from(OsString::from_vec(interpreter.to_vec()));
        executable_file(&program)?;
    }
    Err(Unsupported::InterpreterDepth {
        program: path.into(),
    }
    .into())
}

fn interpreter(line: &[u8]) -> &[u8] {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.split(|byte| matches!(byte, b' ' | b'\t'))
        .find(|word| !word.is_empty())
        .unwrap_or_default()
}

fn check_privileges(program: &Path, file: &File) -> Result<(), Unsupported> {
    const SET_ID_BITS: u32 = 0o6000;
    if file
        .metadata()
        .is_ok_and(|metadata| metadata.mode() & SET_ID_BITS != 0)
    {
        return Err(Unsupported::SetId {
            program: program.into(),
        });
    }
    let mut capabilities = [0u8; 64];
    if rustix::fs::fgetxattr(file, "security.capability", &mut capabilities)
        .is_ok_and(|len| len > 0)
    {
        return Err(Unsupported::Capabilities {
            program: program.into(),
        });
    }
    Ok(())
}

const CLASS_AT: usize = 4;
const CLASS_32: u8 = 1;
const MACHINE_AT: usize = 18;
const MACHINE_X86_64: u16 = 62;
const PROGRAM_HEADERS_AT: usize = 32;
const PROGRAM_HEADER_LEN_AT: usize = 54;
const PROGRAM_HEADER_COUNT_AT: usize = 56;
const HEADER_LEN: usize = 64;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// The beginning of a header: kind, flags, place in the file, two addresses, length in the file.
const PROGRAM_HEADER_LEN: usize = 40;
/// The tag of an entry that names a library, and the length of an entry.
const DT_NEEDED: [u8; 8] = 1_u64.to_le_bytes();
const DYNAMIC_ENTRY_LEN: usize = 16;
/// More than the dynamic section of a program has.
const DYNAMIC_LEN_MAX: u64 = 64 * 1024;
/// More than the notes of a program have.
const NOTES_LEN_MAX: u64 = 64 * 1024;

fn check_elf(program: &Path, head: &[u8], file: &File) -> Result<(), Unsupported> {
    let not_elf = || Unsupported::NotElf {
        program: program.into(),
    };
    if !head.starts_with(b"\x7fELF") || head.len() < MACHINE_AT + 2 {
        return Err(not_elf());
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let machine = half(MACHINE_AT);
    if head[CLASS_AT] == CLASS_32 {
        return Err(Unsupported::ThirtyTwoBit {
            program: program.into(),
        });
    }
    if machine != MACHINE_X86_64 {
        return Err(Unsupported::Architecture {
            program: program.into(),
            machine,
        });
    }
    let Some(offset) = head.get(PROGRAM_HEADERS_AT..PROGRAM_HEADERS_AT + 8) else {
        return Err(not_elf());
    };
    if head.len() < HEADER_LEN {
        return Err(not_elf());
    }
    let offset = offset.try_into().map_or(0, u64::from_le_bytes);
    let entry_len = u64::from(half(PROGRAM_HEADER_LEN_AT));
    let (mut is_dynamic, mut is_go, mut has_libraries) = (false, false, false);
    for index in 0..u64::from(half(PROGRAM_HEADER_COUNT_AT)) {
        let at = offset.saturating_add(index * entry_len);
        let mut header = [0; PROGRAM_HEADER_LEN];
        file.read_exact_at(&mut header, at).map_err(|_| not_elf())?;
        let word = |at: usize| {
            let bytes = header
                .get(at..at + 8)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        // The upper half has the flags.
        match word(0) as u32 {
            PT_INTERP => is_dynamic = true,
            PT_DYNAMIC => {
                let mut entries = vec![0; word(32).min(DYNAMIC_LEN_MAX) as usize];
                has_libraries = file.read_exact_at(&mut entries, word(8)).is_ok()
                    && entries
                        .chunks(DYNAMIC_ENTRY_LEN)
                        .any(|it| it.starts_with(&DT_NEEDED));
            }
            PT_NOTE => {
                let mut notes = vec![0; word(32).min(NOTES_LEN_MAX) as usize];
                is_go |= file.read_exact_at(&mut notes, word(8)).is_ok() && has_go_note(&notes);
            }
            _ => {}
        }
    }
    if is_go && (!is_dynamic || !has_libraries) {
        return Err(Unsupported::Go {
            program: program.into(),
        });
    }
    if !is_dynamic {
        return Err(Unsupported::Static {
            program: program.into(),
        });
    }
    Ok(())
}

/// Whether one of these notes is of Go: length of its name, of its content, kind, name, content.
fn has_go_note(mut notes: &[u8]) -> bool {
    const NAME: &[u8] = b"Go\0\0";
    const HEAD_LEN: usize = 12;
    while let Some((head, rest)) = notes.split_at_checked(HEAD_LEN) {
        let number = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            (u32::from_le_bytes(bytes) as usize).next_multiple_of(4)
        };
        if rest.starts_with(NAME) {
            return true;
        }
        notes = rest
            .get(number(0).saturating_add(number(4))..)
            .unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{find, interpreter};
    use crate::error::RecordError;

    #[test]
    fn interpreters() {
        assert_eq!(interpreter(b"/bin/sh\nrest"), b"/bin/sh");
        assert_eq!(interpreter(b"  /usr/bin/env\tperl -w\n"), b"/usr/bin/env");
        assert_eq!(interpreter(b" \n/bin/sh"), b"");
    }

    #[test]
    fn the_search_path_is_followed() {
        assert!(find("sh".as_ref(), Some("/nowhere:/bin".into())).is_ok());
        assert!(matches!(
            find("sh".as_ref(), Some("/nowhere".into())),
            Err(RecordError::NotFound { .. })
        ));
        assert!(matches!(
            find("".as_ref(), None),
            Err(RecordError::NotFound { .. })
        ));
        assert!(matches!(
            find("/etc/passwd".as_ref(), None),
            Err(RecordError::NotExecutable { .. })
        ));
        assert!(matches!(
            find("/etc".as_ref(), None),
            Err(RecordError::NotExecutable { .. })
        ));
    }
}
