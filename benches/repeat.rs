//! How fast the repeater is on the key-value shell in `tests/targets/fuzz/kv`: executions per second from one
//! template, by the length of the input; the cost of an image; and, for comparison, one process per execution without
//! any recording.
//!
//! ```text
//! cargo xtask bench repeat
//! cargo xtask bench repeat 8    # for a profiler: only executions of 8 commands
//! ```

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use powerfail_image::DirectoryContents;
use powerfail_recorder::InputChannel;
use powerfail_recorder::executor::{Executor, ExecutorOptions, Opened};
use powerfail_test_support::runtime;

/// How long each figure is measured.
const TIME: Duration = Duration::from_secs(3);

fn main() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let shell = build(folder.path());
    let pool = folder.path().join("pool");
    native(&shell, &pool, folder.path(), b"");
    let contents = DirectoryContents::read(folder.path()).expect("a pool");
    let image = DirectoryContents {
        files: contents
            .files
            .into_iter()
            .filter(|(name, _)| name == "pool")
            .collect(),
    };
    let command = vec![shell.clone().into(), "{pool}".into()];
    let mut options = ExecutorOptions::new(command, InputChannel::Stdin);
    options.timeout = Duration::from_secs(5);
    let begun = Instant::now();
    let mut repeater =
        Executor::start(&options, runtime::bytes()).expect("a target that can be repeated");
    println!("start {:>8.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    for turn in 0..3 {
        let begun = Instant::now();
        let opened = repeater.open(&image).expect("an image");
        assert!(matches!(opened, Opened::Ready));
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        println!("image {ms:>8.1} ms ({turn} before)");
    }
    let only: Option<usize> = std::env::args().find_map(|word| word.parse().ok());
    if let Some(commands) = only {
        let input = input(commands);
        let rate = rate(|| drop(repeater.run(&input).expect("an execution")));
        println!("{commands} commands: {rate:.0}/s");
        return;
    }
    println!("commands  operations  repeated/s  native/s  ratio");
    for commands in [1, 8, 32, 128] {
        let input = input(commands);
        let outcome = repeater.run(&input).expect("an execution");
        let forked = rate(|| {
            repeater.run(&input).expect("an execution");
        });
        let native = rate(|| native(&shell, &pool, folder.path(), &input));
        println!(
            "{commands:>8}  {:>10}  {forked:>10.0}  {native:>8.0}  {:>5.1}",
            outcome.operations,
            forked / native
        );
    }
}

/// This many commands, on all structures.
fn input(commands: usize) -> Vec<u8> {
    let mut text = String::new();
    for number in 0..commands {
        match number % 8 {
            1 => text += ["use hash\n", "use radix\n", "use skip\n", "use btree\n"][number / 8 % 4],
            7 => writeln!(text, "del {}", number / 2).expect("text"),
            _ => writeln!(text, "put {number} {}", number * 3).expect("text"),
        }
    }
    text.into_bytes()
}

/// How many times per second an action can be repeated.
fn rate(mut once: impl FnMut()) -> f64 {
    once();
    let (begun, mut count) = (Instant::now(), 0u32);
    while begun.elapsed() < TIME {
        once();
        count += 1;
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}

/// Runs the uninstrumented shell on a pool that is kept.
fn native(shell: &Path, pool: &Path, folder: &Path, input: &[u8]) {
    let path = folder.join("input");
    fs::write(&path, input).expect("an input");
    let status = Command::new(shell)
        .arg(pool)
        .env("PMEM_IS_PMEM_FORCE", "1")
        .stdin(File::open(&path).expect("an input"))
        .stdout(Stdio::null())
        .status()
        .expect("the shell runs");
    assert!(status.success(), "the shell: {status}");
}

fn build(folder: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/targets/fuzz/kv/build.sh");
    let shell = folder.join("kv");
    let status = Command::new("sh").arg(script).arg(&shell).status();
    assert!(
        status.expect("a script").success(),
        "the shell is not built"
    );
    shell
}
