//! How well the fuzzer performs on the key-value shell in `tests/targets/fuzz/kv`: which of its planted bugs it finds
//! and when, and how it compares with AFL++. And how it learns the commands of `tests/targets/fuzz/commands`.
//!
//! ```text
//! cargo xtask bench fuzz                          # 30 minutes for bugs, then 15 with each fuzzer
//! cargo xtask bench fuzz --minutes 2 --only bugs  # shorter, and only a part: bugs, afl or learning
//! cargo xtask bench fuzz --only learning --before OLD/powerfail   # compares two versions
//! ```
//!
//! Not a criterion bench: it measures what is found within a time limit. Writes `docs/figures/fuzz-bugs.md`,
//! `docs/figures/fuzz-figures.md`, `docs/figures/fuzz-paths.svg` and `docs/figures/fuzz-learning.md`; with `--minutes` it
//! only prints them, unless `--write` is given as well. Needs gcc, PMDK and AFL++ (Debian's package afl++), and
//! `powerfail` built in release mode, which `cargo xtask bench fuzz` builds. The machine should be otherwise idle.

#[path = "fuzz/afl.rs"]
mod afl;
#[path = "fuzz/bugs.rs"]
mod bugs;
#[path = "fuzz/campaign.rs"]
mod campaign;
#[path = "fuzz/comparison.rs"]
mod comparison;
#[path = "fuzz/found.rs"]
mod found;
#[path = "fuzz/learning.rs"]
mod learning;
#[path = "fuzz/options.rs"]
mod options;
#[path = "fuzz/paths.rs"]
mod paths;
#[path = "fuzz/shell.rs"]
mod shell;

use std::fs;
use std::path::Path;

use options::{Options, Part};
use shell::Shell;

fn main() {
    let options = Options::read(std::env::args().skip(1));
    let folder = tempfile::tempdir().expect("a folder");
    if options.includes(Part::Learning) {
        let text = learning::document(folder.path(), &options);
        put("fuzz-learning.md", &text, &options);
        println!("{text}");
    }
    if !options.includes(Part::Bugs) && !options.includes(Part::Afl) {
        return;
    }
    let shell = Shell::build(folder.path());
    if options.includes(Part::Bugs) {
        let text = found::document(&shell, &options);
        put("fuzz-bugs.md", &text, &options);
        println!("{text}");
    }
    if options.includes(Part::Afl) {
        let (text, picture) = comparison::document(&shell, &options);
        put("fuzz-figures.md", &text, &options);
        println!("{text}");
        put("fuzz-paths.svg", &picture, &options);
    }
}

/// Writes a file of `docs/figures` if `--write` is given.
fn put(name: &str, text: &str, options: &Options) {
    if options.write {
        let figures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures");
        fs::write(figures.join(name), text).expect("a document that can be written");
    }
}
