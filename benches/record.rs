//! What recording costs: processor time of a target with and without the recorder.
//!
//! Not a criterion bench: a target runs for seconds, and the result is the ratio to the same target without the
//! recorder, start-up included. `ns/event` is the difference, for each event: that of `start` is what it costs to start, and
//! means nothing else. Runs with and without the recorder take turns, so that both have the same share of other load.
//! Needs gcc and libpmemobj, and `powerfail` built in release mode, which `cargo xtask bench record` builds. A name as an
//! option runs one target only.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use powerfail_benches::{compile, here, powerfail};

/// How often each measurement is repeated; the best one counts.
const ROUNDS: usize = 3;

struct Target {
    name: &'static str,
    source: &'static str,
    arguments: &'static [&'static str],
}

const TARGETS: [Target; 7] = [
    Target {
        name: "start",
        source: "start",
        arguments: &[],
    },
    Target {
        name: "btree",
        source: "btree",
        arguments: &["150000"],
    },
    Target {
        name: "hashmap",
        source: "hashmap",
        arguments: &["150000"],
    },
    Target {
        name: "memset",
        source: "memset",
        arguments: &["100"],
    },
    Target {
        name: "copies",
        source: "copies",
        arguments: &["40"],
    },
    Target {
        name: "1 thread",
        source: "threads",
        arguments: &["1", "1500000"],
    },
    Target {
        name: "8 threads",
        source: "threads",
        arguments: &["8", "1500000"],
    },
];

fn main() {
    let powerfail = powerfail();
    let folder = tempfile::tempdir().expect("temporary folder");
    // Cargo adds an option of its own.
    let chosen = std::env::args().skip(1).find(|name| !name.starts_with('-'));
    println!(
        "{:>10} {:>6} {:>10} {:>10} {:>7} {:>12} {:>8} {:>8} {:>8} {:>9}",
        "",
        "stacks",
        "native s",
        "recorded s",
        "ratio",
        "events",
        "ns/event",
        "trapped",
        "B/event",
        "drained s"
    );
    let wanted = |target: &&Target| chosen.as_ref().is_none_or(|name| target.name == name);
    for target in TARGETS.iter().filter(wanted) {
        let source = here().join(format!("record/{}.c", target.source));
        let libraries = ["-O2", "-mclwb", "-lpmemobj", "-lpmem", "-lpthread"];
        let program = compile(&source, folder.path(), &libraries);
        for stacks in ["none", "sites", "full"] {
            let mut best: Option<Run> = None;
            let mut native_s = f64::MAX;
            for _ in 0..ROUNDS {
                native_s = native_s.min(native(&program, target));
                let run = record(&powerfail, &program, target, stacks, folder.path());
                if best.as_ref().is_none_or(|best| run.cpu_s < best.cpu_s) {
                    best = Some(run);
                }
            }
            let best = best.expect("at least one round");
            println!(
                "{:>10} {stacks:>6} {native_s:>10.3} {:>10.3} {:>7.2} {:>12} {:>8.1} {:>7.3}% {:>8.2} {:>9.3}",
                target.name,
                best.cpu_s,
                best.cpu_s / native_s,
                best.events,
                (best.cpu_s - native_s) * 1e9 / best.events,
                100.0 * best.trapped / best.events,
                best.trace_bytes / best.events,
                best.wall_s
            );
        }
    }
}

/// A pool in memory, removed when it is dropped.
struct PoolPath(PathBuf);

impl PoolPath {
    fn new() -> Self {
        Self(PathBuf::from(format!(
            "/dev/shm/powerfail-bench-{}",
            std::process::id()
        )))
    }
}

impl Drop for PoolPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Processor time of the target alone, as the shell's `time` reports it.
fn native(program: &Path, target: &Target) -> f64 {
    let pool = PoolPath::new();
    let script = format!(
        "TIMEFORMAT='%U %S'; time {} {} {} >/dev/null",
        program.display(),
        pool.0.display(),
        target.arguments.join(" ")
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("PMEM_IS_PMEM_FORCE", "1")
        .output()
        .expect("bash runs");
    assert!(
        output.status.success(),
        "{} fails without the recorder",
        target.name
    );
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_default();
    last.split_whitespace()
        .filter_map(|part| part.parse::<f64>().ok())
        .sum()
}

struct Run {
    cpu_s: f64,
    wall_s: f64,
    events: f64,
    trapped: f64,
    trace_bytes: f64,
}

fn record(powerfail: &Path, program: &Path, target: &Target, stacks: &str, folder: &Path) -> Run {
    let pool = PoolPath::new();
    let summary = folder.join("summary.json");
    let status = Command::new(powerfail)
        .args(["record", "--stacks", stacks, "--json", "-o"])
        .arg(folder.join("trace"))
        .arg("--")
        .args([program.as_os_str(), pool.0.as_os_str()])
        .args(target.arguments)
        .stdout(std::fs::File::create(&summary).expect("the folder is writable"))
        .stderr(Stdio::inherit())
        .status()
        .expect("powerfail runs");
    assert!(status.success(), "{} cannot be recorded", target.name);
    let text = std::fs::read_to_string(&summary).expect("the summary is there");
    // The target's own output comes first.
    let start = text.find('{').expect("a JSON object");
    let value: serde_json::Value = serde_json::from_str(&text[start..]).expect("JSON");
    let number = |name: &str| value[name].as_f64().expect("a number");
    Run {
        cpu_s: number("cpu_time_ms") / 1000.0,
        wall_s: number("wall_time_ms") / 1000.0,
        events: number("events"),
        trapped: number("trap_events"),
        trace_bytes: number("trace_bytes"),
    }
}
