//! `powerfail crash --strategy eager`: bugs that only a lost line shows, and how they are reported.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use powerfail_finding::{Finding, Report, Role};
use powerfail_test_support::events::wait_for_file;

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER, Run, SETUP};

/// A recorded run of the program with one of its bugs.
fn recorded(bug: u32) -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "lost.c", &[&format!("-DBUG={bug}")]);
    folder.record();
    folder
}

fn crash(folder: &Folder, options: &[&str]) -> Run {
    let mut arguments = vec!["crash", "run.trace", "--format", "json"];
    arguments.extend(["--only", CORRECTNESS]);
    arguments.extend(options);
    if !options.contains(&"--recover") {
        arguments.extend(["--recover", RECOVER]);
    }
    folder.powerfail(&arguments)
}

/// Only correctness: the missing flush of a planted bug makes other flushes look redundant.
const CORRECTNESS: &str = "durability,ordering,atomicity,recovery-crash,recovery-hang";

fn eager(folder: &Folder, options: &[&str]) -> Run {
    let mut arguments = vec!["--strategy", "eager"];
    arguments.extend(options);
    crash(folder, &arguments)
}

/// The line of the program with this comment.
fn line_with(comment: &str) -> u32 {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check/programs/lost.c");
    let text = fs::read_to_string(source).expect("a source");
    let comment = format!("// {comment}");
    let found = text
        .lines()
        .zip(1..)
        .find(|(line, _)| line.ends_with(&comment));
    found.expect("the comment").1
}

fn line_of(finding: &Finding, role: Role) -> Option<u32> {
    let place = finding.places.iter().find(|place| place.role == role);
    place
        .unwrap_or_else(|| panic!("no {role:?}: {finding:?}"))
        .line
}

#[test]
fn what_no_prefix_shows_is_found_at_its_line_and_the_repaired_program_is_silent() {
    for (bug, code, role, words) in [
        (
            1,
            "PF0101",
            Role::Survivor,
            "flush the data stored at lost.c:",
        ),
        (
            2,
            "PF0201",
            Role::Publish,
            "fence after the flush at lost.c:",
        ),
        (
            3,
            "PF0201",
            Role::Publish,
            "flush the data stored at lost.c:",
        ),
    ] {
        let folder = recorded(bug);
        let prefix = crash(&folder, &[]);
        assert_eq!(prefix.code, CLEAN, "bug {bug}: {}", prefix.stdout);
        let run = eager(&folder, &[]).ends_with(FINDINGS);
        assert_eq!(run.codes(), [code], "{}", run.stdout);
        let finding = run.finding(code);
        assert_eq!(
            line_of(&finding, role),
            Some(line_with("the count")),
            "{finding:?}"
        );
        // Without the second store the record is incomplete, so the loss of the first is not needed.
        let store = line_of(&finding, Role::Store);
        assert_eq!(store, Some(line_with("the second store")), "{finding:?}");
        let suggestion = finding.suggestion.expect("what to do");
        assert!(finding.fix.expect("as data").verified);
        assert!(suggestion.contains(words), "{suggestion}");
        let lost = finding.evidence.expect("a crash").failure.lost_lines;
        assert_eq!((lost.len(), lost[0].version), (1, 1), "the fewest stores");
    }
    let repaired = recorded(0);
    let run = eager(&repaired, &[]).ends_with(CLEAN);
    let totals = run.report().totals.eager.expect("numbers");
    assert_eq!(totals.exhaustive_segments, totals.segments, "{totals:?}");
    assert_eq!((totals.failed, totals.groups), (0, totals.groups_covered));
}

#[test]
fn two_stores_that_belong_together_are_one_bug_whichever_is_lost() {
    let folder = recorded(4);
    crash(&folder, &[]).ends_with(CLEAN);
    let run = eager(&folder, &[]).ends_with(FINDINGS);
    assert_eq!(run.codes(), ["PF0301"], "{}", run.stdout);
    let finding = run.finding("PF0301");
    let mut lines = [Role::Store, Role::Survivor].map(|role| line_of(&finding, role));
    lines.sort_unstable();
    let expected = ["the count", "the copy"].map(|comment| Some(line_with(comment)));
    assert_eq!(lines, expected);
    let lost = finding.evidence.expect("a crash").failure.lost_lines;
    assert!(
        lost.is_empty(),
        "nothing needs to be lost between the two: {lost:?}"
    );
}

