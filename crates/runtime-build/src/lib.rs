//! Builds the runtime, the library that is loaded into targets, and the plugin of QEMU, which records others.
//!
//! Cargo cannot depend on a `cdylib` of another crate as a file, so cargo is called a second time, with a target
//! directory of its own. The build script of the CLI and the tests call this one function, so the library that is
//! tested is the library that ships. Its settings are `[profile.runtime]` in the root `Cargo.toml`.
//!
//! The directory is `runtime` inside the target directory, shared by all profiles and by `cargo check`, `clippy`,
//! `doc`, `test` and `bench`: the runtime is compiled once. Cargo's own lock lets one build at a time into it.

pub mod older_glibc;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that are linked into the runtime and into the plugin of QEMU, and the one that says how.
const CRATES: [&str; 6] = [
    "runtime",
    "qemu-plugin",
    "patch",
    "protocol",
    "unwind",
    "runtime-build",
];

/// The files and directories that the library is built from.
pub fn sources() -> Vec<PathBuf> {
    let workspace = workspace();
    let of_crates = CRATES.iter().flat_map(|name| {
        let folder = workspace.join("crates").join(name);
        [folder.join("src"), folder.join("Cargo.toml")]
    });
    of_crates
        .chain([workspace.join("Cargo.lock"), workspace.join("Cargo.toml")])
        .collect()
}

/// The libraries, as files.
#[derive(Clone, Debug)]
pub struct Libraries {
    /// The runtime.
    pub runtime: PathBuf,
    /// The plugin of QEMU.
    pub plugin: PathBuf,
}

/// Builds the libraries, if a source has changed since the last time, and returns their paths.
///
/// # Panics
///
/// If cargo cannot be started or a library does not compile.
pub fn build(target_directory: &Path) -> Libraries {
    let own = target_directory.join("runtime");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--locked", "--profile", "runtime"])
        .args(["--package", "powerfail-runtime"])
        .args(["--package", "powerfail-qemu-plugin", "--target-dir"])
        .arg(&own)
        .current_dir(workspace());
    // Flags and wrappers of the outer build, clippy for one, are not meant for this one.
    for name in [
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
    ] {
        command.env_remove(name);
    }
    let status = command.status().expect("cargo runs");
    assert!(
        status.success(),
        "the runtime or the plugin of QEMU does not build: {status}"
    );
    Libraries {
        runtime: older_glibc::finished(&own.join("runtime/libpowerfail_runtime.so"), &own),
        plugin: own.join("runtime/libpowerfail_qemu_plugin.so"),
    }
}

/// The commit of the sources, for `powerfail --version`: `commit 0c27f869 of 2026-11-17`, and whether files were changed
/// since. Sources of an archive have none.
pub fn commit() -> String {
    let Some(commit) = git(&["log", "-1", "--format=%h of %cs"]) else {
        return "sources without a repository".to_owned();
    };
    let is_changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|it| !it.is_empty());
    let changes = if is_changed { ", with changes" } else { "" };
    format!("commit {commit}{changes}")
}

/// The file that each commit changes.
pub fn commit_log() -> Option<PathBuf> {
    let path = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    let path = workspace().join(path);
    path.is_file().then_some(path)
}

/// The compiler, as it names itself.
pub fn compiler() -> String {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok()
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "an unknown compiler".to_owned())
}

/// What git answers, if these are sources of a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(workspace())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
