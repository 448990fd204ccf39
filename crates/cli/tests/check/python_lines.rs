//! Call stacks of Python programs have the lines of the program, with each interpreter whose frames can be read.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::common::{FINDINGS, Folder};

/// Functions call each other through Python, through C (`sorted`), through a constructor, and in a generator.
const PROGRAM: &str = "import os, sys
class Writer:
    def __init__(self, path, text):
        self.path = path
        self.write(text)
    def write(self, text):
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, text)
        os.close(fd)
def keys(directory):
    yield Writer(directory + '/settings.new', b'content')
def save(number):
    for _ in keys(sys.argv[1]):
        os.rename(sys.argv[1] + '/settings.new', sys.argv[1] + '/settings')
    return number
if os.path.exists(sys.argv[1] + '/settings'):
    sys.exit(open(sys.argv[1] + '/settings').read() != 'content')
sorted([1], key=save)
";

/// `python3` of the system, and what pyenv has installed, one of each version.
fn interpreters() -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from("/usr/bin/python3")];
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let root = std::env::var_os("PYENV_ROOT").map_or_else(|| home.join(".pyenv"), PathBuf::from);
    let versions = std::fs::read_dir(root.join("versions"))
        .into_iter()
        .flatten();
    all.extend(versions.flatten().map(|it| it.path().join("bin/python3")));
    let mut seen = Vec::new();
    all.retain(|path| {
        let output = Command::new(path).arg("--version").output();
        let text = output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
        let text = text.unwrap_or_default();
        let minor = text.split('.').nth(1).and_then(|it| it.parse::<u32>().ok());
        let is_new = minor.is_some_and(|it| (11..=13).contains(&it) && !seen.contains(&it));
        seen.extend(minor.filter(|_| is_new));
        is_new
    });
    all
}

#[test]
fn stacks_have_lines_of_python() {
    let folder = Folder::new();
    folder.write("program.py", PROGRAM);
    let interpreters = interpreters();
    assert!(
        !interpreters.is_empty(),
        "a CPython of 3.11 to 3.13 is needed"
    );
    for interpreter in interpreters {
        let name = interpreter.display().to_string();
        let command = ["--", &name, "-IS", "program.py", "{dir}"];
        let mut words = vec!["check", "--format", "json"];
        words.extend(command);
        let run = folder.powerfail(&words).ends_with(FINDINGS);
        let report: Value = serde_json::from_str(&run.stdout).expect("a report");
        let findings = report["findings"].as_array().expect("findings");
        let places = findings.iter().filter_map(|it| it["places"].as_array());
        let stacks: Vec<Vec<String>> = places
            .flatten()
            .filter_map(|place| place["stack"].as_array())
            .map(|frames| frames.iter().filter_map(frame).collect())
            .collect();
        let lost = [
            "Writer.write program.py:8",
            "Writer.__init__ program.py:5",
            "keys program.py:11",
            "save program.py:13",
            "<module> program.py:18",
        ];
        let kept = ["save program.py:14", "<module> program.py:18"];
        for expected in [&lost[..], &kept[..]] {
            assert!(
                stacks.iter().any(|stack| stack == expected),
                "{name}: no {expected:?} in {stacks:#?}"
            );
        }
    }
}

/// Function, file and line, of frames in the program.
fn frame(frame: &Value) -> Option<String> {
    let file = frame["file"].as_str()?;
    let file = file.rsplit('/').next()?;
    (file == "program.py").then(|| {
        let function = frame["function"].as_str().unwrap_or("?");
        format!("{function} {file}:{}", frame["line"])
    })
}
