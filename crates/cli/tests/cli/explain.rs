//! `powerfail explain`, as users run it.

use powerfail_finding::Code;

use crate::common::{powerfail, powerfail_into_closed_pipe};

#[test]
fn all_codes_are_listed_and_each_has_a_page() {
    let list = powerfail(&["explain"]);
    assert_eq!((list.code, list.stderr.as_str()), (0, ""));
    let codes: Vec<&str> = list
        .stdout
        .lines()
        .filter_map(|line| line.trim_start().split(' ').next())
        .filter(|word| word.starts_with("PF"))
        .collect();
    assert_eq!(codes.len(), Code::ALL.len(), "{}", list.stdout);
    for code in codes {
        let page = powerfail(&["explain", code]);
        assert_eq!(page.code, 0, "{code}");
        assert!(page.stdout.starts_with(code), "{}", page.stdout);
        assert!(!page.stdout.contains("```"), "{}", page.stdout);
    }
}

#[test]
fn a_code_may_be_written_small() {
    let small = powerfail(&["explain", "pf0401"]);
    assert_eq!(small.stdout, powerfail(&["explain", "PF0401"]).stdout);
    assert!(small.stdout.starts_with("PF0401: recovery crashes\n"));
}

#[test]
fn a_code_that_is_none_is_a_usage_error_that_says_where_they_are() {
    let run = powerfail(&["explain", "PF9999"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(
        run.stderr
            .contains("there is no finding with the code `PF9999`"),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("`powerfail explain` lists them"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    assert_eq!(powerfail_into_closed_pipe(&["explain", "PF0401"]).code, 0);
}

#[test]
fn colour_on_request() {
    let run = powerfail(&["explain", "PF0401", "--color", "always"]);
    assert!(run.stdout.contains("\u{1b}[1mPF0401"), "{}", run.stdout);
}
