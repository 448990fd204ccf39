//! Test cases are read back unchanged.

use std::fs;

use powerfail_fuzz_store::{
    CaseNumber, Entry, Images, Journal, Queue, Retirement, StoreError, TestCase,
};
use serde_json::json;

use crate::common::{TestResult, entry, small};

#[test]
fn test_cases_come_back() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (queue, _) = Queue::open(directory.path())?;
    assert!(queue.is_empty());
    let first = TestCase {
        image: Images::empty(),
        input: b"insert 1\n\0\xff".to_vec(),
    };
    let other_image = TestCase {
        image: small(1).id(),
        ..first.clone()
    };
    let empty_input = TestCase {
        input: Vec::new(),
        ..first.clone()
    };
    let minimised = Entry {
        minimised_from: Some(CaseNumber(1)),
        ..entry("trim")
    };
    assert_eq!(queue.append(&first, &entry("seed"))?, (CaseNumber(1), true));
    assert_eq!(
        queue.append(&other_image, &entry("image"))?,
        (CaseNumber(2), true)
    );
    assert_eq!(
        queue.append(&first, &entry("havoc"))?,
        (CaseNumber(1), false)
    );
    assert!(queue.contains(&other_image) && !queue.contains(&empty_input));
    queue.append(&empty_input, &minimised)?;
    let shortened = Retirement::Shortened { to: CaseNumber(3) };
    queue.retire(CaseNumber(1), shortened.clone())?;
    queue.retire(CaseNumber(1), Retirement::Redundant)?;
    drop(queue);
    let input = fs::read(directory.path().join("queue/000002.input"))?;
    assert_eq!(input, other_image.input);
    let (queue, _) = Queue::open(directory.path())?;
    assert_eq!(queue.len(), 2);
    let cases = queue.cases();
    assert_eq!(cases[0].retired, Some(shortened));
    assert_eq!(
        (&cases[0].entry, &cases[2].entry),
        (&entry("seed"), &minimised)
    );
    for (case, expected) in cases.iter().zip([&first, &other_image, &empty_input]) {
        assert_eq!(queue.load(case.number)?, *expected);
        assert_eq!(case.input_len_bytes, expected.input.len() as u64);
    }
    assert_eq!(
        queue.append(&first, &entry("havoc"))?,
        (CaseNumber(1), false)
    );
    for number in [CaseNumber(0), CaseNumber(4)] {
        assert!(
            matches!(queue.load(number), Err(StoreError::UnknownCase(wrong)) if wrong == number)
        );
        assert!(queue.retire(number, Retirement::Redundant).is_err());
    }
    fs::write(queue.input_path(CaseNumber(2)), "something else")?;
    assert!(matches!(
        queue.load(CaseNumber(2)),
        Err(StoreError::Damaged { .. })
    ));
    Ok(())
}

#[test]
fn a_retired_case_keeps_the_signal_that_ended_it() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (queue, _) = Queue::open(directory.path())?;
    let kinds = [
        Retirement::Hangs,
        Retirement::Crashes { signal: Some(6) },
        Retirement::Redundant,
        Retirement::Shortened { to: CaseNumber(1) },
    ];
    for (kind, input) in kinds.iter().zip(0..) {
        let case = TestCase {
            image: Images::empty(),
            input: vec![input],
        };
        let (number, _) = queue.append(&case, &entry("havoc"))?;
        queue.retire(number, kind.clone())?;
    }
    drop(queue);
    let (queue, _) = Queue::open(directory.path())?;
    let stored: Vec<_> = queue.cases().into_iter().map(|case| case.retired).collect();
    assert_eq!(stored, kinds.map(Some));
    Ok(())
}

/// Format 1 wrote sentences, and no signal.
#[test]
fn reasons_of_format_1_are_still_read() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (queue, _) = Queue::open(directory.path())?;
    let sentences = [
        (
            "it is an example",
            Retirement::Other("it is an example".into()),
        ),
        ("it hangs", Retirement::Hangs),
        ("it crashes", Retirement::Crashes { signal: None }),
        ("others reach all that it reaches", Retirement::Redundant),
        (
            "000002 is a shorter form of it",
            Retirement::Shortened { to: CaseNumber(2) },
        ),
    ];
    for (sentence, _) in &sentences {
        let case = TestCase {
            image: Images::empty(),
            input: sentence.as_bytes().to_vec(),
        };
        queue.append(&case, &entry("havoc"))?;
    }
    drop(queue);
    let path = directory.path().join("queue.jsonl");
    let (mut journal, _) = Journal::<serde_json::Value>::open(&path, |_| ())?;
    for (number, (sentence, _)) in (1..).zip(&sentences) {
        journal.append(&json!({ "retire": { "number": number, "because": sentence } }))?;
    }
    let (queue, cuts) = Queue::open(directory.path())?;
    assert_eq!(cuts, []);
    let stored: Vec<_> = queue.cases().into_iter().map(|case| case.retired).collect();
    assert_eq!(stored, sentences.map(|(_, kind)| Some(kind)));
    Ok(())
}
