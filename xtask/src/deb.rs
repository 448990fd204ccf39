//! The Debian package: the binary, man pages, completions, headers and licences.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::{notices, run};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the package in a directory, from a binary and the one beside it, `cargo-powerfail`. Returns its path.
pub fn build(binary: &Path, out: &Path, compression: &str) -> anyhow::Result<PathBuf> {
    let tree = out.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let usr = tree.join("usr");
    for program in [binary, &binary.with_file_name("cargo-powerfail")] {
        let name = program.file_name().context("a name")?;
        copy(program, &usr.join("bin").join(name), 0o755)?;
    }
    let man = usr.join("share/man/man1");
    fs::create_dir_all(&man)?;
    run(Command::new(binary).args(["man", "--out"]).arg(&man))?;
    for page in fs::read_dir(&man)? {
        run(Command::new("gzip").args(["-9", "-n"]).arg(page?.path()))?;
    }
    for (shell, file) in [
        ("bash", "bash-completion/completions/powerfail"),
        ("zsh", "zsh/vendor-completions/_powerfail"),
        ("fish", "fish/vendor_completions.d/powerfail.fish"),
    ] {
        let script = output(Command::new(binary).args(["completions", shell]))?;
        write(&usr.join("share").join(file), &script)?;
    }
    output(Command::new(binary).args(["header", "--install"]).arg(&usr))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let doc = usr.join("share/doc/powerfail");
    let licenses = ["LICENSE-MIT", "LICENSE-APACHE"];
    let mut copyright =
        b"powerfail is licensed under MIT or Apache 2.0, at your option.\n".to_vec();
    for name in licenses {
        copyright.push(b'\n');
        copyright.extend(fs::read(root.join(name))?);
    }
    write(&doc.join("copyright"), &copyright)?;
    write(&doc.join("third-party.md"), notices::text()?.as_bytes())?;
    write(
        &tree.join("DEBIAN/control"),
        control(binary, &tree)?.as_bytes(),
    )?;
    let package = out.join(format!("powerfail_{VERSION}_amd64.deb"));
    let mut command = Command::new("dpkg-deb");
    command
        .args(["--root-owner-group", compression, "--build"])
        .arg(&tree)
        .arg(&package);
    run(command.stdout(Stdio::null()))?;
    fs::remove_dir_all(&tree)?;
    Ok(package)
}

/// What dpkg knows about the package.
fn control(binary: &Path, tree: &Path) -> anyhow::Result<String> {
    let libc = newest_libc(binary)?;
    let kibibytes = size(tree)?.div_ceil(1024);
    Ok(format!(
        "Package: powerfail\n\
         Version: {VERSION}\n\
         Architecture: amd64\n\
         Section: devel\n\
         Priority: optional\n\
         Installed-Size: {kibibytes}\n\
         Depends: libc6 (>= {libc}), libgcc-s1\n\
         Recommends: gdb\n\
         Maintainer: The developers of powerfail <powerfail@invalid>\n\
         Description: finds crash-consistency bugs\n \
         Records what a program does to persistent memory or to its files, simulates\n \
         power failures, runs the program's own recovery on what they leave, and\n \
         reports each distinct bug at its source lines.\n"
    ))
}

/// The newest version of glibc that a binary needs: `2.31`.
pub fn newest_libc(binary: &Path) -> anyhow::Result<String> {
    let mut command = Command::new("readelf");
    let text = output(command.args(["--wide", "--version-info"]).arg(binary))?;
    newest_of(&String::from_utf8_lossy(&text)).context("the binary names no version of glibc")
}

fn newest_of(text: &str) -> Option<String> {
    // `0x0050:   Name: GLIBC_2.2.5  Flags: none  Version: 3`
    let names = text
        .lines()
        .filter_map(|line| line.split("Name: GLIBC_2.").nth(1));
    let minors = names.filter_map(|rest| {
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
        digits.parse::<u32>().ok()
    });
    Some(format!("2.{}", minors.max()?))
}

fn size(tree: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(tree)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() {
            size(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(sum)
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let context = || path.display().to_string();
    fs::create_dir_all(path.parent().context("a parent")?).with_context(context)?;
    fs::write(path, bytes).with_context(context)
}

fn copy(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().context("a parent")?)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    Ok(())
}

/// What a command prints.
fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::newest_of;

    #[test]
    fn versions_are_compared_as_numbers() {
        let text = "  0x0010: Version: 1  File: libc.so.6  Cnt: 3\n\
            \x20 0x0020:   Name: GLIBC_2.2.5  Flags: none  Version: 4\n\
            \x20 0x0030:   Name: GLIBC_2.34  Flags: none  Version: 3\n\
            \x20 0x0040:   Name: GLIBC_2.4  Flags: none  Version: 2\n";
        assert_eq!(newest_of(text), Some("2.34".to_owned()));
        assert_eq!(newest_of("none"), None);
    }
}