#[test]
fn a_finding_is_shown_again() {
    let folder = recorded(2);
    let run = eager(&folder, &["--out", "out"]).ends_with(FINDINGS);
    let id = run.finding("PF0201").id;
    let again = folder.powerfail(&["replay", &id, "--out", "out"]);
    assert_eq!(again.code, FINDINGS, "{again:?}");
    assert!(again.stdout.contains("the same again"), "{}", again.stdout);
}

#[test]
fn the_table_comes_first_and_its_numbers_are_in_the_report() {
    let folder = recorded(2);
    let run = eager(&folder, &[]).ends_with(FINDINGS);
    let totals = run.report().totals.eager.expect("numbers");
    // Two stores of a record and the count, four times; two flushes and a fence each time.
    assert_eq!((totals.writes, totals.flushes, totals.fences), (12, 8, 4));
    // A segment for each fence: three contents of the record, two of the count.
    assert_eq!((totals.segments, totals.combinations.as_str()), (4, "24"));
    assert_eq!((totals.chosen, totals.exhaustive_combinations), (24, 24));
    // The next segment without its own stores has the same image as this one with all of its stores.
    assert_eq!((totals.run, totals.equal_images), (24 - 3, 3));
    let table: Vec<Vec<&str>> = run
        .stderr
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for row in [
        ["writes", "12"],
        ["flushes", "8"],
        ["fences", "4"],
        ["combinations", "24"],
    ] {
        assert!(
            table.iter().any(|line| line.starts_with(&row)),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn snapshots_make_no_difference() {
    let folder = recorded(2);
    let with = eager(&folder, &[]).ends_with(FINDINGS).report();
    let without = eager(&folder, &["--no-snapshot"])
        .ends_with(FINDINGS)
        .report();
    assert_eq!(with.findings, without.findings);
    assert_eq!(with.totals, without.totals);
    // If snapshots do not work, a note says why.
    assert_eq!(without.notes, [""; 0]);
}

/// If the process from which recoveries are forked dies, its states are tried again without it.
#[test]
fn a_snapshot_that_dies_loses_no_state() {
    let folder = recorded(2);
    let expected = eager(&folder, &["--jobs", "1"])
        .ends_with(FINDINGS)
        .report();
    let options = ["--jobs", "1", "--recover", "./bug {pool} kill-parent"];
    let run = eager(&folder, &options).ends_with(FINDINGS);
    let report = run.report();
    let notes = report.notes.join("\n");
    assert!(notes.contains("ended during a run"), "{notes}");
    let failed = |report: &Report| report.totals.eager.as_ref().map(|it| (it.run, it.failed));
    assert_eq!(failed(&report), failed(&expected));
    assert_eq!(run.codes(), ["PF0201"], "{}", run.stdout);
}

#[test]
fn samples_budgets_and_segments_leave_out_and_say_so() {
    let folder = recorded(1);
    let numbers = |run: &Run| run.report().totals.eager.expect("numbers");
    let all = numbers(&eager(&folder, &[]));
    let sample = ["--threshold", "2", "--sample", "9", "--seed", "7"];
    let run = eager(&folder, &sample);
    let some = numbers(&run);
    assert!(some.run < all.run, "{some:?}");
    assert!(some.exhaustive_segments < some.segments, "{some:?}");
    let has_note = |run: &Run, words: &str| {
        let notes = run.report().notes;
        assert!(notes.iter().any(|it| it.contains(words)), "{notes:?}");
    };
    has_note(&run, "sampled");
    let again = eager(&folder, &sample).stdout;
    assert_eq!(again, run.stdout, "the same seed, the same report");
    let part = numbers(&eager(&folder, &["--segments", "1..3"]));
    assert_eq!(part.segments, 2);
    let run = eager(&folder, &["--budget", "1ms"]);
    let budget = numbers(&run);
    assert!(budget.run < all.run, "{budget:?}");
    assert!(budget.groups_covered < budget.groups, "{budget:?}");
    assert!(budget.exhaustive_segments < budget.segments, "{budget:?}");
    assert!(budget.exhaustive_combinations <= budget.run, "{budget:?}");
    has_note(&run, "budget");
    // The two stores of a record count as one.
    let joined = numbers(&eager(&folder, &["--coalesce"]));
    assert!(joined.run < all.run, "{joined:?}");
}

#[test]
fn nonsense_is_refused() {
    let folder = recorded(0);
    let refused = |options: &[&str], words: &[&str]| {
        let run = crash(&folder, options);
        run.is_refused_with(SETUP, words);
    };
    let eager = ["--strategy", "eager"];
    let with = |options: [&'static str; 2]| [eager, options].concat();
    refused(
        &with(["--segments", "5..400"]),
        &["no segment 399", "--segments"],
    );
    refused(&with(["--segments", "99.."]), &["no segment 99"]);
    refused(
        &["--threshold", "9"],
        &["--threshold needs --strategy eager"],
    );
    refused(&["--coalesce"], &["--coalesce needs --strategy eager"]);
    for strategy in ["eager", "prefix"] {
        for flag in [
            &["--depth", "2"][..],
            &["--max-executions", "3"],
            &["--exhaustive"],
            &["--no-fork"],
        ] {
            let options = [&["--strategy", strategy][..], flag].concat();
            let words = format!("{} needs --strategy lazy", flag[0]);
            refused(&options, &[&words]);
        }
    }
    let both = [
        "--strategy",
        "lazy",
        "--exhaustive",
        "--max-executions",
        "3",
    ];
    let run = crash(&folder, &both);
    assert_eq!(run.code, SETUP, "{run:?}");
    assert!(run.stderr.contains("--max-executions"), "{}", run.stderr);
    for slip in [
        ["--threshold", "0"],
        ["--sample", "0"],
        ["--segments", "3..3"],
        ["--segments", "x"],
    ] {
        let run = crash(&folder, &with(slip));
        assert_eq!(run.code, SETUP, "{slip:?}: {run:?}");
        assert!(run.stderr.contains(slip[0]), "{slip:?}: {}", run.stderr);
    }
}

#[test]
fn the_configuration_file_chooses_it_too() {
    let folder = recorded(2);
    folder.write(
        "powerfail.toml",
        "[check]\nstrategy = \"eager\"\nthreshold = 4\nsample = 5\n",
    );
    let report = crash(&folder, &[]).report();
    let totals = report.totals.eager.expect("numbers");
    assert_eq!((totals.threshold, totals.sample), (4, 5));
    assert!(
        crash(&folder, &["--strategy", "prefix"])
            .report()
            .totals
            .eager
            .is_none()
    );
}

/// Waits in the first recovery after a failed one: by then powerfail knows about the failure. An empty pool, with which
/// recovery itself is tested, does not count.
const WAITING: &str = "sh -c 'cmp -s -n 4096 \"$0\" /dev/zero && exit 1
    test ! -e failed || { touch waiting; exec sleep 1000; }
    ./bug \"$0\" recover || { touch failed; exit 1; }' {pool}";

#[test]
fn an_interruption_keeps_what_was_found() {
    let folder = recorded(2);
    let mut command = folder.command("env");
    command
        .arg("--default-signal=INT,TERM")
        .arg(env!("CARGO_BIN_EXE_powerfail"))
        .args(["crash", "run.trace", "--format", "json", "--jobs", "1"])
        .args(["--strategy", "eager", "--recover", WAITING])
        .args(["--timeout", "100s", "--writable", "."])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("powerfail starts");
    wait_for_file(&folder.path("waiting"), &child);
    let pid = child.id().to_string();
    let killed = folder.command("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("kill").success());
    let run = Run::from(child.wait_with_output().expect("an end")).ends_with(FINDINGS);
    let report = run.report();
    let is_note = |note: &String| note.contains("stopped after");
    assert!(report.notes.iter().any(is_note), "{:?}", report.notes);
    let totals = report.totals.eager.expect("numbers");
    assert!(
        totals.failed > 0 && totals.run < totals.chosen,
        "{totals:?}"
    );
    assert!(!report.findings.is_empty());
}
