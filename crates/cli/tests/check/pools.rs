//! Which files are pools, and which persistence domain they have: both are found out, said, and can be overridden.

use crate::common::{CLEAN, FINDINGS, Folder, Run};
use serde_json::Value;

/// Records a program and returns the paths of pools, and of ignored files with the reasons.
fn recorded(folder: &Folder, arguments: &[&str]) -> (Vec<String>, Vec<(String, String)>) {
    let mut words = vec!["record", "--json", "-o", "run.trace"];
    words.extend(arguments);
    let run = folder.powerfail(&words).ends_with(CLEAN);
    let summary: Value = serde_json::from_str(&run.stdout).expect("a summary");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let list = |name: &str| summary[name].as_array().expect("a list").clone();
    let pools = list("pools").iter().map(|it| text(&it["path"])).collect();
    let ignored = list("ignored");
    let ignored = ignored
        .iter()
        .map(|it| (text(&it["path"]), text(&it["reason"])));
    (pools, ignored.collect())
}

const WAL: &str = "import sqlite3, sys\n\
    connection = sqlite3.connect(sys.argv[1])\n\
    connection.execute('pragma journal_mode = wal')\n\
    connection.execute('create table t (x)')\n\
    connection.execute('insert into t values (1)')\n\
    connection.commit()\n";

#[test]
fn the_index_of_a_log_of_sqlite_is_no_pool() {
    let folder = Folder::new();
    folder.write("wal.py", WAL);
    let command = ["--", "/usr/bin/python3", "wal.py", "{pool}"];
    let (pools, ignored) = recorded(&folder, &command);
    assert_eq!(pools, Vec::<String>::new());
    let [(path, reason)] = &ignored[..] else {
        panic!("{ignored:?}");
    };
    assert!(path.ends_with("pool-shm"), "{path}");
    assert_eq!(reason, "SqliteSharedMemory");
    let mut words = vec!["--pool", "/dev/shm/**/*-shm"];
    words.extend(command);
    let (pools, ignored) = recorded(&folder, &words);
    assert_eq!((pools.len(), ignored.len()), (1, 0));
}

#[test]
fn a_file_that_is_removed_is_no_pool_or_is_told() {
    let folder = Folder::new();
    folder.build_own("removed", "removed.c", &[]);
    let recover = "./removed {pool} recover";
    let check = |when: &str, options: &[&str]| {
        let mut words = vec!["check", "--recover", recover];
        words.extend(options);
        words.extend(["--", "./removed", "{pool}", when]);
        folder.powerfail(&words)
    };
    let early = check("early", &[]).ends_with(CLEAN);
    let said = "it has no name, so a power failure would remove it";
    assert!(early.stderr.contains(said), "{early:?}");
    let late = check("late", &[]);
    let said = "pool.scratch was removed by the target after it was mapped";
    assert!(late.stderr.contains(said), "{late:?}");
    let excluded = check("late", &["--not-pool", "/dev/shm/**/*.scratch"]).ends_with(CLEAN);
    assert!(!excluded.stderr.contains("was removed"), "{excluded:?}");
}

#[test]
fn a_file_can_be_excluded() {
    let folder = Folder::new();
    folder.build_own("list", "raw_list.c", &[]);
    let (pools, ignored) = recorded(&folder, &["--", "./list", "{pool}"]);
    assert_eq!((pools.len(), ignored.len()), (2, 0));
    let words = ["--not-pool", "/dev/shm/**/*.lock", "--", "./list", "{pool}"];
    let (pools, ignored) = recorded(&folder, &words);
    assert!(
        pools.len() == 1 && pools[0].ends_with("pool.data"),
        "{pools:?}"
    );
    assert_eq!(ignored[0].1, "Excluded");
}

fn check_syncs(flags: &[&str], options: &[&str]) -> Run {
    let folder = Folder::new();
    folder.build_own("bug", "wrong_sync.c", flags);
    folder.check(options)
}

