//! Campaigns without a seed on programs that read the same commands in different ways, and the recipe for AFL++.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{CLEAN, Folder};
use crate::has_run;

/// The operations of `tests/targets/fuzz/commands/table.h`, in its order.
const OPERATIONS: [&str; 6] = ["put", "put again", "delete", "swap", "fill", "clear"];

/// A folder with a program of `tests/targets/fuzz/commands` as `./program`.
fn folder_with(source: &str) -> Folder {
    let folder = Folder::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets/fuzz/commands");
    let is_cpp = Path::new(source).extension().is_some_and(|it| it == "cpp");
    let compiler = if is_cpp { "g++" } else { "gcc" };
    let output = folder
        .command(compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o", "program"])
        .arg(sources.join(source))
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "{source}: {output:?}");
    folder
}

/// The operations that inputs reach, each input on a new pool.
fn reached(folder: &Folder, inputs: &[PathBuf]) -> BTreeSet<&'static str> {
    let pool = folder.path("pool");
    let mut reached = BTreeSet::new();
    for input in inputs {
        let _ = fs::remove_file(&pool);
        folder
            .command("./program")
            .arg("pool")
            .stdin(fs::File::open(input).expect("an input"))
            .status()
            .expect("the program runs");
        let marks = fs::read(&pool).expect("a pool");
        let marks = marks.chunks_exact(8).zip(OPERATIONS);
        reached.extend(marks.filter(|(mark, _)| mark[0] != 0).map(|(_, name)| name));
    }
    reached
}

fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a folder").flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_file()).collect()
}

/// A campaign without a seed reaches every operation within this many executions.
fn reaches_everything(source: &str, executions: &str) {
    let folder = folder_with(source);
    let run = folder.powerfail(&[
        "fuzz",
        "--out",
        "out",
        "--jobs",
        "1",
        "--seed",
        "1",
        "--execs",
        executions,
        // Nothing hangs, however busy the machine is.
        "--timeout",
        "20s",
        "--check-with",
        "none",
        "--",
        "./program",
        "{pool}",
    ]);
    has_run(&run);
    let inputs = files_of(&folder.path("out/queue"));
    assert_eq!(reached(&folder, &inputs), BTreeSet::from(OPERATIONS));
}

#[test]
fn commands_behind_sscanf() {
    reaches_everything("scanned.c", "1500");
}

#[test]
fn commands_behind_strtok_and_strcmp() {
    reaches_everything("split.c", "1500");
}

#[test]
fn commands_behind_a_switch() {
    reaches_everything("switched.c", "1500");
}

#[test]
fn commands_whose_comparisons_are_inlined() {
    reaches_everything("inlined.c", "1500");
}

#[test]
fn commands_behind_cpp_strings() {
    reaches_everything("strings.cpp", "1500");
}

/// The commands of docs/guide/fuzzing.md, for a number of executions.
#[test]
fn the_recipe_for_afl_finds_commands() {
    let folder = folder_with("scanned.c");
    fs::create_dir(folder.path("seeds")).expect("a folder");
    folder.write("seeds/empty", "\n");
    let output = folder
        .command("timeout")
        .args(["--kill-after=10", "300"])
        .args(["afl-fuzz", "-i", "seeds", "-o", "afl-out", "-t", "5000"])
        .args(["-s", "1", "-E", "500", "--"])
        .arg(env!("CARGO_BIN_EXE_powerfail"))
        .args([
            "fuzz",
            "afl",
            "--timeout",
            "5s",
            "--",
            "./program",
            "{pool}",
        ])
        .env("AFL_NO_UI", "1")
        .env("AFL_NO_AFFINITY", "1")
        .env("AFL_SKIP_CPUFREQ", "1")
        .env("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1")
        .output()
        .expect("afl-fuzz is installed");
    assert_eq!(output.status.code(), Some(CLEAN), "{output:?}");
    let inputs = files_of(&folder.path("afl-out/default/queue"));
    let reached = reached(&folder, &inputs);
    for name in ["put", "fill", "clear"] {
        assert!(reached.contains(name), "{name} in {reached:?}: {output:?}");
    }
}
