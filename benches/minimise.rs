//! How small, how fast: `powerfail fuzz tmin` on a test case and on a finding of the key-value shell in
//! `tests/targets/fuzz/kv`, with an input of about 900 bytes of which a bug needs four commands.
//!
//! ```text
//! cargo xtask bench minimise
//! ```
//!
//! Not a criterion bench: one run takes seconds, and what counts is the length of the result and the number of trials,
//! which do not depend on the machine. Needs gcc, PMDK, and `powerfail` built in release mode.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use powerfail_benches::{Random, here, powerfail, run};

/// The planted bug: only the first entry of a moved chain is added.
const BUG: &str = "-DBUG=27";

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let shell = folder.join("kv");
    let script = here().join("../tests/targets/fuzz/kv/build.sh");
    run(Command::new(script).arg(&shell).arg(BUG));
    fs::create_dir(folder.join("seeds")).expect("a folder for the seed");
    let input = input();
    fs::write(folder.join("seeds/long"), &input).expect("a seed");
    println!(
        "input: {} bytes, {} lines",
        input.len(),
        input.lines().count()
    );

    campaign(
        folder,
        &shell,
        "case",
        &["--execs", "1", "--check-with", "none"],
    );
    minimise(folder, "case", "1");
    campaign(folder, &shell, "found", &["--until-found", "--time", "10m"]);
    for entry in fs::read_dir(folder.join("found/findings")).expect("findings") {
        let id = entry.expect("a finding").file_name();
        let id = id.to_str().expect("an id");
        minimise(folder, "found", id);
        let smallest = folder.join(format!("found/findings/{id}/minimised.input"));
        println!("{}", fs::read_to_string(smallest).expect("an input"));
    }
}

/// Runs a campaign from the seed.
fn campaign(folder: &Path, shell: &Path, out: &str, flags: &[&str]) {
    let mut fuzz = Command::new(powerfail());
    fuzz.current_dir(folder).args(["fuzz", "--seeds", "seeds"]);
    fuzz.args(["--out", out, "--jobs", "1", "--timeout", "5s"]);
    fuzz.args(flags).arg("--").arg(shell).arg("{pool}");
    let status = fuzz.output().expect("powerfail runs").status;
    assert!(matches!(status.code(), Some(0 | 1)), "{fuzz:?}: {status}");
}

/// Minimises a test case or a finding, and prints how far and how long.
fn minimise(folder: &Path, out: &str, which: &str) {
    let begun = Instant::now();
    let mut tmin = Command::new(powerfail());
    tmin.current_dir(folder).args(["fuzz", "tmin", out, which]);
    let said = run(&mut tmin);
    println!(
        "{} ({:.1} s)",
        said.trim_end(),
        begun.elapsed().as_secs_f64()
    );
}

/// Commands for all four structures. The hash map has a bucket with several entries when it is resized.
fn input() -> String {
    let mut random = Random::new(5);
    let mut lines = Vec::new();
    let mut some = |lines: &mut Vec<String>, count: u64, keys: u64| {
        for _ in 0..count {
            let key = 1 + random.below(keys);
            lines.push(match random.below(6) {
                0 => format!("get {key}"),
                1 => format!("del {key}"),
                2 => format!("range {key} {}", key + 20),
                _ => format!("put {key} {}", 1 + random.below(9999)),
            });
        }
    };
    lines.push("use btree".into());
    some(&mut lines, 22, 60);
    lines.push("use hash".into());
    some(&mut lines, 8, 60);
    for key in [104, 208, 312] {
        lines.push(format!("put {key} 4711"));
        some(&mut lines, 2, 60);
    }
    lines.extend(["resize 64", "count", "put 777 1234", "use skip"].map(String::from));
    some(&mut lines, 20, 60);
    lines.push("use radix".into());
    some(&mut lines, 22, 900);
    lines.join("\n") + "\n"
}
