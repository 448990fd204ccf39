//! `powerfail header --install`, and tests with powerfail in build systems.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::powerfail;

/// The installed files, with the binary that is tested in `bin`.
fn installed() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().join("prefix");
    let run = powerfail(&["header", "--install", prefix.to_str().expect("text")]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let named: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(named.len(), 4);
    assert!(named.iter().all(|it| Path::new(it).is_file()), "{named:?}");
    let binary = prefix.join("bin/powerfail");
    std::fs::create_dir(prefix.join("bin")).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_powerfail"), binary).expect("a link");
    (folder, prefix)
}

/// What a command wrote, and whether it succeeded.
fn run(command: &mut Command) -> (bool, String) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let (succeeds, text) = run(command);
    assert!(succeeds, "{command:?}: {text}");
    text
}

/// The right program passes; without its flush the test fails, and shows the finding.
#[track_caller]
fn judge(result: (bool, String), is_right: bool) {
    let (succeeds, text) = result;
    assert_eq!(succeeds, is_right, "{text}");
    assert_eq!(text.contains("error[PF0101]"), !is_right, "{text}");
}

const WRONG: &str = "-DWITHOUT_FLUSH";

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/build")
}

#[test]
fn pkg_config_finds_the_header() {
    let (_folder, prefix) = installed();
    let ask = |question: &str| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("share/pkgconfig"));
        succeeds(command.args([question, "powerfail"]))
    };
    assert_eq!(ask("--modversion").trim(), env!("CARGO_PKG_VERSION"));
    let flags = ask("--cflags");
    let directory = flags.trim().strip_prefix("-I");
    let header = Path::new(directory.expect("a directory")).join("powerfail.h");
    assert!(header.is_file(), "{}", header.display());
}

#[test]
fn ctest_runs_a_check() {
    let (folder, prefix) = installed();
    for (flags, is_right) in [("", true), (WRONG, false)] {
        let build = folder.path().join(format!("cmake{is_right}"));
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(example()).arg("-B").arg(&build);
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
        succeeds(configure.arg(format!("-DCMAKE_C_FLAGS={flags}")));
        succeeds(Command::new("cmake").arg("--build").arg(&build));
        let mut test = Command::new("ctest");
        judge(
            run(test.arg("--output-on-failure").current_dir(&build)),
            is_right,
        );
        let evidence = build.join("powerfail/store-survives/report.json");
        assert!(evidence.is_file(), "{}", evidence.display());
    }
}

#[test]
fn meson_runs_a_check() {
    let (folder, prefix) = installed();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = [prefix.join("bin")]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let path = std::env::join_paths(paths).expect("a path");
    let meson = || {
        let mut command = Command::new("meson");
        command.env("PKG_CONFIG_PATH", prefix.join("share/pkgconfig"));
        command.env("PATH", &path).current_dir(example());
        command
    };
    for (flags, is_right) in [("", true), (WRONG, false)] {
        let build = folder.path().join(format!("meson{is_right}"));
        succeeds(meson().arg("setup").arg(&build).env("CFLAGS", flags));
        let mut test = meson();
        judge(
            run(test.args(["test", "--print-errorlogs", "-C"]).arg(&build)),
            is_right,
        );
    }
}
