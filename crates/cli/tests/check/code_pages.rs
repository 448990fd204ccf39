//! The wrong and the right code on the pages about findings, `docs/reference/findings`. It compiles; and where the workload
//! alone decides, the wrong code is found under the code of its page, and the right code is not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use powerfail_finding::Finding;

use crate::common::Folder;

/// The programs of `tests/pages` that are recorded, and the libraries that they need.
const RECORDED: [(&str, &[&str]); 3] = [
    ("memory", &["-mclwb", "-lpmem"]),
    ("objects", &["-lpmemobj"]),
    ("files", &[]),
];
/// Wrong code that only crashes, acknowledgements or devices show. The programs in `tests/fail` have it with a recovery.
const NEEDS_MORE: [&str; 17] = [
    "PF0103", "PF0301", "PF0302", "PF0303", "PF0401", "PF0402", "PF0603", "PF0701", "PF0702",
    "PF0703", "PF0801", "PF0802", "PF0903", "PF0904", "PF0907", "PF0908", "PF0921",
];
/// Right code that is reported all the same: the page says why.
const REPORTED_ALL_THE_SAME: [&str; 1] = ["PF0601"];

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The C code of each page: the wrong one, and the right one if there is one.
fn pages() -> BTreeMap<String, Vec<String>> {
    let folder = root().join("docs/reference/findings");
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the pages") {
        let path = entry.expect("a page").path();
        let text = std::fs::read_to_string(&path).expect("a page");
        let blocks = text.split("\n```c\n").skip(1);
        let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or_default().to_owned());
        let code = path.file_stem().expect("a name").to_string_lossy();
        pages.insert(code.into_owned(), blocks.collect());
    }
    pages
}

/// Writes the pieces, and builds the programs that include them.
fn built(folder: &Folder, pages: &BTreeMap<String, Vec<String>>) {
    let mut sources = String::new();
    for (name, libraries) in RECORDED.into_iter().chain([("recovery", &["-c"][..])]) {
        let source = root().join(format!("tests/pages/{name}.c"));
        sources += &std::fs::read_to_string(&source).expect("a program");
        let mut gcc = Command::new("gcc");
        gcc.args([
            "-g",
            "-O0",
            "-Wall",
            "-Werror",
            "-Wno-unused-variable",
            "-I",
        ]);
        gcc.arg(folder.path("")).arg("-o").arg(folder.path(name));
        for (code, blocks) in pages {
            for (kind, block) in ["wrong", "right"].iter().zip(blocks) {
                folder.write(&format!("{code}-{kind}.inc"), block);
            }
        }
        let output = gcc.arg(source).args(libraries).output().expect("gcc");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
    }
    for (code, blocks) in pages {
        for (kind, _) in ["wrong", "right"].iter().zip(blocks) {
            let include = format!("#include \"{code}-{kind}.inc\"");
            assert!(sources.contains(&include), "no program has: {include}");
        }
    }
}

#[test]
fn the_wrong_code_of_a_page_is_found_and_the_right_code_is_not() {
    let (folder, pages) = (Folder::new(), pages());
    built(&folder, &pages);
    std::fs::create_dir(folder.path("dir")).expect("a folder");
    let mut findings: Vec<Finding> = Vec::new();
    for (name, _) in RECORDED {
        let (trace, program) = (format!("{name}.trace"), format!("./{name}"));
        let mut record = vec!["record", "-o", &trace];
        match name {
            "files" => record.extend(["--tree", "dir", "--", &program, "dir"]),
            _ => record.extend(["--tree", "none", "--", &program, "data.pool"]),
        }
        folder.powerfail(&record).ends_with(0);
        let linted = folder.powerfail(&["lint", &trace, "--warnings", "--format", "json"]);
        findings.extend(linted.report().findings);
        let _ = std::fs::remove_file(folder.path("data.pool"));
    }
    let is_found = |code: &str, function: String| {
        let mut of_code = findings.iter().filter(|it| it.code.as_str() == code);
        of_code.any(|it| {
            let mut places = it.places.iter();
            places.any(|place| place.function.as_ref() == Some(&function))
        })
    };
    let mut wrong = Vec::new();
    for (code, blocks) in &pages {
        let is_wrong_found = is_found(code, format!("wrong_{code}"));
        if is_wrong_found == NEEDS_MORE.contains(&code.as_str()) {
            wrong.push(format!("{code}: wrong code found: {is_wrong_found}"));
        }
        let is_right_found = is_found(code, format!("right_{code}"));
        if is_right_found != REPORTED_ALL_THE_SAME.contains(&code.as_str()) {
            wrong.push(format!("{code}: right code found: {is_right_found}"));
        }
        assert!((1..=2).contains(&blocks.len()), "{code}: {}", blocks.len());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
