//! The C header and the annotation crate have no dependencies, so they repeat the codes and the number of roots as
//! literals. This test compares them.

use std::collections::BTreeMap;

use powerfail_protocol::{mark, memory};

const HEADER: &str = include_str!("../../../include/powerfail.h");
const CRATE: &str = include_str!("../../annotate/src/lib.rs");
const POOL: &str = include_str!("../../annotate/src/pool.rs");

/// The code that each function sends.
fn expected() -> BTreeMap<String, u32> {
    let codes = [
        ("interest_begin", mark::INTEREST_BEGIN),
        ("interest_end", mark::INTEREST_END),
        ("complete", mark::COMPLETE),
        ("skip_failure_begin", mark::SKIP_FAILURE_BEGIN),
        ("skip_failure_end", mark::SKIP_FAILURE_END),
        ("skip_detection_begin", mark::SKIP_DETECTION_BEGIN),
        ("skip_detection_end", mark::SKIP_DETECTION_END),
        ("failure_point", mark::FAILURE_POINT),
        ("mark", mark::USER),
        ("operation_begin", mark::OPERATION_BEGIN),
        ("operation_end", mark::OPERATION_END),
        ("commit_variable", mark::COMMIT_VARIABLE),
        ("commit_range", mark::COMMIT_RANGE),
    ];
    codes.map(|(name, code)| (name.to_owned(), code)).into()
}

/// The codes of functions: the number that follows `call` in each function that `define` begins.
fn codes(text: &str, define: &str, call: &str) -> BTreeMap<String, u32> {
    let mut codes = BTreeMap::new();
    for function in text.split(define).skip(1) {
        let name: String = function
            .chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
            .collect();
        let Some((_, arguments)) = function.split_once(call) else {
            continue;
        };
        if let Some(digits) = arguments.trim_start().strip_prefix("0x") {
            let digits = digits.split(',').next().unwrap_or_default();
            let code = u32::from_str_radix(digits, 16).expect("a number");
            assert_eq!(codes.insert(name, code), None);
        }
    }
    codes
}

#[test]
fn the_header_has_the_codes_of_marks() {
    assert_eq!(
        codes(HEADER, " void powerfail_", "powerfail_annotate_("),
        expected()
    );
}

#[test]
fn the_crate_has_the_codes_of_marks() {
    assert_eq!(codes(CRATE, "\npub fn ", "annotate("), expected());
}

#[test]
fn both_have_all_roots() {
    let roots = memory::ROOT_COUNT;
    assert!(HEADER.contains(&format!("powerfail_root_words_[id % {roots}]")));
    assert_eq!(
        HEADER
            .matches(&format!("powerfail_root_words_[{roots}]"))
            .count(),
        2
    );
    let count = POOL
        .lines()
        .find_map(|line| line.strip_prefix("pub const ROOTS: usize = "));
    assert_eq!(count, Some(format!("{roots};").as_str()));
}
