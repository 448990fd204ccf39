//! An interrupted campaign ends with its summary, and leaves no process behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::common::{CLEAN, FINDINGS, NOT_CHECKED};
use crate::running::{
    leftovers, mark, send, start_shop, wait_for_line, wait_until_all_are_gone, wait_until_it_runs,
};
use crate::{folder, has_run};

#[test]
fn the_first_signal_ends_it_with_its_summary() {
    for (number, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let folder = folder();
        let mark = mark(&format!("first-{number}"));
        let mut child = start_shop(&folder, &mark, &["--json"]);
        let id = child.id();
        // A closed standard error must not disturb the campaign.
        drop(wait_until_it_runs(&mut child));
        send(&child, signal);
        let output = child.wait_with_output().expect("an end");
        let code = output.status.code().expect("no signal");
        assert!(
            [CLEAN, FINDINGS, NOT_CHECKED].contains(&code),
            "{:?}",
            output.status
        );
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a summary");
        assert_eq!(summary["interrupted"], true);
        wait_until_all_are_gone(&mark);
        assert_eq!(leftovers(id), Vec::<String>::new());
        assert_eq!(
            fs::read_dir(folder.path("tmp")).expect("a folder").count(),
            0
        );
    }
}

#[test]
fn the_second_signal_ends_it_at_once() {
    let folder = folder();
    fs::create_dir(folder.path("seeds")).expect("a folder");
    folder.write("seeds/hangs", "HANG");
    let mark = mark("second");
    // Without a second signal it would wait for its execution, which takes an hour.
    let flags = ["--seeds", "seeds", "--timeout", "1h"];
    let mut child = start_shop(&folder, &mark, &flags);
    let id = child.id();
    let mut errors = wait_until_it_runs(&mut child);
    send(&child, Signal::INT);
    // Until the first signal is handled, a second one would be merged with it.
    wait_for_line(&mut errors, "interrupt again");
    send(&child, Signal::INT);
    let status = child.wait().expect("an end");
    assert_eq!(status.signal(), Some(libc::SIGINT), "{status:?}");
    wait_until_all_are_gone(&mark);
    // The next run removes what it left in memory, and can resume it.
    let run = folder.powerfail(&[
        "fuzz",
        "--resume",
        "--out",
        "out",
        "--timeout",
        "1s",
        "--execs",
        "1",
    ]);
    has_run(&run);
    assert_eq!(leftovers(id), Vec::<String>::new());
}
