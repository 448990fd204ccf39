//! Recordings in both modes against the oracle: the same program, natively, in single steps.

use std::path::{Path, PathBuf};

use crate::common::{Mode, Recorder, native, target};
use crate::oracle::{Observed, Part, observe, recorded};

/// `{pool}` in an argument is a file with this name in the target's folder.
const POOL: &str = "pool";

fn filled(arguments: &[&str], folder: &Path) -> Vec<String> {
    let pool = folder.join(POOL);
    let pool = pool.to_str().expect("text");
    arguments
        .iter()
        .map(|argument| argument.replace("{pool}", pool))
        .collect()
}

/// A fresh folder, with the files that a target expects there.
fn folder_with(files: &[(&str, &Path)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder for pools");
    for (name, content) in files {
        std::fs::copy(content, folder.path().join(name)).expect("a file to begin with");
    }
    folder
}

/// Which part of a run is compared, and its initial files.
struct Comparison<'a> {
    program: PathBuf,
    arguments: &'a [&'a str],
    /// Files that exist before the target runs.
    files: &'a [(&'a str, &'a Path)],
    part: Part,
}

impl Comparison<'_> {
    fn observe(&self) -> Observed {
        let folder = folder_with(self.files);
        let arguments = filled(self.arguments, folder.path());
        observe(&self.program, &arguments, folder.path(), self.part)
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
        let recorded = recorded(&recording.trace(), observed);
        for (at, (recorded, observed)) in recorded.iter().zip(&observed.events).enumerate() {
            assert_eq!(recorded, observed, "event {at} in {mode:?} mode");
        }
        let (recorded, observed) = (recorded.len(), observed.events.len());
        assert_eq!(recorded, observed, "number of events in {mode:?} mode");
    }

    /// Fails unless both modes agree with the oracle; returns the events of the oracle.
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
        part: Part::Whole,
    };
    comparison.run()
}

/// One family of instructions, which must cause this many events. The number is counted in the source, so that an
/// oracle and a recorder with the same blind spot do not pass by agreeing on nothing.
fn check_family(name: &str, expected: usize) {
    let observed = check(target("steps.c", &["-O2"]), &[name, "{pool}"]);
    assert_eq!(observed.events.len(), expected);
}

macro_rules! families {
    ($($name:ident: $expected:expr,)*) => {$(
        #[test]
        fn $name() {
            check_family(stringify!($name), ROUNDS * ($expected));
        }
    )*};
}

/// How often the target executes each family.
const ROUNDS: usize = 3;

// Instructions that store, flush or order; in `compare` and `order` also locked fences.
families! {
    plain: 21,
    addresses: 8 + 2 * 14,
    sse: 20,
    modify: 8 * 8 + 4 * 4 + 4,
    shifts: 2 + 7 * 4 + 6,
    bits: 12,
    conditions: 16,
    x87: 15,
    compare: 20,
    locked: 7 * 8 + 4 * 4 + 10,
}

/// These depend on the features of the processor, and on how the C library uses them.
fn check_group(name: &str) {
    let observed = check(target("steps.c", &["-O2"]), &[name, "{pool}"]);
    assert!(!observed.events.is_empty());
}

#[test]
fn avx() {
    check_group("avx");
}

#[test]
fn masked() {
    check_group("masked");
}

#[test]
fn non_temporal() {
    check_group("non_temporal");
}

#[test]
fn order() {
    check_group("order");
}

#[test]
fn strings() {
    check_group("strings");
}

#[test]
fn functions_of_the_c_library() {
    check_group("library");
}

#[test]
fn a_ledger_as_compilers_make_it() {
    for flags in [
        &["-O3", "-march=native"][..],
        &["-O2", "-no-pie", "-fno-pie"],
    ] {
        check(target("ledger.c", flags), &["{pool}"]);
    }
}

#[test]
fn pools_mapped_in_many_ways() {
    for what in [
        "mapped_twice",
        "parts",
        "mapped_again",
        "pool_and_others",
        "unmapped_in_part",
    ] {
        check(target("mappings.c", &["-O2"]), &[what, "{pool}"]);
    }
    let arguments = ["two_pools", "{pool}", "{pool}.second"];
    check(target("mappings.c", &["-O2"]), &arguments);
}

#[test]
fn copies_and_flushes_of_libpmem() {
    let program = target("persist.c", &["-O2", "-lpmem"]);
    check(program, &["{pool}"]);
}

/// The pool is created first, so that its random identifiers are the same in all runs.
#[test]
fn transactions_of_libpmemobj() {
    let program = target("object_steps.c", &["-O2", "-lpmemobj"]);
    let folder = folder_with(&[]);
    let made = folder.path().join("made");
    let alone = native(&program, &["create", made.to_str().expect("text")]);
    assert!(alone.status.success(), "{alone:?}");
    let comparison = Comparison {
        program,
        arguments: &["use", "{pool}"],
        files: &[(POOL, &made)],
        part: Part::Marked,
    };
    let observed = comparison.run();
    assert!(observed.events.len() > 40, "{}", observed.events.len());
}
