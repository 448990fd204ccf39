//! The model matches every file of the suite in `tests/litmus` exactly.

use std::path::{Path, PathBuf};

use powerfail_litmus::{LitmusFile, check};

fn files(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/litmus")
        .join(folder);
    let mut files: Vec<_> = std::fs::read_dir(root)
        .expect("the suite is part of the project")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    files
}

fn assert_conforms(folder: &str, at_least: usize) {
    let files = files(folder);
    assert!(
        files.len() >= at_least,
        "the suite has lost files: {} are left",
        files.len()
    );
    for path in files {
        let text = std::fs::read_to_string(&path).expect("readable");
        let file = LitmusFile::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let verdict = check(&file).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(
            verdict.passed(),
            "{}: {:?}",
            path.display(),
            verdict.mismatches
        );
    }
}

#[test]
fn programs() {
    assert_conforms("", 252);
}

#[test]
fn traces() {
    assert_conforms("traces", 60);
}

#[test]
fn operations_on_files() {
    assert_conforms("files", 96);
}
