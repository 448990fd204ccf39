//! Suppressions applied to findings.

use powerfail_config::{Config, Suppression, sift};
use powerfail_finding::Code;

use crate::common::{finding, frame};

fn suppressions(text: &str) -> Vec<Suppression> {
    Config::parse(text).expect("sound").suppress
}

#[test]
fn findings_are_kept_counted_and_unused_entries_named() {
    let entries = suppressions(
        r#"
        [[suppress]]
        code = "PF0101"
        function = "cache_*"
        reason = "a cache"
        [[suppress]]
        file = "statistics.c"
        reason = "may be lost"
        [[suppress]]
        function = "gone"
        reason = "was fixed"
        "#,
    );
    let lost = Code::StoreNotFlushed;
    let findings = vec![
        finding(lost, "cache_put", "/src/cache.c", 1),
        finding(lost, "cache_get", "/src/cache.c", 2),
        finding(Code::FlushNotFenced, "cache_put", "/src/cache.c", 3),
        finding(lost, "count", "/src/statistics.c", 4),
        finding(lost, "insert", "/src/map.c", 5),
    ];
    let sifted = sift(&entries, findings);
    let kept: Vec<_> = sifted.kept.iter().map(|kept| kept.id.as_str()).collect();
    assert_eq!(kept, ["cache_put-3", "insert-5"]);
    let matched: Vec<_> = sifted
        .matched
        .iter()
        .map(|(entry, count)| (entry.reason.as_str(), *count))
        .collect();
    assert_eq!(matched, [("a cache", 2), ("may be lost", 1)]);
    let unused: Vec<_> = sifted.unused.iter().map(|entry| &entry.reason).collect();
    assert_eq!(unused, ["was fixed"]);
}

#[test]
fn an_unused_suppression_is_a_note() {
    let text = "\n[[suppress]]\ncode = \"PF0101\"\nfunction = \"lru_*\"\nreason = \"r\"";
    assert_eq!(
        suppressions(text)[0].unused_note(),
        "the suppression of PF0101, function `lru_*` in line 2 of powerfail.toml matches no finding; remove it or \
         correct the name"
    );
}

#[test]
fn a_caller_is_enough_but_function_and_file_must_belong_together() {
    let entry = |text: &str| suppressions(text).remove(0);
    let mut subject = finding(Code::StoreNotFlushed, "copy", "copy.c", 1);
    subject.places[0].stack = vec![frame("copy", "copy.c"), frame("cache_put", "cache.c")];
    let by_caller = "[[suppress]]\nfunction = \"cache_*\"\nreason = \"r\"";
    assert!(entry(by_caller).matches(&subject));
    let both = "[[suppress]]\nfunction = \"cache_*\"\nfile = \"cache.c\"\nreason = \"r\"";
    assert!(entry(both).matches(&subject));
    let mixed = "[[suppress]]\nfunction = \"cache_*\"\nfile = \"copy.c\"\nreason = \"r\"";
    assert!(!entry(mixed).matches(&subject));
}

#[test]
fn what_is_not_known_matches_no_name() {
    let mut subject = finding(Code::StoreNotFlushed, "f", "a.c", 1);
    subject.places[0].function = None;
    let by_function = &suppressions("[[suppress]]\nfunction = \"*\"\nreason = \"r\"")[0];
    assert!(!by_function.matches(&subject));
    subject.places.clear();
    assert!(!by_function.matches(&subject));
    let by_code = &suppressions("[[suppress]]\ncode = \"pf0101\"\nreason = \"r\"")[0];
    assert!(by_code.matches(&subject));
}
