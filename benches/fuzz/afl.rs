//! AFL++ on the same program.
//!
//! It runs with its deferred fork server: the process is forked when it is about to open its pool. AFL++ has no
//! images, so every execution creates a pool in `/dev/shm`, as it would without a fuzzer.

#![expect(
    clippy::cast_precision_loss,
    reason = "rates are about right in any case"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::shell::{JOBS, Shell};

/// More than any execution takes, even on a busy machine.
const TIMEOUT_MS: &str = "1000";

/// An input that AFL++ kept.
pub(crate) struct Kept {
    /// Since the start.
    pub(crate) time_s: f64,
    pub(crate) input: Vec<u8>,
}

/// The results of a run.
pub(crate) struct Left {
    pub(crate) kept: Vec<Kept>,
    pub(crate) executions: u64,
    pub(crate) executions_per_s: f64,
}

/// Runs one instance per processor; the instances exchange their finds.
pub(crate) fn run(shell: &Shell, time: Duration) -> Left {
    let out = shell.folder.join("afl");
    let pools = tempfile::tempdir_in("/dev/shm").expect("a folder for pools");
    let instances: Vec<Child> = (0..JOBS)
        .map(|number| start(shell, &out, pools.path(), number, time))
        .collect();
    for mut instance in instances {
        let status = instance.wait().expect("an instance");
        assert!(status.success(), "afl-fuzz: {status}");
    }
    let mut left = Left {
        kept: Vec::new(),
        executions: 0,
        executions_per_s: 0.0,
    };
    for number in 0..JOBS {
        let directory = out.join(name(number));
        let stats = fs::read_to_string(directory.join("fuzzer_stats")).expect("statistics");
        let executions = value(&stats, "execs_done");
        left.executions += executions;
        left.executions_per_s += executions as f64 / value(&stats, "run_time").max(1) as f64;
        for folder in ["queue", "crashes", "hangs"] {
            left.kept.extend(kept(&directory.join(folder)));
        }
    }
    left.kept
        .sort_by(|left, right| left.time_s.total_cmp(&right.time_s));
    left
}

fn name(number: usize) -> String {
    format!("instance-{number}")
}

fn start(shell: &Shell, out: &Path, pools: &Path, number: usize, time: Duration) -> Child {
    let mut fuzz = Command::new("afl-fuzz");
    fuzz.arg("-i").arg(&shell.seeds).arg("-o").arg(out);
    fuzz.arg("-x").arg(&shell.dictionary);
    fuzz.args([if number == 0 { "-M" } else { "-S" }, &name(number)]);
    fuzz.args(["-t", TIMEOUT_MS, "-V", &time.as_secs().to_string(), "--"]);
    fuzz.arg(&shell.for_afl).arg(pools.join(name(number)));
    for variable in [
        "AFL_NO_UI",
        "AFL_SKIP_CPUFREQ",
        "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES",
        // Otherwise every persist is an msync, which costs time with AFL++ but not with powerfail.
        "PMEM_IS_PMEM_FORCE",
    ] {
        fuzz.env(variable, "1");
    }
    let log = fs::File::create(shell.folder.join(format!("{}.log", name(number))));
    fuzz.stdin(Stdio::null()).stdout(log.expect("a log"));
    fuzz.stderr(Stdio::null());
    fuzz.spawn().expect("afl-fuzz is installed")
}

/// A number in `fuzzer_stats`.
fn value(stats: &str, key: &str) -> u64 {
    let line = stats.lines().find(|line| {
        let name = line.split(':').next();
        name.is_some_and(|it| it.trim() == key)
    });
    let value = line.and_then(|line| line.split(':').nth(1));
    let number = value.and_then(|value| value.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no {key} in the statistics of AFL++"))
}

/// The inputs of a folder. Their names contain the time of discovery in milliseconds:
/// `id:000001,src:000000,time:1234,...`. An input that one instance takes from another appears twice, which does not
/// matter.
fn kept(folder: &Path) -> Vec<Kept> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter_map(|path: PathBuf| {
            let name = path.file_name()?.to_str()?;
            let time = name
                .split(',')
                .find_map(|part| part.strip_prefix("time:"))?;
            let milliseconds: f64 = time.parse().ok()?;
            Some(Kept {
                time_s: milliseconds / 1000.0,
                input: fs::read(&path).ok()?,
            })
        })
        .collect()
}
