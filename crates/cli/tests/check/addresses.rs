//! Pools that hold addresses: recovery finds every pool at the address that it had in the workload. And `{pool}` is the
//! path that the workload got, whatever else was mapped first.

use crate::common::{CLEAN, FINDINGS, Folder, SETUP};

/// A program that maps a lock file first, and its data in a file whose name begins with that of the pool. Recovery is
/// another program, which maps other files first.
fn list(flags: &[&str]) -> Folder {
    let folder = Folder::new();
    folder.build_own("list", "raw_list.c", flags);
    folder.build_own("reader", "raw_list_reader.c", &[]);
    folder
}

const CHECK: &[&str] = &[
    "check",
    "--format",
    "json",
    "--recover",
    "./reader {pool}.data",
    "--checker",
    "sh -c 'test -e {pool}.lock && ./reader {pool}.data'",
    "--",
    "./list",
    "{pool}",
];

#[test]
fn addresses_in_a_pool_lead_to_the_same_bytes_in_recovery() {
    let run = list(&[]).powerfail(CHECK);
    assert_eq!(run.codes(), Vec::<&str>::new(), "{run:?}");
    run.ends_with(CLEAN);
}

#[test]
fn a_bug_among_addresses_is_found() {
    let folder = list(&["-DBUG"]);
    let run = folder.powerfail(CHECK);
    assert_eq!(run.code, FINDINGS, "{run:?}");
    let report = run.report();
    let source = include_str!("programs/raw_list.c");
    let line = |text: &str| source.lines().position(|it| it.contains(text)).unwrap() as u32 + 1;
    let expected = line("node->inverse = ~value");
    let lines: Vec<_> = report.findings.iter().flat_map(|it| &it.places).collect();
    assert!(
        lines.iter().any(|place| place.line == Some(expected)),
        "line {expected}: {}",
        run.stdout
    );
    // The same again, with the same paths and addresses.
    let id = &report.findings[0].id;
    folder.powerfail(&["replay", id]).ends_with(FINDINGS);
}

#[test]
fn a_workload_with_a_path_of_its_own_names_the_pool() {
    let folder = list(&[]);
    let program = "import mmap, sys\n\
        for name in sys.argv[1] + '.lock', sys.argv[1]:\n\
        \x20   with open(name, 'w+b') as file:\n\
        \x20       file.truncate(4096)\n\
        \x20       pool = mmap.mmap(file.fileno(), 4096)\n\
        \x20       pool[0:1] = b'x'\n\
        \x20       pool.flush()\n";
    folder.write("two.py", program);
    folder.write(
        "is_store.sh",
        "case $1 in */store) cat \"$1\";; *) exit 1;; esac\n",
    );
    let run = folder.powerfail(&[
        "check",
        "--recover",
        "sh is_store.sh {pool}",
        "--",
        "/usr/bin/python3",
        "two.py",
        "./store",
    ]);
    run.ends_with(CLEAN);
}

#[test]
fn addresses_of_objects_lead_to_the_same_objects() {
    let folder = Folder::new();
    folder.build_own("objects", "raw_objects.c", &[]);
    let run = folder.powerfail(&[
        "check",
        "--format",
        "json",
        // Second failures take long with PMDK, and are not what this is about.
        "--depth",
        "1",
        "--recover",
        "./objects {pool} read",
        "--",
        "./objects",
        "{pool}",
    ]);
    let errors = run.codes().iter().filter(|code| **code < "PF05").count();
    assert_eq!(errors, 0, "{run:?}");
}

/// libpmem looks for room from this address on.
#[test]
fn the_hint_of_libpmem_is_followed() {
    let folder = Folder::new();
    folder.build_own("objects", "raw_objects.c", &[]);
    for hint in ["100040000000", "0x1234c0000000"] {
        let mut command = folder.command("timeout");
        command.env("PMEM_MMAP_HINT", hint);
        let words = ["record", "-o", "run.trace", "--", "./objects", "{pool}"];
        crate::common::Run::powerfail(command, &words).ends_with(CLEAN);
        let run = folder.powerfail(&["trace", "info", "run.trace"]);
        let address = format!("at 0x{}", hint.trim_start_matches("0x"));
        assert!(run.stdout.contains(&address), "{run:?}");
    }
}

/// The program chooses where its pool is, or maps it more than once, and recovery follows the addresses in it.
#[track_caller]
fn follows_addresses(way: &str) {
    let folder = Folder::new();
    let recover = format!("./places {way} {{pool}} recover");
    let words = ["check", "--format", "json", "--depth", "1", "--recover"];
    let words = [&words[..], &[&recover, "--", "./places", way, "{pool}"]].concat();
    folder.build_own("places", "places.c", &[]);
    let run = folder.powerfail(&words);
    assert_eq!(run.codes(), Vec::<&str>::new(), "{way}: {run:?}");
    run.ends_with(CLEAN);
    folder.build_own("places", "places.c", &["-DBUG"]);
    let run = folder.powerfail(&words);
    assert_eq!(run.code, FINDINGS, "{way}: {run:?}");
    let source = include_str!("programs/places.c");
    let line = source
        .lines()
        .position(|it| it.contains("node->value = value;"));
    let line = line.map(|line| line as u32 + 1);
    let report = run.report();
    let mut places = report.findings.iter().flat_map(|it| &it.places);
    assert!(
        places.any(|place| place.line == line),
        "{way}: {}",
        run.stdout
    );
}

#[test]
fn pools_at_addresses_that_the_program_requires() {
    follows_addresses("fixed:600000000000");
    follows_addresses("noreplace:7e0000000000");
    follows_addresses("fixed:100040000000");
}

#[test]
fn pools_at_addresses_that_the_program_proposes() {
    follows_addresses("hint:10000000000");
    follows_addresses("hint:100040000000");
}

#[test]
fn pools_that_grow() {
    follows_addresses("grow");
    follows_addresses("again");
}

#[test]
fn several_pools_and_parts_of_one_in_another_order() {
    follows_addresses("two");
    follows_addresses("parts");
}

/// The runtime, which would map the pool where it was, is not loaded into a static program.
#[test]
fn a_static_recovery_that_follows_addresses_is_told() {
    let folder = list(&[]);
    folder.build_own("reader", "raw_list_reader.c", &["-static"]);
    let run = folder.powerfail(CHECK).ends_with(SETUP);
    let sentence =
        "pools hold addresses, and recovery may not find them where the workload had them";
    assert!(run.stderr.contains(sentence), "{run:?}");
    assert!(run.stderr.contains("it is linked statically"), "{run:?}");
}
