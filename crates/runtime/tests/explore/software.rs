//! Recoveries of real libraries.

use std::process::Command;

use super::zygote::{Table, Zygote, build};

#[test]
fn libpmemobj_rolls_back_whatever_reached_memory() {
    let program = build("accounts", &["-lpmemobj"]);
    let directory = tempfile::tempdir().unwrap();
    let pool = directory.path().join("pool");
    let made = Command::new(&program)
        .arg("create")
        .arg(&pool)
        .env("PMEM_IS_PMEM_FORCE", "1")
        .output()
        .unwrap();
    let place: u64 = String::from_utf8_lossy(&made.stdout)
        .trim()
        .parse()
        .unwrap();
    let image = std::fs::read(&pool).unwrap();
    // The line of the root: complete, with one of the two stores, and with none.
    let start = place / 64 * 64;
    let newest: [u8; 64] = image[start as usize..start as usize + 64]
        .try_into()
        .unwrap();
    let at = (place - start) as usize;
    assert_eq!(newest[at], 70);
    let (mut older, mut oldest) = (newest, newest);
    older[at + 8] = 0;
    oldest[at + 8] = 0;
    oldest[at] = 100;
    let mut table = Table {
        image,
        ..Table::default()
    };
    table.lines.insert(start, vec![newest, older, oldest]);
    // Also watched pages all over the pool, so that much of it is single-stepped.
    for page in 0..table.image.len() as u64 / 4096 {
        table.watched.insert(page * 4096, u64::MAX);
    }
    let command = || {
        let mut command = Command::new(&program);
        command.arg("open").env("PMEM_IS_PMEM_FORCE", "1");
        command
    };
    let forked = Zygote::fork_all_of(&table, &mut command()).unwrap();
    assert!(!forked.is_empty());
    for outcome in &forked {
        // The undo log restores both without reading them.
        assert_eq!(outcome.output, "100 0\n", "{outcome:?}");
    }
    let mut repeated = Zygote::reexecute_all_of(&table, &mut command()).unwrap();
    let mut forked = forked;
    forked.sort();
    repeated.sort();
    assert_eq!(forked, repeated);
}
