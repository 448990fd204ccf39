//! Programs with planted bugs: each bug is found at its line, and nothing is found in the repaired twin.
//!
//! `tests/README.md` describes the programs and their comments.

mod build;
mod compare;
mod figures;
mod program;
mod run;
mod truth;

use std::collections::{BTreeMap, BTreeSet};

use powerfail_finding::{Class, Code};
use program::{Expectation, Kind, Program};

/// The minimum number of programs for each code.
const PROGRAMS_PER_CODE: usize = 5;

/// The classes of the bugs in a folder that is not named after their class.
fn classes(folder: &str) -> Option<&'static [Class]> {
    match folder {
        "files" => Some(&[
            Class::Durability,
            Class::Ordering,
            Class::Atomicity,
            Class::RedundantSync,
            Class::CrossFailureRace,
        ]),
        "races" => Some(&[Class::CrossFailureRace]),
        "semantic" => Some(&[Class::CrossFailureSemantic]),
        // A transaction bug adds too little or too much.
        "transactions" => Some(&[Class::Atomicity, Class::UnneededAdd]),
        _ => None,
    }
}

/// Checks all programs of a class in a language, and their twins. Reports all problems at once.
fn check_group(class: &str, language: &str) {
    let programs: Vec<_> = [Kind::Fail, Kind::Pass]
        .into_iter()
        .flat_map(program::all)
        .filter(|program| program.class == class && program.language == language)
        .collect();
    assert!(!programs.is_empty(), "no {language} programs in {class}");
    let complaints: Vec<_> = programs
        .iter()
        .flat_map(|program| {
            let attempt = run::check(program, &build::binary(program));
            figures::keep(program, &attempt);
            compare::complaints(program, &attempt)
                .into_iter()
                .map(move |complaint| format!("{}: {complaint}", program.name()))
        })
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

macro_rules! groups {
    ($($test:ident: $class:literal, $language:literal;)*) => {
        /// Class and language of all groups.
        const GROUPS: &[(&str, &str)] = &[$(($class, $language)),*];

        $(#[test]
        fn $test() {
            check_group($class, $language);
        })*
    };
}

groups! {
    atomicity_in_c: "atomicity", "c";
    atomicity_in_cpp: "atomicity", "cc";
    atomicity_in_rust: "atomicity", "rs";
    dirty_overwrite_in_c: "dirty-overwrite", "c";
    dirty_overwrite_in_cpp: "dirty-overwrite", "cc";
    dirty_overwrite_in_rust: "dirty-overwrite", "rs";
    durability_in_c: "durability", "c";
    durability_in_cpp: "durability", "cc";
    durability_in_rust: "durability", "rs";
    durability_in_python: "durability", "py";
    files_in_c: "files", "c";
    files_in_cpp: "files", "cc";
    files_in_rust: "files", "rs";
    files_in_python: "files", "py";
    late_flush_in_c: "late-flush", "c";
    late_flush_in_cpp: "late-flush", "cc";
    late_flush_in_rust: "late-flush", "rs";
    neighbour_flush_in_c: "neighbour-flush", "c";
    neighbour_flush_in_cpp: "neighbour-flush", "cc";
    neighbour_flush_in_rust: "neighbour-flush", "rs";
    ordering_in_c: "ordering", "c";
    ordering_in_cpp: "ordering", "cc";
    ordering_in_rust: "ordering", "rs";
    races_in_c: "races", "c";
    races_in_cpp: "races", "cc";
    races_in_rust: "races", "rs";
    recovery_crash_in_c: "recovery-crash", "c";
    recovery_crash_in_cpp: "recovery-crash", "cc";
    recovery_crash_in_rust: "recovery-crash", "rs";
    recovery_hang_in_c: "recovery-hang", "c";
    recovery_hang_in_cpp: "recovery-hang", "cc";
    recovery_hang_in_rust: "recovery-hang", "rs";
    redundant_fence_in_c: "redundant-fence", "c";
    redundant_fence_in_cpp: "redundant-fence", "cc";
    redundant_fence_in_rust: "redundant-fence", "rs";
    redundant_flush_in_c: "redundant-flush", "c";
    redundant_flush_in_cpp: "redundant-flush", "cc";
    redundant_flush_in_rust: "redundant-flush", "rs";
    refused_in_c: "refused", "c";
    refused_in_cpp: "refused", "cc";
    refused_in_rust: "refused", "rs";
    robustness_in_c: "robustness", "c";
    robustness_in_cpp: "robustness", "cc";
    semantic_in_c: "semantic", "c";
    semantic_in_cpp: "semantic", "cc";
    shared_flush_in_c: "shared-flush", "c";
    shared_flush_in_cpp: "shared-flush", "cc";
    shared_flush_in_rust: "shared-flush", "rs";
    transactions_in_c: "transactions", "c";
    transient_data_in_c: "transient-data", "c";
    transient_data_in_cpp: "transient-data", "cc";
    transient_data_in_rust: "transient-data", "rs";
    uninitialised_read_in_c: "uninitialised-read", "c";
    unordered_flushes_in_c: "unordered-flushes", "c";
    unordered_flushes_in_cpp: "unordered-flushes", "cc";
    unordered_flushes_in_rust: "unordered-flushes", "rs";
    volatile_flush_in_c: "volatile-flush", "c";
    volatile_flush_in_cpp: "volatile-flush", "cc";
    volatile_flush_in_rust: "volatile-flush", "rs";
}

#[test]
fn every_program_belongs_to_a_group() {
    for kind in [Kind::Fail, Kind::Pass] {
        for program in program::all(kind) {
            let group = (program.class.as_str(), program.language.as_str());
            assert!(GROUPS.contains(&group), "{}: no test", program.name());
        }
    }
}

#[test]
fn every_program_has_a_twin() {
    let names = |kind| -> BTreeSet<_> {
        let programs = program::all(kind);
        programs.iter().map(Program::name).collect()
    };
    assert_eq!(names(Kind::Fail), names(Kind::Pass));
}

#[test]
fn a_program_expects_findings_of_its_class_or_refusal_and_a_twin_nothing() {
    for program in program::all(Kind::Fail) {
        assert_ne!(
            program.expectations.is_empty(),
            !program.is_refused(),
            "{}: expects findings, or else is refused",
            program.name()
        );
        let mut planted = program
            .expectations
            .iter()
            .filter(|expectation| !expectation.is_unconfirmed());
        let is_of_class = |Expectation { code, .. }: &Expectation| {
            classes(&program.class).map_or_else(
                || code.class().as_str() == program.class,
                |classes| classes.contains(&code.class()),
            )
        };
        // A bug may have several classes: one of them is that of its folder.
        assert!(
            program.is_refused() || planted.any(is_of_class),
            "{}",
            program.name()
        );
    }
    for program in program::all(Kind::Pass) {
        // A warning that no run confirms is not a bug: the twin declares it, so that it is documented.
        assert!(
            program.expectations.iter().all(Expectation::is_unconfirmed),
            "{}",
            program.name()
        );
        assert!(program.allowances.is_empty(), "{}", program.name());
        assert!(!program.is_refused(), "{}", program.name());
    }
}

#[test]
fn every_code_has_its_programs() {
    let mut programs_by_code = BTreeMap::<Code, BTreeSet<String>>::new();
    for program in program::all(Kind::Fail) {
        let confirmed = program.expectations.iter();
        for expectation in confirmed.filter(|it| !it.is_unconfirmed()) {
            let programs = programs_by_code.entry(expectation.code).or_default();
            programs.insert(program.name());
        }
    }
    // These need no power failure but an input that `powerfail fuzz` must find: the tests of the campaign plant them.
    let fuzzed = [Code::ProgramCrashes, Code::ProgramHangs];
    // Those of ordinary files need no pool: their programs are lists of operations in the tests of the lint.
    let here = |code: &&Code| !fuzzed.contains(code) && !code.is_of_files();
    for code in Code::ALL.iter().filter(here) {
        let count = programs_by_code.get(code).map_or(0, BTreeSet::len);
        assert!(count >= PROGRAMS_PER_CODE, "{code} has {count} programs");
    }
}
