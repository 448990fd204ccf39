//! The name under which the harness knows a test, and the number of a check in its test.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// What is said if the name is not known.
pub(crate) const UNKNOWN: &str = "the name of this test is not known, because it runs in the main thread; use #[powerfail_test::test], \
     which gives the test a Check";

/// The name that was given, or that of the thread, which the harness names after the test.
pub(crate) fn of_test(given: Option<&str>) -> Option<String> {
    if let Some(name) = given {
        return Some(name.to_owned());
    }
    let thread = std::thread::current();
    thread
        .name()
        .filter(|name| *name != "main")
        .map(str::to_owned)
}

/// How many checks the test has run before this one. Tests of several threads are told apart by their names.
pub(crate) fn next_number(name: &str) -> u64 {
    static NUMBERS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    let mut numbers = NUMBERS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let next = numbers.entry(name.to_owned()).or_default();
    *next += 1;
    *next - 1
}
