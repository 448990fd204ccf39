//! Test cases of other instances are imported with their images, whatever state these are in.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use powerfail_fuzz_store::{
    Campaign, CaseNumber, ImageId, Images, Pulled, StoreError, Sync, TestCase,
};
use serde_json::json;

use crate::common::{Program, TestResult, edge, entry, run, small};

fn campaign(parent: &Path, name: &str) -> Result<Campaign, StoreError> {
    Campaign::create(&parent.join(name), vec![name.to_owned()], json!(null))
}

/// Stores an image below another one, and a test case on it.
fn add(campaign: &Campaign, parent: ImageId, value: u64) -> Result<TestCase, StoreError> {
    let edge = edge(&format!("{value}"), Some(value));
    let (image, _) = campaign.images.insert(parent, &edge, &small(value))?;
    let case = TestCase {
        image,
        input: format!("run {value}").into_bytes(),
    };
    campaign.queue.append(&case, &entry("havoc"))?;
    Ok(case)
}

fn cases(pulled: &Pulled) -> Vec<TestCase> {
    pulled.cases.iter().map(|case| case.case.clone()).collect()
}

#[test]
fn test_cases_come_with_the_ways_to_their_images() -> TestResult {
    let parent = tempfile::tempdir()?;
    let (ours, theirs) = (campaign(parent.path(), "a")?, campaign(parent.path(), "b")?);
    // Their images: one from the empty image, one from a given image, and one that we have as well.
    let create = edge("create", None);
    let pool = run(&small(0), &create);
    let (given, _) = theirs.images.insert_root("seed.pool", &pool)?;
    let mut expected = Vec::new();
    let mut image = given;
    let mut contents = pool;
    for number in 0..6 {
        let step = edge(&"x".repeat(100 * number), Some(number as u64 + 1));
        contents = run(&contents, &step);
        (image, _) = theirs.images.insert(image, &step, &contents)?;
    }
    let case = TestCase {
        image,
        input: vec![0, 255],
    };
    theirs.queue.append(&case, &entry("havoc"))?;
    expected.push(case);
    expected.push(add(&theirs, Images::empty(), 1)?);
    let common = add(&theirs, Images::empty(), 2)?;
    ours.queue.append(&common, &entry("seed"))?;
    expected.push(add(&theirs, common.image, 3)?);

    let sources = [parent.path().to_owned()];
    let mut sync = Sync::open(ours.directory(), &sources)?;
    assert_eq!(sync.instances(), [parent.path().join("b")]);
    let pulled = sync.pull(&ours.images, &ours.queue, 100)?;
    assert!(pulled.problems.is_empty() && !pulled.more);
    assert_eq!(cases(&pulled), expected);
    assert_eq!(pulled.new_images, 10);
    assert_eq!(pulled.cases[0].entry, entry("havoc"));
    assert_eq!(pulled.cases[2].number, CaseNumber(4));
    // They are ours now and do not need the other campaign.
    drop(theirs);
    fs::remove_dir_all(parent.path().join("b"))?;
    assert_eq!(*ours.images.load(image)?, contents);
    assert_eq!(ours.images.depth(image)?, 6);
    assert_eq!(ours.images.node(given)?.name.as_deref(), Some("seed.pool"));
    let rebuilt = ours.images.rebuild(image, &mut Program::default())?;
    assert_eq!(rebuilt, contents);
    assert!(ours.images.verify().is_empty());
    Ok(())
}

#[test]
fn what_was_read_is_not_read_again() -> TestResult {
    let parent = tempfile::tempdir()?;
    let (ours, theirs) = (campaign(parent.path(), "a")?, campaign(parent.path(), "b")?);
    let sources = [parent.path().join("b")];
    for value in 0..10 {
        add(&theirs, Images::empty(), value)?;
    }
    let mut sync = Sync::open(ours.directory(), &sources)?;
    let pulled = sync.pull(&ours.images, &ours.queue, 4)?;
    assert_eq!((pulled.cases.len(), pulled.more), (4, true));
    // Killed before they were imported: they are delivered again.
    let mut sync = Sync::open(ours.directory(), &sources)?;
    assert_eq!(
        cases(&sync.pull(&ours.images, &ours.queue, 4)?),
        cases(&pulled)
    );
    sync.done()?;
    let mut sync = Sync::open(ours.directory(), &sources)?;
    assert_eq!(sync.pull(&ours.images, &ours.queue, 100)?.cases.len(), 6);
    sync.done()?;
    let mut sync = Sync::open(ours.directory(), &sources)?;
    assert_eq!(sync.pull(&ours.images, &ours.queue, 100)?.cases.len(), 0);
    add(&theirs, Images::empty(), 10)?;
    assert_eq!(sync.pull(&ours.images, &ours.queue, 100)?.cases.len(), 1);
    // Another campaign in the same directory is read from its beginning.
    drop(theirs);
    fs::remove_dir_all(&sources[0])?;
    assert_eq!(sync.pull(&ours.images, &ours.queue, 100)?.cases.len(), 0);
    let theirs = campaign(parent.path(), "b")?;
    for value in 100..120 {
        add(&theirs, Images::empty(), value)?;
    }
    assert_eq!(sync.pull(&ours.images, &ours.queue, 100)?.cases.len(), 20);
    Ok(())
}

