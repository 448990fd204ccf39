//! The test binary as powerfail starts it: as workload or as recovery of one check.
//!
//! Its last two arguments are the part that it plays and the path of the data. To a test harness they are two more names of
//! tests, which do not exist.

use std::ffi::OsString;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use crate::data::Data;

const PREFIX: &str = "powerfail-test:";
/// The exit code of a process that panics.
const PANICKED: i32 = 101;

/// What the process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Workload,
    Recovery,
}

/// What the process is to do, and with which data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) part: Part,
    /// The check in its test.
    pub(crate) number: u64,
    path: PathBuf,
}

/// The argument that stands for a part.
pub(crate) fn argument(part: Part, number: u64) -> String {
    let part = match part {
        Part::Workload => "workload",
        Part::Recovery => "recovery",
    };
    format!("{PREFIX}{part}:{number}")
}

/// What this process is to do, if powerfail has started it.
pub(crate) fn role() -> Option<Role> {
    role_of(std::env::args_os())
}

fn role_of(arguments: impl Iterator<Item = OsString>) -> Option<Role> {
    let mut arguments =
        arguments.skip_while(|it| !it.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    let text = arguments.next()?.into_string().ok()?;
    let (part, number) = text.strip_prefix(PREFIX)?.split_once(':')?;
    Some(Role {
        part: match part {
            "workload" => Part::Workload,
            "recovery" => Part::Recovery,
            _ => return None,
        },
        number: number.parse().ok()?,
        path: arguments.next()?.into(),
    })
}

/// Plays the part and ends the process: the rest of the test, and of the harness, is not part of it.
pub(crate) fn play<D: Data>(
    role: &Role,
    len_bytes: u64,
    closure: impl FnOnce(&mut D) -> Option<String>,
) -> ! {
    let mut data = match D::open(&role.path, len_bytes) {
        Ok(data) => data,
        Err(error) => end(2, &format!("{}: {error}", role.path.display())),
    };
    // The message of a panic is written by its hook.
    match catch_unwind(AssertUnwindSafe(|| closure(&mut data))) {
        Ok(None) => end(0, ""),
        Ok(Some(error)) => end(1, &format!("Error: {error}")),
        Err(_) => end(PANICKED, ""),
    }
}

fn end(code: i32, message: &str) -> ! {
    if !message.is_empty() {
        let _ = writeln!(std::io::stderr(), "{message}");
    }
    std::process::exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_from_the_arguments() {
        let words = |words: &[&str]| {
            role_of(
                words
                    .iter()
                    .map(OsString::from)
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
        };
        let role = argument(Part::Recovery, 3);
        let expected = Role {
            part: Part::Recovery,
            number: 3,
            path: "/a/pool".into(),
        };
        assert_eq!(
            words(&["test", "name", "--exact", &role, "/a/pool"]),
            Some(expected)
        );
        assert_eq!(words(&["test", "name", "--exact"]), None);
        assert_eq!(words(&["test", &role]), None);
        assert_eq!(words(&["test", "powerfail-test:other:0", "/a"]), None);
    }
}
