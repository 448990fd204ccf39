//! Test cases are found again as they were.

use std::fs;

use powerfail_fuzz_store::{CaseNumber, CorpusError, Entry, Images, Queue, TestCase};

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
    queue.retire(CaseNumber(1), "000003 does the same")?;
    queue.retire(CaseNumber(1), "again")?;
    drop(queue);
    let input = fs::read(directory.path().join("queue/000002.input"))?;
    assert_eq!(input, other_image.input);
    let (queue, _) = Queue::open(directory.path())?;
    assert_eq!(queue.len(), 2);
    let cases = queue.cases();
    assert_eq!(cases[0].retired.as_deref(), Some("000003 does the same"));
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
            matches!(queue.load(number), Err(CorpusError::UnknownCase(wrong)) if wrong == number)
        );
        assert!(queue.retire(number, "it is not there").is_err());
    }
    fs::write(queue.input_path(CaseNumber(2)), "something else")?;
    assert!(matches!(
        queue.load(CaseNumber(2)),
        Err(CorpusError::Damaged { .. })
    ));
    Ok(())
}
