//! The messages of `powerfail` when it refuses: bad inputs and situations, each with its standard error and exit code,
//! in `messages/refusals.txt`. A changed message shows up there. `POWERFAIL_BLESS=1` rewrites the file.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use powerfail_test_support::expected::assert_file;
use tempfile::TempDir;

/// A program that ends immediately without opening a pool.
const PROGRAM: &str = "/bin/true";

/// The command lines, one per line, in shell syntax. They run in one folder, in this order.
const COMMANDS: &[&str] = &[
    // Command lines.
    "powerfail frobnicate",
    "powerfail chekc",
    "powerfail check",
    "powerfail check --jobs many -- /bin/true",
    "powerfail check --jobs 0 -- /bin/true",
    "powerfail check --timeout soon -- /bin/true",
    "powerfail check --failure-points x --recover true -- /bin/true",
    "powerfail crash text --strategy x --recover true",
    "powerfail check --domain x -- /bin/true",
    "powerfail check --format x -- /bin/true",
    "powerfail check --recover '' -- /bin/true",
    "powerfail check --recover \"a 'quote\" -- /bin/true",
    "powerfail check --client true -- /bin/true",
    "powerfail check --not-pool '[' -- /bin/true",
    "powerfail check --pool '/mnt/[b-a]' -- /bin/true",
    "powerfail record --not-pool 'a[' -- /bin/true",
    "powerfail check --fail-pattern '(' -- /bin/true",
    "powerfail check --ack '[' -- /bin/true",
    "powerfail crash text --threshold 0 --strategy eager --recover true",
    "powerfail check --no-such-flag -- /bin/true",
    "powerfail record -o",
    "powerfail races",
    "powerfail crash",
    "powerfail replay",
    "powerfail fuzz",
    "powerfail fuzz --out out -- /bin/true",
    "powerfail explain PF9999",
    "powerfail completions x",
    "powerfail trace events",
    "powerfail trace events missing --kind y",
    // Files.
    "powerfail trace events missing",
    "powerfail trace events empty",
    "powerfail trace events text",
    "powerfail trace states folder",
    "powerfail model check missing.json",
    "powerfail model check text",
    "powerfail crash missing --recover true",
    "powerfail crash text --recover true",
    "powerfail races text --recover true",
    "powerfail replay F1",
    "powerfail replay --out folder F1",
    "powerfail man --out /does/not/exist",
    // Targets.
    "powerfail record -o out.trace -- ./missing",
    "powerfail record -o out.trace -- ./text",
    "powerfail record -o /does/not/exist/trace -- /bin/true",
    "powerfail check --out out -- ./missing",
    "powerfail check --out out --tree missing -- /bin/true",
    "powerfail check --out out --tree text -- /bin/true",
    // Configuration files.
    "cd unknown-key && powerfail check -- /bin/true",
    "cd wrong-type && powerfail check -- /bin/true",
    "cd wrong-value && powerfail check -- /bin/true",
    "cd no-toml && powerfail check -- /bin/true",
];

/// The folder in which the commands run.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("a file that can be written");
    };
    write("empty", "");
    write("text", "this is no trace\n");
    for (name, text) in [
        ("unknown-key", "[check]\ntimeuot = \"3s\"\n"),
        ("wrong-type", "[check]\nper-stack = true\n"),
        ("wrong-value", "[check]\ntimeout = \"soon\"\n"),
        ("no-toml", "[check\n"),
    ] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
        write(&format!("{name}/powerfail.toml"), text);
    }
    fs::create_dir(folder.path().join("folder")).expect("a folder");
    folder
}

#[test]
fn refusals_say_what_is_wrong() {
    assert!(Path::new(PROGRAM).exists(), "{PROGRAM} is missing");
    let folder = folder();
    let binary = Path::new(env!("CARGO_BIN_EXE_powerfail"));
    let path = std::env::var("PATH").expect("a path");
    let path = format!("{}:{path}", binary.parent().expect("a folder").display());
    let mut shown = String::new();
    for line in COMMANDS {
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("COLUMNS", "100")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let code = output.status.code().expect("not ended by a signal");
        assert_ne!(code, 0, "{line}: nothing is refused");
        let stderr = String::from_utf8(output.stderr).expect("text");
        let stderr = stderr.replace(&folder.path().display().to_string(), "FOLDER");
        assert!(!stderr.contains("panicked"), "{line}: {stderr}");
        writeln!(shown, "$ {line}\n{stderr}[exit code {code}]\n").expect("memory");
    }
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/messages/refusals.txt");
    assert_file(&expected, &shown);
}
