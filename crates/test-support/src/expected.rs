//! Texts that tests compare with files in the repository, so that a change of a text shows in the diff.

use std::path::Path;

/// Compares a text with the content of a file. With `POWERFAIL_BLESS=1` in the environment the file is written
/// first.
///
/// # Panics
///
/// If they differ, with the first line that does and both texts.
#[track_caller]
pub fn assert_file(path: &Path, found: &str) {
    if std::env::var_os("POWERFAIL_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(path, found).expect("the file can be written");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        expected == found,
        "{} is not up to date from line {}; if the change is right, run the test with POWERFAIL_BLESS=1\n\
         --- expected\n{expected}\n--- found\n{found}",
        path.display(),
        first_difference(&expected, found)
    );
}

/// The number of the first line that differs.
fn first_difference(expected: &str, found: &str) -> usize {
    let same = expected
        .lines()
        .zip(found.lines())
        .take_while(|(expected, found)| expected == found);
    same.count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_accepted() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "one\ntwo\n").expect("a text");
        assert_file(file.path(), "one\ntwo\n");
    }

    #[test]
    #[should_panic(expected = "is not up to date from line 2")]
    fn another_text_is_refused_and_its_line_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "one\ntwo\n").expect("a text");
        assert_file(file.path(), "one\nthree\n");
    }

    #[test]
    #[should_panic(expected = "is not up to date from line 1")]
    fn a_missing_file_is_an_empty_text() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_file(&directory.path().join("missing"), "one\n");
    }
}
