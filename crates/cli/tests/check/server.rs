//! A workload that is a server: it is stopped after its client ends, and a signal from the user is not mistaken for
//! that.

use crate::common::{CLEAN, Folder, Run, SETUP};

fn check_server(client: &str) -> Run {
    let folder = Folder::new();
    folder.build_own("server", "server.c", &[]);
    folder.powerfail(&[
        "check",
        "--ready",
        "output:ready",
        "--client",
        client,
        "--",
        "./server",
        "{pool}",
    ])
}

#[test]
fn a_server_without_a_stop_command_is_stopped() {
    let run = check_server("true");
    assert!(!run.stderr.contains("interrupted"), "{}", run.stderr);
    run.ends_with(CLEAN);
}

#[test]
fn a_signal_while_a_server_is_recorded_ends_the_check() {
    // The parent of the client is powerfail.
    let run = check_server("sh -c 'kill -TERM $PPID'");
    run.is_refused_with(SETUP, &["interrupted while the workload was recorded"]);
}

#[test]
fn a_client_gets_the_path_of_the_pool() {
    let folder = Folder::new();
    folder.build_own("server", "server.c", &[]);
    let run = folder.powerfail(&[
        "check",
        "--ready",
        "output:ready",
        "--client",
        "test -e {pool}",
        "--client-recover",
        "test -e {pool}",
        "--",
        "./server",
        "{pool}",
    ]);
    run.ends_with(CLEAN);
}
