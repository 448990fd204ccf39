//! Resource limits of the caller, and programs that write many files.

use crate::common::{CLEAN, Folder, NOT_CHECKED, RECOVER, Run, SETUP};

fn built() -> Folder {
    let folder = Folder::new();
    folder.build_planted("bug", "pass/ordering/one_fence_for_both.c");
    folder
}

/// Runs powerfail with a limit of the shell: `-f 1000`.
fn limited(folder: &Folder, limit: &str, arguments: &[&str]) -> Run {
    let mut shell = folder.command("bash");
    shell.args(["-c", "ulimit $0 && exec \"$@\"", limit]);
    shell.arg(env!("CARGO_BIN_EXE_powerfail")).args(arguments);
    shell.output().expect("the shell runs").into()
}

const RECORD: &[&str] = &["record", "-o", "run.trace", "--", "./bug", "{pool}"];
const CHECK: &[&str] = &["check", "--recover", RECOVER, "--", "./bug", "{pool}"];
const FUZZ: &[&str] = &[
    "fuzz", "--execs", "1", "--out", "campaign", "--", "./bug", "{pool}",
];

#[test]
fn the_size_of_files() {
    let folder = built();
    for arguments in [RECORD, CHECK, FUZZ] {
        let run = limited(&folder, "-f 1000", arguments);
        let words = [
            "File too large",
            "the size of files is limited to 1000 KiB (ulimit -f)",
        ];
        run.is_refused_with(SETUP, &words);
    }
}

#[test]
fn the_address_space() {
    let folder = built();
    for arguments in [RECORD, CHECK, FUZZ] {
        let run = limited(&folder, "-v 4000000", arguments);
        let words = [
            "the address space is limited to 4000000 KiB (ulimit -v)",
            "8 TiB",
        ];
        run.is_refused_with(SETUP, &words);
    }
    // A trace needs less, and what recoveries cannot do is said.
    folder.record();
    let crash = [
        "crash",
        "run.trace",
        "--strategy",
        "lazy",
        "--recover",
        RECOVER,
    ];
    let run = limited(&folder, "-v 4000000", &crash).ends_with(CLEAN);
    let warning = "warning: the address space is limited to 4000000 KiB (ulimit -v): recoveries can only be \
                   explored or watched with 16 GiB";
    assert!(run.stderr.contains(warning), "{run:?}");
    folder.powerfail(&crash).ends_with(CLEAN);
}

/// With fewer descriptors it could not remove what it has made, and with less of a stack it would crash.
#[test]
fn descriptors_and_the_stack() {
    let folder = built();
    let limits = [
        (
            "-n 8",
            "the number of open files is limited to 8 (ulimit -n)",
        ),
        ("-s 128", "the stack is limited to 128 KiB (ulimit -s)"),
    ];
    for (limit, words) in limits {
        for arguments in [RECORD, CHECK, FUZZ] {
            limited(&folder, limit, arguments).is_refused_with(SETUP, &[words]);
        }
    }
    limited(&folder, "-n 64", CHECK).ends_with(CLEAN);
    limited(&folder, "-s 1024", CHECK).ends_with(CLEAN);
}

/// The program of the tests of `record` that does what few programs do, as `./bug`.
fn odd() -> Folder {
    let folder = Folder::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/targets/odd.c");
    let compiled = folder
        .command("gcc")
        .args(["-g", source, "-o", "bug"])
        .status();
    assert!(compiled.expect("the compiler runs").success());
    folder
}

/// A file that recovery may need is found, however many others were written before it.
#[test]
fn many_files_and_then_a_journal() {
    let folder = odd();
    std::fs::create_dir(folder.path("files")).expect("a folder");
    let check = [
        "check",
        "--format",
        "json",
        "--tree",
        "none",
        "--recover",
        "test -e {pool}",
    ];
    let workload = ["--", "./bug", "{pool}", "files", "files", "5000"];
    let run = folder.powerfail(&[&check[..], &workload].concat());
    let notes = run.ends_with(NOT_CHECKED).report().notes.join("\n");
    assert!(
        notes.contains("the workload wrote `pool-journal`"),
        "{notes}"
    );
}