#[test]
fn a_program_that_only_calls_msync_is_for_the_page_cache() {
    let run = check_syncs(&[], &[]);
    assert!(run.stderr.contains("the domain is pagecache"), "{run:?}");
    assert!(!run.stderr.contains("MS_ASYNC"), "{run:?}");
    run.ends_with(CLEAN);
    let run = check_syncs(&[], &["--domain", "adr"]);
    assert!(!run.stderr.contains("the domain is"), "{run:?}");
}

#[test]
fn the_msync_of_the_wrong_range_is_named() {
    let run = check_syncs(&["-DBUG"], &[]).ends_with(FINDINGS);
    let report = run.report();
    let source = include_str!("programs/wrong_sync.c");
    let line = |text: &str| source.lines().position(|it| it.contains(text)).expect(text) as u32 + 1;
    let finding = &report.findings[0];
    assert_eq!(finding.places[0].line, Some(line("/* the value */")));
    let suggestion = finding.suggestion.as_deref().expect("a suggestion");
    let expected = format!(
        "the msync at wrong_sync.c:{} covers 0x1000-0x2000, the store is at 0x2040",
        line("/* the wrong page */")
    );
    let explanation = finding.explanation.as_deref().unwrap_or_default();
    assert!(explanation.contains(&expected), "{explanation}");
    assert!(suggestion.contains("msync(MS_SYNC)"), "{suggestion}");
    for finding in &report.findings {
        let words = [
            Some(&finding.message),
            finding.suggestion.as_ref(),
            finding.explanation.as_ref(),
        ];
        for words in words.into_iter().flatten() {
            let is_of_caches = words.contains("flush") || words.contains("fence");
            assert!(!is_of_caches, "{words}");
        }
    }
}

#[test]
fn an_msync_that_only_asks_is_told() {
    let run = check_syncs(&["-DASYNC"], &[]);
    assert!(run.stderr.contains("MS_ASYNC"), "{run:?}");
    let report = run.ends_with(FINDINGS).report();
    let explanation = report.findings[0].explanation.as_deref();
    let explanation = explanation.expect("an explanation");
    let source = include_str!("programs/wrong_sync.c");
    let mut lines = source.lines();
    let line = lines.position(|it| it.contains("/* the right page */"));
    let expected = format!(
        "the msync at wrong_sync.c:{} has no MS_SYNC: MS_ASYNC makes nothing durable",
        line.expect("a line") + 1
    );
    assert!(explanation.contains(&expected), "{explanation}");
}

#[test]
fn a_program_that_only_asks_is_for_the_page_cache() {
    let run = check_syncs(&["-DASYNC", "-DONLY_ASYNC"], &[]);
    assert!(run.stderr.contains("the domain is pagecache"), "{run:?}");
}

#[test]
fn where_msync_makes_data_durable_nothing_speaks_of_flushes() {
    for flag in ["-DBUG", "-DASYNC"] {
        let folder = Folder::new();
        folder.build_own("bug", "wrong_sync.c", &[flag]);
        for options in [&[][..], &["--races"]] {
            let text = folder.check_into_text(options).ends_with(FINDINGS).stdout;
            assert!(text.contains("msync"), "{text}");
            assert!(!text.contains("flush") && !text.contains("fence"), "{text}");
        }
    }
}

#[test]
fn a_mix_of_msync_and_flushes_is_said() {
    let folder = Folder::new();
    folder.build_own("bug", "wrong_sync.c", &["-DMIX"]);
    let run = folder.check(&[]);
    let said = "note: the domain is adr, in which msync is a flush: the workload calls msync, fsync or fdatasync 2 \
                times and also flushes once; if its data is in an ordinary file, use --domain pagecache";
    assert!(run.stderr.contains(said), "{run:?}");
    let run = folder.check(&["--domain", "pagecache"]);
    assert!(!run.stderr.contains("the domain is"), "{run:?}");
}
