//! What long recordings cost: time and memory of each step, for maps with ten times as many operations each time.
//!
//! Not a criterion bench. Memory is the most that the process of `powerfail` itself had at once, as the kernel counts it:
//! it must not depend on the number of events. Needs gcc and libpmemobj. The option is the largest power of ten of events;
//! 7 is the default, 9 takes hours and 25 GB of disk.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use powerfail_benches::{compile, here, powerfail};

/// About how many events an insert is.
const EVENTS_PER_INSERT: u64 = 55;
/// How long recoveries are tried.
const BUDGET: &str = "20s";

fn main() {
    let powerfail = powerfail();
    let folder = tempfile::tempdir().expect("temporary folder");
    // Cargo adds an option of its own.
    let largest = std::env::args().skip(1).find_map(|it| it.parse().ok());
    let source = here().join("record/btree.c");
    let program = compile(&source, folder.path(), &["-O2", "-lpmemobj", "-lpmem"]);
    println!(
        "{:>10} {:>8} {:>9} {:>9} {:>9}",
        "inserts", "step", "wall s", "MB", "trace MB"
    );
    for exponent in 4..=largest.unwrap_or(7) {
        let inserts = (10u64.pow(exponent) / EVENTS_PER_INSERT).to_string();
        let trace = folder.path().join("trace");
        let pool = folder.path().join("pool");
        let _ = std::fs::remove_file(&pool);
        let step = |name: &str, arguments: &[&str], behind: &[&Path], words: &[&str]| {
            let mut command = Command::new(&powerfail);
            command.args(arguments).args(behind).args(words);
            let (wall_s, most_mb) = run(&mut command);
            let trace_mb = std::fs::metadata(&trace).map_or(0, |it| it.len() >> 20);
            println!("{inserts:>10} {name:>8} {wall_s:>9.2} {most_mb:>9.1} {trace_mb:>9}");
        };
        let record = ["record", "--tree", "none", "-o"];
        step(
            "record",
            &record,
            &[&trace, Path::new("--"), &program, &pool],
            &[&inserts],
        );
        step("info", &["trace", "info"], &[&trace], &[]);
        step("lint", &["lint"], &[&trace], &[]);
        let recover = format!("{} {{pool}} verify", program.display());
        let crash = [
            "crash",
            "--strategy",
            "prefix",
            "--budget",
            BUDGET,
            "--recover",
            &recover,
        ];
        step("prefix", &crash, &[&trace], &[]);
    }
}

/// Runs a command to its end; how long that took, and how much memory its process had at most.
fn run(command: &mut Command) -> (f64, f64) {
    let begin = Instant::now();
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("powerfail runs");
    let status = format!("/proc/{}/status", child.id());
    let mut most_kb = 0u64;
    while child.try_wait().expect("a child").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        most_kb = most_kb.max(number.unwrap_or(0));
        sleep(Duration::from_millis(5));
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let most_mb = most_kb as f64 / 1024.0;
    (begin.elapsed().as_secs_f64(), most_mb)
}
