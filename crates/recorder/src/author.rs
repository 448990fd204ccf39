//! Who recorded a trace. A trace names the command that it is a recording of, and that is run again as recovery if the user names no
//! other. So what a trace says about itself is sealed with the key of the user.
//!
//! The seal covers the command, its working directory and all notes, not the events: those are data. It fits wherever the user has
//! the same key, also for a copy of the trace.

use std::os::unix::ffi::OsStrExt;

use powerfail_files::seal::{self, Origin};
use powerfail_trace::{Meta, SEAL_NOTE};

/// Seals what a trace says about itself. Without a key that can be kept there is no seal, and [`trace_origin`] says so.
pub(crate) fn seal(meta: &mut Meta) {
    if let Ok(seal) = seal::of_parts(&parts(meta)) {
        meta.notes.push((SEAL_NOTE.to_owned(), seal));
    }
}

/// Whether this user has recorded a trace.
pub fn trace_origin(meta: &Meta) -> Origin {
    seal::origin_of_parts(meta.note(SEAL_NOTE), &parts(meta))
}

/// What decides which command runs, and how. A mark before each word keeps the words apart from what follows them.
fn parts(meta: &Meta) -> Vec<&[u8]> {
    let (word_follows, end): (&[u8], &[u8]) = (b"word", b"end");
    let mut parts = Vec::new();
    for word in &meta.command {
        parts.extend([word_follows, word.as_bytes()]);
    }
    parts.extend([end, meta.working_directory.as_os_str().as_bytes()]);
    for (name, value) in &meta.notes {
        if name != SEAL_NOTE {
            parts.extend([name.as_bytes(), value.as_bytes()]);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta {
            powerfail_version: "1".into(),
            command: vec!["store".into(), "{pool}".into()],
            working_directory: "/work".into(),
            started_unix_ms: 7,
            notes: vec![("pool".into(), "/pool".into())],
        }
    }

    #[test]
    fn everything_that_decides_what_runs_is_sealed() {
        let of = |change: fn(&mut Meta)| {
            let mut meta = meta();
            change(&mut meta);
            parts(&meta).concat()
        };
        let sealed = of(|_| ());
        let changes: [fn(&mut Meta); 5] = [
            |it| it.command[0] = "evil".into(),
            |it| it.command.push("--evil".into()),
            |it| it.working_directory = "/evil".into(),
            |it| it.notes[0].1 = "/etc".into(),
            |it| it.notes.push(("derandomise".into(), "yes".into())),
        ];
        for change in changes {
            assert_ne!(of(change), sealed);
        }
        // When it was recorded does not matter, and the seal does not cover itself.
        assert_eq!(of(|it| it.started_unix_ms = 8), sealed);
        assert_eq!(
            of(|it| it.notes.push((SEAL_NOTE.into(), "x".into()))),
            sealed
        );
    }

    #[test]
    fn a_trace_without_a_seal_is_foreign() {
        assert!(matches!(trace_origin(&meta()), Origin::Foreign(_)));
    }
}
