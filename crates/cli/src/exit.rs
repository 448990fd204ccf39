//! The exit codes, in one place, and what is said on the way out.
//!
//! What is judged and found wanting is a finding, also by `trace check`: a trace that is damaged,
//! cut off, or contradicts its final image. What cannot be judged is a set-up error: a file that is
//! missing, unreadable, empty, no trace at all or of a newer version; a litmus file that is
//! malformed or beyond the limits of the explorer. The other `trace` commands do not judge, so to
//! them damage is a set-up error as well.
//!
//! A reader that closes our standard output early changes nothing: see `output.rs`.

use std::io::{self, Write};
use std::process::ExitCode;

use powerfail_recorder::limits;

/// How a run of powerfail ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well.
    Clean = 0,
    /// Something was found.
    Findings = 1,
    /// The command line, a file or the environment is wrong. Clap uses the same code.
    Setup = 2,
    /// powerfail itself is wrong.
    Internal = 3,
    /// The target is something that powerfail cannot record.
    Unsupported = 4,
    /// Nothing was found because nothing was checked.
    NotChecked = 5,
}

impl Exit {
    const ALL: [Self; 6] = [
        Self::Clean,
        Self::Findings,
        Self::Setup,
        Self::Internal,
        Self::Unsupported,
        Self::NotChecked,
    ];

    const fn meaning(self) -> &'static str {
        match self {
            Self::Clean => "clean: nothing was found",
            Self::Findings => "findings: a bug, a litmus test that fails, a damaged trace",
            Self::Setup => {
                "usage or set-up error: wrong arguments, a file that is missing or malformed"
            }
            Self::Internal => "internal error: a bug in powerfail",
            Self::Unsupported => "the target is not supported",
            Self::NotChecked => {
                "nothing was checked: no pool, no store, no failure point, a recovery that opens no pool or cannot fail, or one \
                 that may need a file which crash images lack"
            }
        }
    }
}

/// The list of exit codes for `--help` and the man page.
pub(crate) fn exit_codes() -> String {
    let codes = Exit::ALL.map(|exit| format!("\n  {}  {}", exit as u8, exit.meaning()));
    format!("Exit codes:{}", codes.concat())
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Says in one sentence what went wrong, and gives the exit code for it.
pub(crate) fn explain(error: &anyhow::Error) -> Exit {
    let sentence = format!("{error:#}");
    let reason = limit_of(&sentence).unwrap_or_default();
    complain(&format!("{sentence}{reason}"));
    Exit::Setup
}

/// The limit of this process that an error comes from, if it is one. However the error came here, its sentence has that of
/// the system.
fn limit_of(sentence: &str) -> Option<String> {
    let is_of = |code: i32| sentence.contains(&io::Error::from_raw_os_error(code).to_string());
    let (limit, what, option) = if is_of(libc::EFBIG) {
        (limits::file_size_limit()?, "the size of files", 'f')
    } else if is_of(libc::ENOMEM) {
        (limits::address_space_limit()?, "the address space", 'v')
    } else {
        return None;
    };
    let limit = limit >> 10;
    Some(format!(
        "; {what} is limited to {limit} KiB (ulimit -{option})"
    ))
}

/// One line on standard error.
pub(crate) fn complain(message: &str) {
    let style = anstyle_error();
    // If standard error is closed the message cannot be shown.
    let _ = writeln!(anstream::stderr(), "{style}error{style:#}: {message}");
}

fn anstyle_error() -> clap::builder::styling::Style {
    clap::builder::styling::AnsiColor::Red.on_default().bold()
}

/// A panic is a bug of ours; it says so, and where.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        complain(&panic_sentence(&panic.to_string()));
    }));
}

/// A panic in one line, whatever its message is.
fn panic_sentence(panic: &str) -> String {
    let panic = panic.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(
        "internal error: {panic}; this is a bug in powerfail {}, please report it",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line() {
        let sentence = panic_sentence("panicked at src/a.rs:1:2:\nleft: 1\n right: 2");
        assert!(
            sentence.starts_with("internal error: panicked at src/a.rs:1:2: left: 1 right: 2; ")
        );
        assert_eq!(sentence.lines().count(), 1);
    }
}
