//! Nothing is left behind. All processes that a recovery starts hold the write end of a pipe: its reader knows when
//! the last of them has ended.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use powerfail_oracle::OracleError;

use crate::support::{Place, WAYS, failure, is_success, shell};

/// A named pipe, opened for reading.
fn pipe(path: &Path) -> File {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    OpenOptions::new()
        .read(true)
        .custom_flags(0o4000)
        .open(path)
        .unwrap()
}

/// Whether the pipe delivered the expected text and has no writer any more.
fn is_deserted(mut pipe: &File, expected: &str) -> bool {
    let mut text = String::new();
    match pipe.read_to_string(&mut text) {
        Ok(_) => {
            assert_eq!(text, expected);
            true
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

/// A child, a grandchild and a daemon in its own session, whose parent has ended.
const FAMILY: &str = "(sleep 1111 & sleep 1111) & \
    setsid sh -c 'trap \"\" TERM HUP INT; sleep 1111 & sleep 1111 & exit' & \
    sleep 1111 &";

#[test]
fn what_recovery_started_ends_with_it() {
    for way in WAYS {
        let place = Place::new();
        let path = place.path("elsewhere/fifo");
        let reader = pipe(&path);
        let script = format!("exec 9>{}; echo up >&9; {FAMILY} exit 0", path.display());
        let mut slot = place.slot(&shell(&script), way);
        for _ in 0..3 {
            assert!(is_success(&slot.run().unwrap()));
            assert!(is_deserted(&reader, "up\n"), "{way:?}");
        }
    }
}

#[test]
fn a_hang_is_ended_with_its_family() {
    for way in WAYS {
        let place = Place::new();
        let path = place.path("elsewhere/fifo");
        let reader = pipe(&path);
        let path = path.display();
        let script = format!("exec 9>{path}; echo up >&9; {FAMILY} echo > $EXPIRE; wait");
        let plan = place.expiring(&shell(&script));
        failure(place.run(&plan, way));
        assert!(is_deserted(&reader, "up\n"), "{way:?}");
    }
}

#[test]
fn nothing_survives_an_oracle_that_is_killed() {
    for mode in ["namespaces", "group"] {
        let place = Place::new();
        let path = place.path("elsewhere/fifo");
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let script = format!("exec 9>{}; echo up >&9; {FAMILY} wait", path.display());
        let mut oracle = Command::new(env!("CARGO_BIN_EXE_powerfail-oracle-helper"))
            .args([mode.as_ref(), place.original().as_os_str()])
            .args([place.private().as_os_str(), script.as_ref()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut reader = File::open(&path).unwrap();
        let mut up = [0; 3];
        reader.read_exact(&mut up).unwrap();
        oracle.kill().unwrap();
        oracle.wait().unwrap();
        // Returns when the last descendant has ended.
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
        let marker = path.to_str().unwrap();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            assert!(!line.contains(marker), "{line} is still there");
        }
    }
}

#[test]
fn a_zygote_that_is_killed_is_an_error() {
    let place = Place::new();
    for way in WAYS {
        let mut slot = place.slot(&shell("true"), way);
        assert!(is_success(&slot.run().unwrap()));
        let handle = slot.kill_handle();
        handle.kill();
        // A run that had already begun may still succeed.
        let error = std::iter::repeat_with(|| slot.run()).find_map(Result::err);
        assert!(matches!(error, Some(OracleError::ZygoteDied)), "{error:?}");
        handle.kill();
        drop(slot);
        handle.kill();
    }
}

#[test]
fn a_recovery_is_killed_from_another_thread() {
    let place = Place::new();
    let started = place.path("elsewhere/started");
    assert!(
        Command::new("mkfifo")
            .arg(&started)
            .status()
            .unwrap()
            .success()
    );
    for way in WAYS {
        let fifo = started.display();
        let script = format!("echo > {fifo}; read forever < {fifo}");
        let mut slot = place.slot(&shell(&script), way);
        let handle = slot.kill_handle();
        std::thread::scope(|scope| {
            let run = scope.spawn(move || slot.run());
            std::fs::read(&started).unwrap();
            handle.kill();
            let error = run.join().unwrap().unwrap_err();
            assert!(matches!(error, OracleError::ZygoteDied), "{error}");
        });
    }
}

#[test]
fn recovery_cannot_end_its_zygote() {
    let place = Place::new();
    let mut slot = place.slot(&shell("kill -9 1 -1; true"), WAYS[0]);
    for _ in 0..3 {
        slot.run().unwrap();
    }
}
