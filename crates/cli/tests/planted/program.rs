//! A program as its source describes it: how it is run, and which findings are expected at which lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use powerfail_finding::{Code, Severity};

/// Directives that a program may have.
const DIRECTIVES: [&str; 18] = [
    "workload",
    "recover",
    "checker",
    "dump",
    "ack",
    "client",
    "client-recover",
    "ready",
    "stop",
    "flags",
    "opt",
    "needs",
    "path",
    "bugs",
    "refused",
    "unchecked",
    "says",
    "does",
];

/// Whether a bug is planted in a program or repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fail,
    Pass,
}

impl Kind {
    const fn folder(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Pass => "pass",
        }
    }
}

/// A required finding, at one of these lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    pub(crate) code: Code,
    /// Whether the lines are those of the lost store, wherever the survivor is.
    pub(crate) is_lost: bool,
    /// The required severity: that of the code, or a warning if no run can confirm it.
    pub(crate) severity: Severity,
    label: Option<String>,
    pub(crate) lines: BTreeSet<u32>,
}

impl Expectation {
    /// Whether the finding is a warning that no run confirms. The program is correct then.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.severity != self.code.severity()
    }

    fn is_same_but_lines(&self, other: &Self) -> bool {
        let lines = self.lines.clone();
        let other = other.clone();
        *self == Self { lines, ..other }
    }
}

/// What a comment expects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// A finding that begins here.
    Here,
    /// A finding whose lost store is here.
    Lost,
    /// A finding that begins here and is not confirmed.
    Unconfirmed,
}

/// How comments with expectations begin.
const ASKED: [(&str, Asked); 3] = [
    ("expect: ", Asked::Here),
    ("lost: ", Asked::Lost),
    ("warning: ", Asked::Unconfirmed),
];

/// A program, buggy or repaired.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) kind: Kind,
    pub(crate) class: String,
    /// Its file extension.
    pub(crate) language: String,
    pub(crate) source: PathBuf,
    directives: BTreeMap<String, String>,
    pub(crate) expectations: Vec<Expectation>,
    /// Optional findings.
    pub(crate) allowances: Vec<(Code, u32)>,
}

/// All programs of a kind, in the order of their names.
pub(crate) fn all(kind: Kind) -> Vec<Program> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let tests = tests.canonicalize().expect("the folder of tests");
    entries(&tests.join(kind.folder()))
        .iter()
        .flat_map(|class| entries(class))
        .map(|source| Program::read(kind, source))
        .collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of programs");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

fn text_of(part: Option<&std::ffi::OsStr>) -> String {
    part.and_then(|part| part.to_str())
        .expect("a name")
        .to_owned()
}

impl Program {
    fn read(kind: Kind, source: PathBuf) -> Self {
        let text = fs::read_to_string(&source).expect("a source");
        let mut program = Self {
            kind,
            class: text_of(source.parent().and_then(Path::file_name)),
            language: text_of(source.extension()),
            source,
            directives: BTreeMap::new(),
            expectations: Vec::new(),
            allowances: Vec::new(),
        };
        for (line, number) in text.lines().zip(1..) {
            if program.is_script() {
                program.read_line(&line.replace("# ", "// "), number);
            } else {
                program.read_line(line, number);
            }
        }
        program
    }

    /// Whether an interpreter runs it.
    pub(crate) fn is_script(&self) -> bool {
        self.language == "py"
    }

    fn read_line(&mut self, line: &str, number: u32) {
        if let Some(directive) = line.strip_prefix("// powerfail: ") {
            let (name, value) = directive.split_once(" = ").unwrap_or((directive, "\"\""));
            let value = value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'));
            let value = value.unwrap_or_else(|| panic!("{}: no value of {name}", self.name()));
            assert!(DIRECTIVES.contains(&name), "{}: {name}?", self.name());
            let before = self.directives.insert(name.to_owned(), value.to_owned());
            assert_eq!(before, None, "{}: {name} twice", self.name());
        }
        for comment in line.split("// ").skip(1) {
            let asked = ASKED
                .iter()
                .find_map(|&(prefix, asked)| Some((comment.strip_prefix(prefix)?, asked)));
            if let Some((codes, asked)) = asked {
                for text in codes.split(',') {
                    self.expect(text.trim(), asked, number);
                }
            } else if let Some(codes) = comment.strip_prefix("may: ") {
                for text in codes.split(',') {
                    let code = text.trim().parse().expect("a code");
                    self.allowances.push((code, number));
                }
            }
        }
    }

    fn expect(&mut self, text: &str, asked: Asked, number: u32) {
        let (code, label) = match text.split_once('@') {
            Some((code, label)) => (code, Some(label.to_owned())),
            None => (text, None),
        };
        let code: Code = code.parse().expect("a code");
        let expectation = Expectation {
            code,
            is_lost: asked == Asked::Lost,
            severity: match asked {
                Asked::Unconfirmed => Severity::Warning,
                Asked::Here | Asked::Lost => code.severity(),
            },
            label,
            lines: BTreeSet::from([number]),
        };
        let same = self
            .expectations
            .iter_mut()
            .find(|it| it.label.is_some() && it.is_same_but_lines(&expectation));
        if let Some(same) = same {
            same.lines.insert(number);
        } else {
            self.expectations.push(expectation);
        }
    }

    /// Class and file: the same for a program and its twin.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.class, text_of(self.source.file_name()))
    }

    pub(crate) fn directive(&self, name: &str) -> Option<&str> {
        self.directives.get(name).map(String::as_str)
    }

    /// The words of a directive; empty if it is absent.
    pub(crate) fn words(&self, name: &str) -> impl Iterator<Item = &str> {
        self.directive(name).unwrap_or_default().split_whitespace()
    }

    /// How many bugs are planted in it.
    pub(crate) fn bugs(&self) -> usize {
        self.directive("bugs")
            .map_or(1, |number| number.parse().expect("a number"))
    }

    /// Whether `check` must end without a report: the setup is wrong, or it leaves nothing to check.
    pub(crate) fn is_refused(&self) -> bool {
        self.directive("refused").is_some() || self.is_unchecked()
    }

    /// Whether `check` must say that nothing was checked.
    pub(crate) fn is_unchecked(&self) -> bool {
        self.directive("unchecked").is_some()
    }
}
