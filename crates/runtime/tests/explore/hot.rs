//! Instructions that access hidden pages often: they are patched, without a visible difference.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use powerfail_protocol::explore::{Choice, flag};

use super::zygote::{Outcome, Table, Zygote, build};

/// A lazy execution with private memory that does not branch: each choice takes the first content.
const FIRST_ONLY: u32 = flag::LAZY | flag::PRIVATE;

fn program(name: &str, optimisation: &str) -> std::path::PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explore/hot.c");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = Command::new("gcc")
        .args([optimisation, "-g", "-Wall", "-Werror", "-o"])
        .args([&built, &path])
        .status()
        .unwrap();
    assert!(status.success());
    built
}

fn hot() -> &'static Path {
    static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("hot", &[]))
}

/// The second page has an open line at its end, in 2 versions.
fn table() -> Table {
    Table::default().line(8192 - 64, &[&[(0, 1)], &[]])
}

/// A recovery at its snapshot.
fn start(table: Table, program: &Path, mode: &str) -> (Zygote, i32) {
    let mut zygote = Zygote::new(table);
    zygote.prepare();
    let pool = zygote.pool.clone();
    zygote.start(Command::new(program).arg(mode).arg(pool));
    let snapshot = zygote.snapshot();
    (zygote, snapshot)
}

/// One execution, and how often it was stopped.
fn run(zygote: &mut Zygote, snapshot: i32, flags: u32) -> (Outcome, u64) {
    zygote.prepare();
    zygote.begin(flags, &[]);
    let before = zygote.control().traps.load(Ordering::Relaxed);
    let mut outcomes = zygote.run(snapshot, |_| ()).unwrap();
    assert_eq!(outcomes.len(), 1);
    let traps = zygote.control().traps.load(Ordering::Relaxed) - before;
    (outcomes.remove(0), traps)
}

/// The output of the program without powerfail.
fn native(program: &Path, mode: &str) -> String {
    let zygote = Zygote::new(table());
    zygote.prepare();
    let output = Command::new(program)
        .arg(mode)
        .arg(&zygote.pool)
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// An execution prints the same as the program without powerfail, whether the snapshot has patched it or not. Returns
/// how often the last one was stopped.
fn same(program: &Path, mode: &str, flags: u32) -> u64 {
    let expected = native(program, mode);
    let (mut zygote, snapshot) = start(table(), program, mode);
    let mut last = 0;
    for _ in 0..3 {
        let (outcome, traps) = run(&mut zygote, snapshot, flags);
        assert_eq!((outcome.output.as_str(), outcome.end), (&*expected, Ok(0)));
        last = traps;
    }
    zygote.stop();
    last
}

#[test]
fn loops_come_out_the_same() {
    for (name, optimisation) in [("hot-0", "-O0"), ("hot-2", "-O2"), ("hot-3", "-O3")] {
        let program = program(name, optimisation);
        for flags in [FIRST_ONLY, flag::LAZY] {
            // Of well over 200 000 accesses.
            let traps = same(&program, "loops", flags);
            assert!(traps < 200, "{name} was stopped {traps} times");
        }
    }
}

#[test]
fn two_mappings_see_each_other() {
    same(hot(), "twice", FIRST_ONLY);
}

#[test]
fn faults_are_those_of_the_instruction() {
    for mode in ["handled", "read-only"] {
        for flags in [FIRST_ONLY, flag::LAZY] {
            same(hot(), mode, flags);
        }
    }
}

#[test]
fn memory_in_the_place_of_a_pool_is_itself() {
    for flags in [FIRST_ONLY, flag::LAZY] {
        same(hot(), "replaced", flags);
    }
}

#[test]
fn a_patched_load_still_chooses() {
    let (mut zygote, snapshot) = start(table(), hot(), "later");
    let mut choices: Vec<Choice> = Vec::new();
    for round in 0..3 {
        let (outcome, traps) = run(&mut zygote, snapshot, FIRST_ONLY);
        assert_eq!(outcome.output, "0 1\n");
        // The first execution patches on the way; the second one stops only for the choice.
        assert!(round == 0 || traps == 1, "stopped {traps} times");
        choices.extend(zygote.choices());
    }
    assert_eq!(choices.len(), 3);
    // The instruction and its callers are unchanged.
    assert_eq!(choices[0].frames, choices[1].frames);
    assert_eq!(choices[0].frames, choices[2].frames);
    zygote.begin(flag::LAZY | flag::FORK | flag::PRIVATE, &[]);
    let outcomes = zygote.run(snapshot, |_| ()).unwrap();
    let outputs: Vec<&str> = outcomes.iter().map(|it| it.output.as_str()).collect();
    assert_eq!(outputs, ["0 1\n", "0 0\n"]);
    zygote.stop();
}

#[test]
fn a_patched_load_notes_what_it_reads() {
    let table = Table::default().watch(8192, u64::MAX);
    let lines = 1 | 1 << 5 | 1 << 10 | 1 << 19 | 1 << 20;
    let (mut zygote, snapshot) = start(table, hot(), "reads");
    for round in 0..3 {
        zygote.forget_reads(0);
        let (outcome, traps) = run(&mut zygote, snapshot, FIRST_ONLY);
        assert_eq!(outcome.output, "0\n");
        assert_eq!(zygote.read_lines(0), lines);
        // Only accesses that cross two lines are left.
        assert!(round == 0 || traps <= 1, "stopped {traps} times");
    }
    zygote.stop();
}

/// The log of an execution after others that did not log equals the log of a first execution.
#[test]
fn a_log_has_the_stores_of_patched_instructions() {
    let logged = FIRST_ONLY | flag::LOG;
    let (mut zygote, snapshot) = start(table(), hot(), "stores");
    run(&mut zygote, snapshot, logged);
    let expected = zygote.log();
    assert_eq!(expected.len(), 55);
    zygote.stop();
    let (mut zygote, snapshot) = start(table(), hot(), "stores");
    for flags in [FIRST_ONLY, FIRST_ONLY, logged, FIRST_ONLY, logged] {
        let (outcome, _) = run(&mut zygote, snapshot, flags);
        assert_eq!(outcome.output, "7\n");
        if flags == logged {
            assert_eq!(zygote.log(), expected);
        }
    }
    zygote.stop();
}
