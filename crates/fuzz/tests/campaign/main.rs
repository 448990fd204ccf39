//! Campaigns on a small store with planted bugs.

mod hostile;
mod planted;
mod trees;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use powerfail_test_support::runtime;
use tempfile::TempDir;

/// The time limit of a campaign that does not find the expected bug; far longer than needed.
const GUARD_MS: u64 = 240_000;

/// The store, built once.
fn store() -> &'static Path {
    static STORE: OnceLock<PathBuf> = OnceLock::new();
    STORE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("campaign-store");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/campaign/store.c");
        let status = Command::new("gcc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&path, &source])
            .status()
            .expect("a compiler");
        assert!(status.success());
        path
    })
}

/// A campaign in its own directory.
struct Campaign {
    /// The bugs of its store.
    planted: &'static str,
    directory: TempDir,
}

/// The output of a run of a campaign.
#[derive(Debug)]
struct Told {
    code: Option<i32>,
    lines: Vec<String>,
}

impl Told {
    /// The words of all lines of a kind.
    fn of<'t>(&'t self, kind: &'t str) -> impl Iterator<Item = Vec<&'t str>> {
        let words = self
            .lines
            .iter()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        words.filter(move |words| words.first() == Some(&kind))
    }

    /// The codes of all findings.
    fn codes(&self) -> BTreeSet<&str> {
        self.of("finding").map(|words| words[1]).collect()
    }
}

impl Campaign {
    /// On a store with these bugs, and with these initial inputs.
    fn new(planted: &'static str, seeds: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("seeds")).expect("a directory");
        for (number, seed) in seeds.iter().enumerate() {
            let path = directory.path().join(format!("seeds/{number}"));
            fs::write(path, seed).expect("a seed");
        }
        Self { planted, directory }
    }

    fn out(&self) -> PathBuf {
        self.directory.path().join("out")
    }

    /// Runs the helper with a command.
    fn helper(&self, words: &[&str]) -> Told {
        let output = Command::new(env!("CARGO_BIN_EXE_powerfail-fuzz-helper"))
            .arg(runtime::path())
            .arg(self.out())
            .args(words)
            .current_dir(self.directory.path())
            .output()
            .expect("the helper runs");
        let text = String::from_utf8_lossy(&output.stdout);
        Told {
            code: output.status.code(),
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    /// Runs it until all of these codes are found.
    fn until(&self, codes: &str) -> Told {
        let guard = GUARD_MS.to_string();
        let store = store().to_str().expect("a name");
        self.helper(&["new", &guard, "2", codes, store, "{pool}", self.planted])
    }

    /// Runs it until there are this many images.
    fn until_images(&self, count: u64) -> Told {
        self.until(&format!("images={count}"))
    }
}
