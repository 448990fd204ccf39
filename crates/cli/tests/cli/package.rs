//! The Debian package, and the licences of what is in it.

use std::path::Path;
use std::process::Command;

use xtask::{deb, notices};

#[test]
fn the_package_has_everything() {
    let folder = tempfile::tempdir().expect("a folder");
    let binary = Path::new(env!("CARGO_BIN_EXE_powerfail"));
    // Compressing a debug build takes a while.
    let package = deb::build(binary, folder.path(), "-Znone").expect("a package");
    let ask = |question: &str| {
        let output = Command::new("dpkg-deb")
            .arg(question)
            .arg(&package)
            .output();
        let output = output.expect("dpkg-deb");
        assert!(output.status.success(), "{question}");
        String::from_utf8(output.stdout).expect("text")
    };
    let contents = ask("--contents");
    for file in [
        "./usr/bin/powerfail\n",
        "./usr/bin/cargo-powerfail\n",
        "./usr/share/man/man1/powerfail.1.gz\n",
        "./usr/share/man/man1/powerfail-check.1.gz\n",
        "./usr/share/bash-completion/completions/powerfail\n",
        "./usr/share/zsh/vendor-completions/_powerfail\n",
        "./usr/share/fish/vendor_completions.d/powerfail.fish\n",
        "./usr/include/powerfail.h\n",
        "./usr/share/pkgconfig/powerfail.pc\n",
        "./usr/lib/cmake/powerfail/powerfailConfig.cmake\n",
        "./usr/share/doc/powerfail/copyright\n",
        "./usr/share/doc/powerfail/third-party.md\n",
    ] {
        assert!(contents.contains(file), "no {file} in {contents}");
    }
    let control = ask("--info");
    for words in [" Package: powerfail\n", " Depends: libc6 (>= 2."] {
        assert!(control.contains(words), "no `{words}` in {control}");
    }
}

#[test]
fn what_is_installed_runs_with_glibc_2_31() {
    for file in [
        env!("CARGO_BIN_EXE_powerfail"),
        env!("CARGO_BIN_EXE_cargo-powerfail"),
        env!("POWERFAIL_RUNTIME"),
        env!("POWERFAIL_QEMU_PLUGIN"),
    ] {
        let version = deb::newest_libc(Path::new(file)).expect("a version");
        let minor = version
            .strip_prefix("2.")
            .and_then(|it| it.parse::<u32>().ok());
        assert!(
            minor.is_some_and(|minor| minor <= 31),
            "{file} needs glibc {version}; see crates/runtime-build/src/older_glibc.c"
        );
    }
}

#[test]
fn every_licence_is_allowed() {
    let crates = notices::crates().expect("the crates");
    assert!(crates.len() > 50, "only {} crates", crates.len());
    let allowed = notices::allowed().expect("a list");
    let refused: Vec<_> = crates
        .iter()
        .filter(|it| !notices::is_allowed(&it.license, &allowed))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn expressions_of_licences_are_read() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("Unlicense/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(GPL-3.0 OR MIT) AND MIT", true),
        ("Apache-2.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("(MIT", false),
        ("MIT MIT", false),
        ("", false),
    ] {
        assert_eq!(
            notices::is_allowed(expression, &allowed),
            expected,
            "{expression}"
        );
    }
}
