//! Where recovery crashed or hung.

use powerfail_finding::RecoveryOutcome;
use powerfail_oracle::{Backtrace, CommandLine, RecoveryPlan};

use crate::support::{Place, WAYS, failure, plan, program, shell};

fn command(how: &str) -> RecoveryPlan {
    plan(CommandLine::new([
        program("stack").into_os_string(),
        how.into(),
    ]))
}

fn names(backtrace: &Backtrace) -> Vec<String> {
    let resolved = backtrace.resolve();
    let frames = resolved.iter().flat_map(|it| &it.frames);
    frames.filter_map(|it| it.function.clone()).collect()
}

/// Whether these functions occur in this order, innermost first, each called by the next.
fn assert_chain(backtrace: &Backtrace, chain: &[&str]) {
    let names = names(backtrace);
    assert!(
        names.windows(chain.len()).any(|window| window == chain),
        "{chain:?} is not in {names:?}"
    );
}

#[test]
fn a_crash_names_its_function() {
    let place = Place::new();
    for way in WAYS {
        for (how, signal, chain) in [
            ("crash", 11, &["read_root", "recover", "main"][..]),
            ("abort", 6, &["give_up", "recover", "main"]),
            ("nowhere", 11, &["call_nowhere", "recover", "main"]),
            ("crash-thread", 11, &["read_root", "crashing_worker"]),
        ] {
            let mut slot = place.slot(&command(how), way);
            let failed = failure(slot.run().unwrap());
            let RecoveryOutcome::Signal { signal: found, .. } = failed.outcome else {
                panic!("{:?}", failed.outcome);
            };
            assert_eq!((found, failed.backtrace), (signal, None));
            let backtrace = slot.backtrace_of_crash().unwrap().unwrap();
            assert_chain(&backtrace, chain);
        }
    }
}

#[test]
fn a_crash_behind_a_shell_names_its_function() {
    let place = Place::new();
    let script = format!("{} crash; exit $?", program("stack").display());
    let mut slot = place.slot(&shell(&script), WAYS[0]);
    let failed = failure(slot.run().unwrap());
    assert!(matches!(
        failed.outcome,
        RecoveryOutcome::Signal { signal: 11, .. }
    ));
    let backtrace = slot.backtrace_of_crash().unwrap().unwrap();
    assert_chain(&backtrace, &["read_root", "recover", "main"]);
}

#[test]
fn the_line_of_a_crash_is_known() {
    let place = Place::new();
    let mut slot = place.slot(&command("crash"), WAYS[0]);
    let resolved = slot.backtrace_of_crash().unwrap().unwrap().resolve();
    let innermost = resolved[0].innermost().unwrap();
    assert_eq!(innermost.line, Some(14));
    assert!(innermost.file.as_ref().unwrap().ends_with("stack.c"));
}

#[test]
fn no_crash_has_no_backtrace() {
    let place = Place::new();
    let mut slot = place.slot(&command("succeed"), WAYS[0]);
    assert_eq!(slot.backtrace_of_crash().unwrap(), None);
    let mut slot = place.slot(&shell("sleep 0 & wait; exit 3"), WAYS[0]);
    assert_eq!(slot.backtrace_of_crash().unwrap(), None);
    let hang = place.expiring(&command("wait"));
    let mut slot = place.slot(&hang, WAYS[0]);
    assert_eq!(slot.backtrace_of_crash().unwrap(), None);
}

#[test]
fn a_hang_names_its_function() {
    let place = Place::new();
    for way in WAYS {
        for (how, chain) in [
            ("spin", &["spin_forever", "recover", "main"][..]),
            ("wait", &["wait_forever", "recover", "main"]),
            ("thread", &["spin_forever", "worker"]),
            // Its parent cannot be stopped.
            ("vfork", &["wait_forever", "recover", "main"]),
        ] {
            let hang = place.expiring(&command(how));
            let failed = failure(place.run(&hang, way));
            assert!(matches!(failed.outcome, RecoveryOutcome::Timeout { .. }));
            assert_chain(&failed.backtrace.unwrap(), chain);
        }
    }
}

#[test]
fn a_hang_behind_a_shell_names_its_function() {
    let place = Place::new();
    let script = format!("{} wait-behind-shell; exit $?", program("stack").display());
    let hang = place.expiring(&shell(&script));
    let failed = failure(place.run(&hang, WAYS[0]));
    assert_chain(
        &failed.backtrace.unwrap(),
        &["wait_forever", "recover", "main"],
    );
}
