//! Real programs, built by the compiler of this machine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use powerfail_recorder::{RecordError, RecordOptions, Unsupported, inspect, record};

/// Builds an empty program. `None` if the compiler does not support the flags.
fn build(directory: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = directory.join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = directory.join(name);
    let status = Command::new("cc")
        .args(flags)
        .arg("-o")
        .args([&program, &source])
        .stderr(Stdio::null())
        .status()
        .ok()?;
    status.success().then_some(program)
}

fn script(directory: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn unsupported(path: &Path) -> Unsupported {
    match inspect(path.as_os_str()) {
        Err(RecordError::Unsupported(unsupported)) => unsupported,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_can_and_cannot_be_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let dynamic = build(directory, "dynamic", &[]).expect("a C compiler");
    let executable = inspect(dynamic.as_os_str()).unwrap();
    assert_eq!(
        (&executable.path, &executable.program),
        (&dynamic, &dynamic)
    );
    if let Some(no_pie) = build(directory, "no-pie", &["-no-pie"]) {
        assert!(inspect(no_pie.as_os_str()).is_ok());
    }
    for (name, flag) in [("static", "-static"), ("static-pie", "-static-pie")] {
        if let Some(program) = build(directory, name, &[flag]) {
            assert_eq!(
                unsupported(&program),
                Unsupported::Static {
                    program: program.clone()
                }
            );
            let options = RecordOptions::new(vec![program.into()], directory.join("trace"));
            assert!(matches!(
                record(&options, &[]),
                Err(RecordError::Unsupported(_))
            ));
            assert!(!directory.join("trace").exists());
        }
    }
    if let Some(program) = build(directory, "thirty-two", &["-m32"]) {
        assert_eq!(unsupported(&program), Unsupported::ThirtyTwoBit { program });
    }

    let mut arm = std::fs::read(&dynamic).unwrap();
    arm[18] = 183;
    let program = directory.join("arm");
    std::fs::write(&program, &arm).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        unsupported(&program),
        Unsupported::Architecture {
            program: program.clone(),
            machine: 183
        }
    );
    arm[4] = 1;
    std::fs::write(&program, &arm).unwrap();
    assert_eq!(
        unsupported(&program),
        Unsupported::ThirtyTwoBit {
            program: program.clone()
        }
    );
    arm.truncate(30);
    arm[4] = 2;
    arm[18] = 62;
    std::fs::write(&program, &arm).unwrap();
    assert_eq!(unsupported(&program), Unsupported::NotElf { program });

    std::fs::set_permissions(&dynamic, std::fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(
        unsupported(&dynamic),
        Unsupported::SetId {
            program: dynamic.clone()
        }
    );
    assert_eq!(
        unsupported(&dynamic).to_string(),
        format!(
            "{} is setuid or setgid; record a copy without these bits",
            dynamic.display()
        )
    );
}

#[test]
fn scripts_lead_to_their_interpreters() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let shell = script(directory, "shell", "#!/bin/sh -e\ntrue\n", 0o755);
    let executable = inspect(shell.as_os_str()).unwrap();
    assert_eq!(
        (executable.path, executable.program),
        (shell.clone(), PathBuf::from("/bin/sh"))
    );
    let nested = script(
        directory,
        "nested",
        &format!("#! {}\n", shell.display()),
        0o755,
    );
    assert_eq!(
        inspect(nested.as_os_str()).unwrap().program,
        Path::new("/bin/sh")
    );
    let own = directory.join("own");
    script(directory, "own", &format!("#!{}\n", own.display()), 0o755);
    assert_eq!(
        unsupported(&own),
        Unsupported::InterpreterDepth { program: own }
    );
    let plain = script(directory, "plain", "true\n", 0o755);
    assert_eq!(unsupported(&plain), Unsupported::NotElf { program: plain });
    let lost = script(directory, "lost", "#!/nowhere/at/all\n", 0o755);
    assert!(matches!(
        inspect(lost.as_os_str()),
        Err(RecordError::NotFound { .. })
    ));
}

#[test]
fn what_is_not_there_is_no_matter_of_support() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(
        inspect("powerfail-no-such-program".as_ref()),
        Err(RecordError::NotFound { .. })
    ));
    assert!(matches!(
        inspect(directory.path().join("x").as_os_str()),
        Err(RecordError::NotFound { .. })
    ));
    let text = script(directory.path(), "text", "#!/bin/sh\n", 0o644);
    assert!(matches!(
        inspect(text.as_os_str()),
        Err(RecordError::NotExecutable { .. })
    ));
    assert!(matches!(
        inspect(directory.path().as_os_str()),
        Err(RecordError::NotExecutable { .. })
    ));
    assert!(matches!(
        record(&RecordOptions::new(Vec::new(), "trace"), &[]),
        Err(RecordError::EmptyCommand)
    ));
}
