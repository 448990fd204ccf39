//! `powerfail check` on storage software of others, as packaged by Debian: the same programs, commands and expected
//! results as in `docs/figures/targets.md`.

mod guests;

use std::path::Path;

use xtask::targets;

/// All of those whose name begins with this word are built and checked, and each result is the expected one.
#[track_caller]
fn are_as_expected(word: &str) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/software");
    let powerfail = Path::new(env!("CARGO_BIN_EXE_powerfail"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut count = 0;
    for target in targets::tested().filter(|target| target.name.starts_with(word)) {
        target.build(&sources, folder.path()).expect("it compiles");
        let outcome = target.check(powerfail, folder.path()).expect("it runs");
        assert!(
            outcome.is_expected_of(target),
            "{}: expected {:?}: {outcome:?}",
            target.name,
            target.expected,
        );
        count += 1;
    }
    assert_ne!(count, 0, "no program of this name");
}

macro_rules! software {
    ($($test:ident: $word:literal,)*) => {
        $(
            #[test]
            fn $test() {
                are_as_expected($word);
            }
        )*

        #[test]
        fn each_is_tested() {
            for target in targets::tested() {
                assert!([$($word),*].iter().any(|word| target.name.starts_with(word)), "{}", target.name);
            }
        }
    };
}

software! {
    lmdb: "LMDB",
    sqlite: "SQLite",
    berkeley_db: "Berkeley DB",
    tokyo_cabinet: "Tokyo Cabinet",
    python: "Python",
    libraries_of_pmdk: "libpmem",
}
