//! Findings without sources: of a program that was rebuilt or has no lines, and of stores that the program does not make
//! itself.

use crate::common::{Folder, Run};

fn lint(folder: &Folder) -> Run {
    folder.powerfail(&["lint", "--warnings", "--format", "json", "run.trace"])
}

#[test]
fn findings_stay_when_the_program_is_rebuilt() {
    let folder = Folder::new();
    folder.build_own("bug", "many_flushes.c", &[]);
    folder.record();
    let before = lint(&folder);
    assert!(before.report().notes.is_empty(), "{before:?}");
    folder.build_own("bug", "many_flushes.c", &["-DREBUILT", "-O2"]);
    let after = lint(&folder);
    assert_eq!(after.codes(), before.codes());
    assert_eq!(after.code, before.code);
    let notes = after.report().notes;
    assert!(
        notes.iter().any(|it| it.contains("was rebuilt")),
        "{notes:?}"
    );
}

#[test]
fn bugs_of_one_function_are_kept_apart_without_lines() {
    let counts = [&["-g"][..], &["-g0"], &["-g0", "-s"]].map(|flags| {
        let folder = Folder::new();
        folder.build_own("bug", "many_flushes.c", flags);
        folder.record();
        lint(&folder).codes().len()
    });
    assert_eq!(counts[0], 3, "{counts:?}");
    assert!(counts.iter().all(|count| *count >= counts[0]), "{counts:?}");
}

#[test]
fn stores_of_the_kernel_and_its_library_have_places() {
    let folder = Folder::new();
    folder.build_own("bug", "clock.c", &[]);
    folder.record();
    let run = lint(&folder);
    let source = include_str!("programs/clock.c");
    for text in ["/* the time */", "/* the number */"] {
        let line = source.lines().position(|it| it.contains(text)).expect(text) as u32 + 1;
        let report = run.report();
        let mut places = report.findings.iter().flat_map(|it| &it.places);
        assert!(places.any(|it| it.line == Some(line)), "{text}: {run:?}");
    }
}