#[test]
fn a_campaign_that_is_running_is_read_as_it_goes() -> TestResult {
    const CASES: u64 = 200;
    let parent = tempfile::tempdir()?;
    let (ours, theirs) = (campaign(parent.path(), "a")?, campaign(parent.path(), "b")?);
    let sources = [parent.path().to_owned()];
    let mut sync = Sync::open(ours.directory(), &sources)?;
    let (sent, received) = std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut image = Images::empty();
            let mut sent = Vec::new();
            for value in 0..CASES {
                let case = add(&theirs, image, value).expect("room");
                image = case.image;
                sent.push(case);
            }
            sent
        });
        let mut received = Vec::new();
        let mut last = false;
        loop {
            let pulled = sync.pull(&ours.images, &ours.queue, 7).expect("room");
            assert!(pulled.problems.is_empty(), "{:?}", pulled.problems);
            received.extend(cases(&pulled));
            // One more pull after the writer has ended.
            if last && pulled.cases.is_empty() {
                break;
            }
            last = writer.is_finished();
        }
        (writer.join().expect("no panic"), received)
    });
    assert_eq!(received, sent);
    for (value, case) in (0..).zip(&received) {
        assert_eq!(*ours.images.load(case.image)?, small(value));
        assert_eq!(ours.images.depth(case.image)? as u64, value + 1);
    }
    Ok(())
}

fn damage(path: &Path, at: u64) -> TestResult {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(b"\x01damage\x02", at)?;
    Ok(())
}

#[test]
fn a_damaged_line_costs_one_test_case() -> TestResult {
    let parent = tempfile::tempdir()?;
    let (ours, theirs) = (campaign(parent.path(), "a")?, campaign(parent.path(), "b")?);
    let queue = theirs.directory().join("queue.jsonl");
    let mut expected = vec![add(&theirs, Images::empty(), 0)?];
    let at = queue.metadata()?.len() + 40;
    add(&theirs, Images::empty(), 1)?;
    expected.push(add(&theirs, Images::empty(), 2)?);
    damage(&queue, at)?;
    let mut sync = Sync::open(ours.directory(), &[parent.path().to_owned()])?;
    let pulled = sync.pull(&ours.images, &ours.queue, 100)?;
    assert_eq!(cases(&pulled), expected);
    assert!(matches!(&pulled.problems[..], [StoreError::Damaged { path, .. }] if *path == queue));
    // It is reported once.
    assert!(
        sync.pull(&ours.images, &ours.queue, 100)?
            .problems
            .is_empty()
    );
    Ok(())
}

#[test]
fn damaged_images_cost_those_that_need_them() -> TestResult {
    let parent = tempfile::tempdir()?;
    let (ours, theirs) = (campaign(parent.path(), "a")?, campaign(parent.path(), "b")?);
    let pack = theirs.directory().join("images.pack");
    let first = add(&theirs, Images::empty(), 0)?;
    let at = pack.metadata()?.len() + 14;
    let second = add(&theirs, first.image, 1)?;
    add(&theirs, second.image, 2)?;
    damage(&pack, at)?;
    let mut sync = Sync::open(ours.directory(), &[parent.path().to_owned()])?;
    let pulled = sync.pull(&ours.images, &ours.queue, 100)?;
    assert_eq!(cases(&pulled), [first]);
    assert_eq!(pulled.problems.len(), 2, "{:?}", pulled.problems);
    // A damaged tree is usable up to the damage.
    let tree = theirs.directory().join("images.jsonl");
    let third = add(&theirs, Images::empty(), 3)?;
    let at = tree.metadata()?.len() + 40;
    add(&theirs, Images::empty(), 4)?;
    add(&theirs, Images::empty(), 5)?;
    damage(&tree, at)?;
    let pulled = sync.pull(&ours.images, &ours.queue, 100)?;
    assert_eq!(cases(&pulled), [third]);
    assert_eq!(pulled.problems.len(), 2, "{:?}", pulled.problems);
    assert!(ours.images.verify().is_empty());
    Ok(())
}

#[test]
fn what_is_not_copied_yet_is_waited_for_and_given_up_in_the_end() -> TestResult {
    let parent = tempfile::tempdir()?;
    let (ours, theirs) = (campaign(parent.path(), "a")?, campaign(parent.path(), "b")?);
    let expected = [
        add(&theirs, Images::empty(), 0)?,
        add(&theirs, Images::empty(), 1)?,
    ];
    let path = theirs.queue.input_path(CaseNumber(1));
    let aside = path.with_extension("aside");
    fs::rename(&path, &aside)?;
    let mut sync = Sync::open(ours.directory(), &[parent.path().to_owned()])?;
    for _ in 0..3 {
        let pulled = sync.pull(&ours.images, &ours.queue, 100)?;
        assert!(pulled.cases.is_empty() && pulled.problems.is_empty());
    }
    fs::rename(&aside, &path)?;
    assert_eq!(cases(&sync.pull(&ours.images, &ours.queue, 100)?), expected);
    // An image that never arrives.
    let mut sync = Sync::open(ours.directory(), &[parent.path().to_owned()])?;
    fs::remove_file(&path)?;
    let mut problems = Vec::new();
    let mut received = Vec::new();
    for _ in 0..10 {
        let pulled = sync.pull(&ours.images, &ours.queue, 100)?;
        received.extend(cases(&pulled));
        problems.extend(pulled.problems);
    }
    assert_eq!(received, expected[1..]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    Ok(())
}
