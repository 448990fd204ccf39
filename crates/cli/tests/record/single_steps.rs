//! Recordings in both modes against the oracle: the same program, natively, in single steps.

use std::path::{Path, PathBuf};

use crate::common::{Mode, Recorder, target};
use crate::oracle::{Observed, Seen, observe, recorded};

/// `{pool}` in an argument is a file of this name in a folder of its own.
const POOL: &str = "pool";

fn filled(arguments: &[&str], folder: &Path) -> Vec<String> {
    let pool = folder.join(POOL);
    let pool = pool.to_str().expect("text");
    arguments
        .iter()
        .map(|argument| argument.replace("{pool}", pool))
        .collect()
}

/// A fresh folder, with the files that a target wants to find there.
fn folder_with(files: &[(&str, &Path)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder for pools");
    for (name, content) in files {
        std::fs::copy(content, folder.path().join(name)).expect("a file to begin with");
    }
    folder
}

/// What is compared of a run, and what it begins with.
struct Comparison<'a> {
    program: PathBuf,
    arguments: &'a [&'a str],
    /// Files that are there before the target runs.
    files: &'a [(&'a str, &'a Path)],
    /// Hides what must differ between two runs, of whatever kind.
    hide: fn(&mut Seen),
}

impl Comparison<'_> {
    fn observe(&self) -> Observed {
        let folder = folder_with(self.files);
        let arguments = filled(self.arguments, folder.path());
        let mut observed = observe(&self.program, &arguments, folder.path());
        observed.events.iter_mut().for_each(self.hide);
        observed
    }

    fn compare(&self, mode: Mode, observed: &Observed) {
        let folder = folder_with(self.files);
        let arguments = filled(self.arguments, folder.path());
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let recording = Recorder::new(&self.program, &arguments)
            .mode(mode)
            .option("--pool", folder.path().join("*"))
            .run();
        recording.assert_exit(0);
        let mut recorded = recorded(&recording.trace(), observed);
        recorded.iter_mut().for_each(self.hide);
        for (at, (recorded, observed)) in recorded.iter().zip(&observed.events).enumerate() {
            assert_eq!(recorded, observed, "event {at} in {mode:?} mode");
        }
        let (recorded, observed) = (recorded.len(), observed.events.len());
        assert_eq!(recorded, observed, "number of events in {mode:?} mode");
    }

    /// Fails unless both modes say what the oracle says; gives the latter.
    fn run(&self) -> Observed {
        let observed = self.observe();
        for mode in Mode::BOTH {
            self.compare(mode, &observed);
        }
        observed
    }
}

fn check(program: PathBuf, arguments: &[&str]) -> Observed {
    let comparison = Comparison {
        program,
        arguments,
        files: &[],
        hide: |_| (),
    };
    comparison.run()
}

/// One family of instructions, of which there must be at least so many events.
fn check_family(name: &str, events_min: usize) {
    let observed = check(target("steps.c", &["-O2"]), &[name, "{pool}"]);
    let count = observed.events.len();
    eprintln!("{name}: {count} events, {} steps", observed.steps);
    assert!(count >= events_min, "only {count} events");
}

macro_rules! families {
    ($($name:ident: $events_min:literal,)*) => {$(
        #[test]
        fn $name() {
            check_family(stringify!($name), $events_min);
        }
    )*};
}

families! {
    plain: 10,
    addresses: 10,
    sse: 10,
    avx: 10,
    masked: 10,
    non_temporal: 10,
    strings: 10,
    modify: 10,
    shifts: 10,
    bits: 10,
    conditions: 10,
    x87: 10,
    compare: 10,
    locked: 10,
    order: 10,
    library: 10,
}
