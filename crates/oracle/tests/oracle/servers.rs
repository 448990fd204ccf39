//! Servers: readiness, client, end.

use powerfail_finding::RecoveryOutcome;
use powerfail_oracle::{CommandLine, Ready, RecoveryPlan, Server, Stage};

use crate::support::{Place, WAYS, failure, is_success, output, plan, program};

fn line(words: &[&str]) -> CommandLine {
    let program = program("server");
    let words = words.iter().map(Into::into);
    CommandLine::new([program.into_os_string()].into_iter().chain(words))
}

fn served(recover: CommandLine, ready: &str, client: CommandLine) -> RecoveryPlan {
    let mut plan = plan(recover);
    plan.server = Some(Server {
        ready: ready.parse::<Ready>().unwrap(),
        client: Some(client),
        stop: None,
        judge_exit: true,
    });
    plan
}

pub(crate) fn tcp() -> RecoveryPlan {
    served(
        line(&["server", "tcp", "{port}", "{pool}"]),
        "port",
        line(&["client", "tcp", "{port}"]),
    )
}

fn with(mut plan: RecoveryPlan, variable: &str) -> RecoveryPlan {
    plan.environment.push((variable.into(), "1".into()));
    plan
}

#[test]
fn a_client_is_judged_against_each_kind_of_server() {
    let place = Place::new();
    let unix = "{pool}.socket";
    let server = line(&["server", "unix", unix, "{pool}"]);
    let client = line(&["client", "unix", unix]);
    let plans = [
        tcp(),
        served(
            tcp().recover,
            "output:^server is ready",
            line(&["client", "tcp", "{port}"]),
        ),
        served(server.clone(), "unix:{pool}.socket", client.clone()),
        served(server, "output:ready at last$", client),
    ];
    for way in WAYS {
        for plan in &plans {
            let mut slot = place.slot(plan, way);
            for content in ["good", "evil", "good"] {
                std::fs::write(place.private(), content).unwrap();
                let verdict = slot.run().unwrap();
                assert_eq!(
                    is_success(&verdict),
                    content == "good",
                    "{way:?} {verdict:?}"
                );
                if content == "evil" {
                    let failed = failure(verdict);
                    let expected = RecoveryOutcome::Exit {
                        status: 13,
                        command: "client".into(),
                        output: "evil".into(),
                    };
                    assert_eq!((failed.stage, failed.outcome), (Stage::Client, expected));
                }
            }
        }
    }
}

#[test]
fn servers_in_parallel_have_ports_of_their_own() {
    let places: Vec<Place> = (0..4).map(|_| Place::new()).collect();
    std::thread::scope(|scope| {
        for place in &places {
            scope.spawn(move || {
                std::fs::write(place.private(), "good").unwrap();
                let mut slot = place.slot(&tcp(), WAYS[0]);
                for _ in 0..5 {
                    let verdict = slot.run().unwrap();
                    assert!(is_success(&verdict), "{verdict:?}");
                }
            });
        }
    });
}

#[test]
fn a_server_that_dies_before_it_is_ready_is_a_failure() {
    let place = Place::new();
    let client = line(&["client", "tcp", "{port}"]);
    let dead = served(CommandLine::shell("echo no; exit 0"), "port", client);
    let failed = failure(place.run(&dead, WAYS[0]));
    assert_eq!(failed.stage, Stage::Recovery);
    assert!(matches!(
        failed.outcome,
        RecoveryOutcome::Exit { status: 0, .. }
    ));
    assert_eq!(
        output(&failed),
        "no\n[powerfail: it ended before it was ready]\n"
    );
}

#[test]
fn each_stage_of_a_server_has_a_timeout() {
    let place = Place::new();
    std::fs::write(place.private(), "good").unwrap();
    let never_ready = with(
        served(tcp().recover, "output:never said", tcp().recover),
        "NEVER_READY",
    );
    let stuck_client = served(
        tcp().recover,
        "port",
        CommandLine::shell("echo > $EXPIRE; sleep 1111"),
    );
    let mut stuck_stop = tcp();
    stuck_stop.server.as_mut().unwrap().stop =
        Some(CommandLine::shell("echo > $EXPIRE; sleep 1111"));
    let stubborn = with(tcp(), "IGNORE_TERM");
    for way in WAYS {
        for (plan, stage, note) in [
            (
                &never_ready,
                Stage::Recovery,
                "it was not ready within the timeout",
            ),
            (&stuck_client, Stage::Client, ""),
            (&stuck_stop, Stage::Stop, ""),
            (&stubborn, Stage::Recovery, "it did not stop"),
        ] {
            let failed = failure(place.run(&place.expiring(plan), way));
            assert_eq!(failed.stage, stage);
            assert!(matches!(failed.outcome, RecoveryOutcome::Timeout { .. }));
            assert!(output(&failed).contains(note), "{failed:?}");
        }
    }
}

#[test]
fn a_server_that_hangs_on_a_request_shows_where() {
    let place = Place::new();
    let plan = place.expiring(&with(tcp(), "HANG_ON_REQUEST"));
    let failed = failure(place.run(&plan, WAYS[0]));
    assert_eq!(failed.stage, Stage::Client);
    let resolved = failed.backtrace.unwrap().resolve();
    let names: Vec<_> = resolved.iter().flat_map(|it| &it.frames).collect();
    assert!(
        names.iter().any(|it| it.function.as_deref() == Some("main")
            && it
                .file
                .as_ref()
                .is_some_and(|file| file.ends_with("server.c"))),
        "{names:?}"
    );
}

#[test]
fn a_server_that_crashes_on_a_request_is_to_blame() {
    let place = Place::new();
    for way in WAYS {
        let failed = failure(place.run(&with(tcp(), "CRASH_ON_REQUEST"), way));
        assert_eq!(failed.stage, Stage::Recovery, "{failed:?}");
        assert!(matches!(
            failed.outcome,
            RecoveryOutcome::Signal { signal: 6, .. }
        ));
    }
}

#[test]
fn the_end_of_a_server_is_judged_if_wanted() {
    let place = Place::new();
    std::fs::write(place.private(), "good").unwrap();
    let mut plan = tcp();
    plan.environment.push(("STATUS_AT_END".into(), "4".into()));
    let failed = failure(place.run(&plan, WAYS[0]));
    assert_eq!(failed.stage, Stage::Recovery);
    assert!(matches!(
        failed.outcome,
        RecoveryOutcome::Exit { status: 4, .. }
    ));
    plan.server.as_mut().unwrap().judge_exit = false;
    assert!(is_success(&place.run(&plan, WAYS[0])));
    // A stop command instead of the signal; the status for the signal does not matter then.
    plan.server.as_mut().unwrap().judge_exit = true;
    plan.server.as_mut().unwrap().stop = Some(line(&["client", "tcp", "{port}", "stop"]));
    assert!(is_success(&place.run(&plan, WAYS[0])));
}

#[test]
fn the_checker_runs_when_the_server_is_gone() {
    let place = Place::new();
    std::fs::write(place.private(), "good").unwrap();
    let mut plan = tcp();
    plan.checker = Some(CommandLine::new(
        [program("server").into_os_string()]
            .into_iter()
            .chain(["client", "tcp", "{port}"].map(Into::into)),
    ));
    let failed = failure(place.run(&plan, WAYS[0]));
    assert_eq!(failed.stage, Stage::Checker);
    assert!(matches!(
        failed.outcome,
        RecoveryOutcome::Exit { status: 10, .. }
    ));
}
