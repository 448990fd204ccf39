//! What a run of the oracle costs, as a multiple of starting and waiting for the same command with
//! `posix_spawn`. Rounds alternate, and the median round counts, so a machine that slows down slows both.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use powerfail_oracle::{
    CommandLine, Oracle, PathMode, PoolMapping, ProcessMode, RecoveryPlan, Settings, Slot,
};

const ROUNDS: usize = 15;
const RUNS: u32 = 100;
const BUDGET_RATIO: f64 = 2.0;

fn main() {
    powerfail_oracle::serve_if_zygote();
    let ways = [
        (
            "own mounts, own processes",
            PathMode::Namespace,
            ProcessMode::Auto,
        ),
        ("own mounts", PathMode::Namespace, ProcessMode::Group),
        ("own processes", PathMode::Substitute, ProcessMode::Auto),
        ("neither", PathMode::Substitute, ProcessMode::Group),
    ];
    println!(
        "{:<30}{:>14}{:>14}{:>8}",
        "/bin/true", "posix_spawn", "oracle", "ratio"
    );
    for (name, paths, processes) in ways {
        let settings = Settings {
            paths,
            processes,
            ..Settings::default()
        };
        match measure(settings) {
            Ok((plain, ours)) => {
                let ratio = ours.as_secs_f64() / plain.as_secs_f64();
                let verdict = if ratio <= BUDGET_RATIO {
                    ""
                } else {
                    "  over budget"
                };
                println!(
                    "{name:<30}{:>11.0?}/s{:>12.0?}/s{ratio:>8.2}{verdict}",
                    1.0 / plain.as_secs_f64(),
                    1.0 / ours.as_secs_f64()
                );
            }
            Err(error) => println!("{name:<30}{error}"),
        }
    }
}

/// The time of one run, plain and by the oracle.
fn measure(settings: Settings) -> Result<(Duration, Duration), powerfail_oracle::OracleError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    for name in ["pools", "image"] {
        std::fs::create_dir(path(name)).expect("a directory");
        std::fs::write(path(name).join("pool"), "").expect("a pool");
    }
    let plan = RecoveryPlan::new(CommandLine::new(["/bin/true", "{pool}"]));
    let mut slot = Oracle::new(plan, settings)?.slot(&[PoolMapping {
        original: path("pools/pool"),
        private: path("image/pool"),
    }])?;
    let mut spawned = Vec::new();
    let mut ours = Vec::new();
    for _ in 0..ROUNDS {
        spawned.push(time(run_plain));
        ours.push(time(|| run_ours(&mut slot)));
    }
    Ok((median(spawned), median(ours)))
}

fn run_plain() {
    // Without a closure to run in the child, the standard library uses posix_spawn.
    let status = Command::new("/bin/true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("/bin/true").success());
}

fn run_ours(slot: &mut Slot) {
    slot.run().expect("a verdict");
}

fn time(mut run: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..RUNS {
        run();
    }
    start.elapsed() / RUNS
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
