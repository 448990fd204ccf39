//! What is kept is found again, and a file that was cut anywhere has what was written before.

use std::fs;
use std::path::Path;

use super::{
    ANY_LIMIT, About, Key, NAME, OutcomeCounts, Outcomes, OutcomesError, RequestKind, Stored,
};

fn about() -> About {
    About {
        version: "1".to_owned(),
        arguments: vec!["crash".into(), "run.trace".into()],
        trace: 7,
        share: Some((2, 3)),
        ..About::default()
    }
}

fn key(outcomes: &Outcomes, number: u64) -> Option<Key> {
    outcomes.key(RequestKind::Plain, |key| {
        key.number(number);
    })
}

fn text(number: u64) -> String {
    // Long ones are compressed.
    format!("outcome {number} ").repeat(1 + 100 * (number as usize % 2))
}

/// Keeps outcomes 0 to 9.
fn write(out: &Path) {
    let outcomes = Outcomes::begin(out, &about()).expect("a file");
    for number in 0..10 {
        let kept = outcomes.keep(key(&outcomes, number), ANY_LIMIT, &text(number));
        kept.expect("it is written");
    }
    outcomes.finish().expect("the end");
}

fn read(out: &Path) -> Stored {
    Stored::read(out).expect("a file").expect("it is there")
}

#[test]
fn outcomes_are_found_again_once() {
    let out = tempfile::tempdir().expect("a folder");
    write(out.path());
    let stored = read(out.path());
    assert!(stored.is_finished);
    assert_eq!(stored.about, about());
    let outcomes = Outcomes::resume(stored).expect("a file that can be resumed");
    for number in 0..10 {
        let key = key(&outcomes, number);
        assert_eq!(
            outcomes.take::<String>(key, 5).expect("it is read"),
            Some(text(number))
        );
        // The next request of that name would have another outcome.
        assert_eq!(outcomes.take::<String>(key, 5).expect("it is read"), None);
    }
    assert_eq!(
        outcomes
            .take::<String>(key(&outcomes, 10), 5)
            .expect("none"),
        None
    );
    let other = outcomes.of_trace(1);
    assert_eq!(
        other.take::<String>(key(&other, 1), 5).expect("none"),
        None,
        "of another trace"
    );
    let counts = OutcomeCounts { known: 10, new: 0 };
    assert_eq!(outcomes.finish().expect("the end"), counts);
}

#[test]
fn a_file_that_was_cut_has_what_was_written_before() {
    let out = tempfile::tempdir().expect("a folder");
    write(out.path());
    let path = out.path().join(NAME);
    let whole = fs::read(&path).expect("a file");
    let mut most = 0;
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).expect("it is written");
        match Stored::read(out.path()) {
            Ok(Some(stored)) => {
                assert!(!stored.is_finished, "{len}");
                let count = stored.entries.len();
                assert!((most..=10).contains(&count), "{len}: {count}");
                most = count;
                // New entries come after the last complete one.
                let outcomes = Outcomes::resume(stored).expect("a file that can be resumed");
                let added = key(&outcomes, 99);
                outcomes
                    .keep(added, ANY_LIMIT, &"new")
                    .expect("it is written");
                outcomes.finish().expect("the end");
                let again = read(out.path());
                assert_eq!((again.entries.len(), again.is_finished), (count + 1, true));
            }
            Err(OutcomesError::Foreign { .. }) => assert_eq!(most, 0, "{len}"),
            other => panic!("{len}: {:?}", other.map(|it| it.is_some())),
        }
    }
    assert_eq!(most, 10);
}

#[test]
fn a_byte_that_was_changed_ends_the_file() {
    let out = tempfile::tempdir().expect("a folder");
    write(out.path());
    let path = out.path().join(NAME);
    let whole = fs::read(&path).expect("a file");
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, &bytes).expect("it is written");
        if let Ok(Some(stored)) = Stored::read(out.path()) {
            assert!(stored.entries.len() < 10 || !stored.is_finished, "{at}");
        }
    }
}

#[test]
fn an_exploration_holds_for_its_limits() {
    let out = tempfile::tempdir().expect("a folder");
    let outcomes = Outcomes::begin(out.path(), &about()).expect("a file");
    let name = key(&outcomes, 1);
    outcomes.keep(name, 8..=8, &"cut").expect("it is written");
    outcomes
        .keep(name, 20..=u64::MAX, &"whole")
        .expect("it is written");
    drop(outcomes);
    let outcomes = Outcomes::resume(read(out.path())).expect("a file that can be resumed");
    let take = |limit| outcomes.take::<String>(name, limit).expect("it is read");
    assert_eq!(take(9), None);
    assert_eq!(take(64).as_deref(), Some("whole"));
    assert_eq!(take(64), None);
    assert_eq!(take(8).as_deref(), Some("cut"));
}

#[test]
fn runs_that_differ_are_told_apart() {
    let about = about();
    let differs = |change: &dyn Fn(&mut About)| {
        let mut other = about.clone();
        change(&mut other);
        about.difference(&other)
    };
    assert_eq!(differs(&|it| it.arguments.clear()), None);
    assert!(differs(&|it| it.version.push('2')).is_some());
    assert!(differs(&|it| it.trace += 1).is_some());
    assert!(differs(&|it| it.options.push('x')).is_some());
    assert!(differs(&|it| it.recovery.push('x')).is_some());
}
