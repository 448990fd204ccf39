//! A binary for older distributions: it is linked with the glibc of Debian 11, and so is the runtime that it carries.
//!
//! A program runs with the glibc that it was linked with, and with all later ones. Packages of Debian 11 are
//! downloaded by apt, which checks their signatures, and unpacked; nothing is installed. The compiler is that of this machine.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::{deb, run};

/// The release whose glibc is used, and the version that it has.
const RELEASE: &str = "bullseye";
const NEWEST: &str = "2.31";
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// Builds the binary in a directory of its own, below `out`. Returns its path.
pub fn build(cargo: fn(&[&str]) -> Command, out: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(out)?;
    let out = out.canonicalize()?;
    let sysroot = sysroot(&out)?;
    let linker = linker(&sysroot, &out)?;
    let mut command = cargo(&["build", "--release", "--locked", "--package", "powerfail"]);
    command.arg("--target-dir").arg(out.join("build"));
    // Also the build of the runtime inherits it.
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", linker);
    run(&mut command)?;
    let binary = out.join("build/release/powerfail");
    // The runtime is inside, so this is about both.
    let needed = deb::newest_libc(&fs::read(&binary)?).context("it names no version of glibc")?;
    let minor = |version: &str| version.split('.').nth(1)?.parse::<u32>().ok();
    if minor(&needed) > minor(NEWEST) {
        bail!("{} needs glibc {needed}", binary.display());
    }
    println!("{} needs glibc {needed}", binary.display());
    Ok(binary)
}

/// The C library of the release, unpacked.
fn sysroot(out: &Path) -> anyhow::Result<PathBuf> {
    let sysroot = out.join("sysroot");
    if sysroot.join("complete").exists() {
        return Ok(sysroot);
    }
    let apt = out.join("apt");
    for folder in ["lists/partial", "cache/archives/partial", "state"] {
        fs::create_dir_all(apt.join(folder))?;
    }
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let source = format!("deb [signed-by={key}] http://deb.debian.org/debian {RELEASE} main\n");
    fs::write(apt.join("sources.list"), source)?;
    fs::write(apt.join("status"), "")?;
    let apt_get = || {
        let mut command = Command::new("apt-get");
        for (option, value) in [
            ("Dir::Etc::sourcelist", apt.join("sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".into()),
            ("Dir::State", apt.join("state")),
            ("Dir::State::lists", apt.join("lists")),
            ("Dir::State::status", apt.join("status")),
            ("Dir::Cache", apt.join("cache")),
        ] {
            command.arg(format!("-o{option}={}", value.display()));
        }
        command.args(["-oAPT::Sandbox::User=root", "-oAcquire::Languages=none"]);
        command.arg("--quiet").current_dir(&apt);
        command
    };
    run(apt_get().arg("update"))?;
    // The unwinder of this machine needs the glibc of this machine.
    run(apt_get().args(["download", "libc6", "libc6-dev", "libgcc-s1"]))?;
    for entry in fs::read_dir(&apt)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(path).arg(&sysroot))?;
        }
    }
    for folder in ["lib64".to_owned(), format!("usr/{LIBRARIES}")] {
        make_relative(&sysroot, &sysroot.join(folder))?;
    }
    fs::write(sysroot.join("complete"), "")?;
    Ok(sysroot)
}

/// Lets absolute links in a folder lead to files of the sysroot.
fn make_relative(sysroot: &Path, folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let Ok(to) = fs::read_link(&path) else {
            continue;
        };
        if let Ok(inside) = to.strip_prefix("/") {
            fs::remove_file(&path)?;
            symlink(sysroot.join(inside), &path)?;
        }
    }
    Ok(())
}

/// A linker that takes the libraries of the sysroot before those of this machine.
fn linker(sysroot: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    let linker = out.join("linker.sh");
    let root = sysroot.display();
    let script = format!(
        "#!/bin/sh\nexec cc --sysroot='{root}' -B'{root}/usr/{LIBRARIES}/' -L'{root}/usr/{LIBRARIES}' -L'{root}/{LIBRARIES}' \"$@\"\n"
    );
    fs::write(&linker, script)?;
    fs::set_permissions(&linker, fs::Permissions::from_mode(0o755))?;
    Ok(linker)
}
