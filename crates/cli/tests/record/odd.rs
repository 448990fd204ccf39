//! What few programs do to their own process or around their pool: it is recorded, or refused by its name.

use crate::common::{Attempt, Recorder, native, target};

fn program() -> std::path::PathBuf {
    target("odd.c", &["-O2"])
}

fn attempt(arguments: &[&str]) -> Attempt {
    Recorder::new(program(), &[&["{pool}"], arguments].concat()).attempt()
}

#[test]
fn a_filter_of_system_calls_that_the_runtime_needs_is_refused() {
    for how in ["prctl", "seccomp", "strict"] {
        let attempt = attempt(&["restrict", how]);
        assert_eq!(attempt.code, 4, "{how}: {attempt:?}");
        let sentence = "error: the target restricts its system calls with seccomp, and does not allow \
                        rt_sigprocmask, which the runtime needs; run it without its sandbox";
        assert!(attempt.stderr.contains(sentence), "{how}: {attempt:?}");
    }
}

#[test]
fn a_filter_that_allows_what_the_runtime_needs_is_installed() {
    for how in ["asked", "allowed"] {
        let recording = Recorder::new(program(), &["{pool}", "restrict", how]).run();
        recording.assert_exit(0);
        assert_eq!(recording.stores().len(), 1, "{how}");
    }
}

#[test]
fn a_target_that_is_killed_by_a_filter_is_named() {
    let attempt = attempt(&["restrict", "killed"]);
    assert_eq!(attempt.code, 4, "{attempt:?}");
    let sentence =
        "error: the target was killed by SIGSYS: a seccomp filter does not allow a system call";
    assert!(attempt.stderr.contains(sentence), "{attempt:?}");
}

#[test]
fn locking_all_memory_does_not_fill_it() {
    let recording = Recorder::new(program(), &["{pool}", "lock"]).run();
    recording.assert_exit(0);
}

#[test]
fn locks_on_a_pool_outlive_its_truncation() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let native = native(&program(), &[pool.to_str().expect("text"), "truncate"]);
    assert!(native.status.success(), "{native:?}");
    let recording = Recorder::new(program(), &["{pool}", "truncate"]).run();
    recording.assert_exit(0);
}

#[test]
fn a_pool_that_another_program_gets_by_posix_spawn() {
    let dynamic = program();
    let attempted = attempt(&["spawn", dynamic.to_str().expect("text")]);
    assert_eq!(attempted.code, 4, "{attempted:?}");
    for words in [
        "/pool with system calls without having mapped it, which is not recorded",
        "the recording of",
    ] {
        assert!(attempted.stderr.contains(words), "{attempted:?}");
    }
    let fixed = target("odd.c", &["-O2", "-static"]);
    let attempted = attempt(&["spawn", fixed.to_str().expect("text")]);
    assert_eq!(attempted.code, 4, "{attempted:?}");
    let words = "is statically linked; link it dynamically to record it; it inherited a descriptor of a pool";
    assert!(attempted.stderr.contains(words), "{attempted:?}");
}
