//! The programs of `examples` in C++ and Rust: wrong as they are, and right with one switch. Those in C are followed step by step
//! by the guides (`guides.rs`).

use std::process::Command;

use crate::common::{CLEAN, FINDINGS, Folder};

fn build(folder: &Folder, compiler: &str, arguments: &[&str], source: &str, name: &str) {
    let source = format!("{}/../../examples/{source}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-g").arg(source);
    let output = command.arg("-o").arg(folder.path(name)).output();
    let output = output.expect("the compiler is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn the_ledger_in_cpp() {
    let folder = Folder::new();
    let flags = ["-Wall", "-Wextra"];
    build(&folder, "g++", &flags, "ledger.cpp", "wrong");
    build(
        &folder,
        "g++",
        &[&flags[..], &["-DFIXED"]].concat(),
        "ledger.cpp",
        "right",
    );
    let check = |name: &str| {
        folder.powerfail(&[
            "check",
            "--format",
            "json",
            "--",
            &format!("./{name}"),
            "{pool}",
        ])
    };
    assert_eq!(check("wrong").ends_with(FINDINGS).codes(), ["PF0201"]);
    assert!(check("right").ends_with(CLEAN).codes().is_empty());
}

#[test]
fn the_journal_in_rust() {
    let folder = Folder::new();
    let flags = ["--edition=2024", "--check-cfg=cfg(fixed)"];
    build(&folder, "rustc", &flags, "journal.rs", "wrong");
    build(
        &folder,
        "rustc",
        &[&flags[..], &["--cfg=fixed"]].concat(),
        "journal.rs",
        "right",
    );
    let check = |name: &str| {
        let (program, list) = (format!("./{name}"), format!("./{name} {{dir}} list"));
        let options = ["check", "--format", "json", "--ack", "^saved (.*)$"];
        let commands = [
            "--recover",
            &list,
            "--dump",
            &list,
            "--",
            &program,
            "{dir}",
            "add",
        ];
        folder.powerfail(&[&options[..], &commands].concat())
    };
    // On Linux, the sync of a new file keeps its name as well: one sync is missing.
    assert_eq!(check("wrong").ends_with(FINDINGS).codes(), ["PF0903"]);
    assert!(check("right").ends_with(CLEAN).codes().is_empty());
}
