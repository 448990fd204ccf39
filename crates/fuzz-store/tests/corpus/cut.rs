//! Files that are cut anywhere, and files that are damaged anywhere.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use powerfail_fuzz_store::{Edge, ImageId, Images, Journal, Queue, StoreError, TestCase};
use powerfail_protocol::random::Random;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::common::{TestResult, edge, entry, image_files, open, small};

/// Sizes of the files after each image, and the expected properties of the image.
struct Step {
    sizes: [u64; 3],
    id: ImageId,
    value: u64,
    path: Vec<Edge>,
}

fn sizes(directory: &Path) -> TestResult<[u64; 3]> {
    let mut sizes = [0; 3];
    for (size, path) in sizes.iter_mut().zip(image_files(directory)) {
        *size = path.metadata()?.len();
    }
    Ok(sizes)
}

fn fill(directory: &Path) -> TestResult<Vec<Step>> {
    let images = open(directory)?;
    let mut steps: Vec<Step> = Vec::new();
    for value in 0..9 {
        let parent = steps
            .get(value as usize / 2)
            .map_or(Images::empty(), |step| step.id);
        let long = "x".repeat(if value % 3 == 0 { 300 } else { 3 });
        let edge = edge(&format!("{value} {long}"), Some(value));
        let (id, _) = images.insert(parent, &edge, &small(value))?;
        steps.push(Step {
            sizes: sizes(directory)?,
            id,
            value,
            path: images.path(id)?,
        });
    }
    Ok(steps)
}

fn copy_cut(from: &Path, to: &Path, sizes: [u64; 3]) -> TestResult {
    for ((from, to), size) in image_files(from).iter().zip(image_files(to)).zip(sizes) {
        let bytes = fs::read(from)?;
        fs::write(to, &bytes[..size as usize])?;
    }
    Ok(())
}

/// A kill happens between two writes or in the middle of one. Files are written in order: one is cut anywhere, those
/// before it are complete and those after it are unchanged.
#[test]
fn whatever_a_kill_tears_nothing_is_lost_that_was_reported() -> TestResult {
    let directory = tempfile::tempdir()?;
    let steps = fill(directory.path())?;
    let mut before = [8, 8, 0];
    for (count, step) in steps.iter().enumerate() {
        for torn in 0..3 {
            for len in before[torn]..=step.sizes[torn] {
                let size = |file: usize| match file.cmp(&torn) {
                    std::cmp::Ordering::Less => step.sizes[file],
                    std::cmp::Ordering::Equal => len,
                    std::cmp::Ordering::Greater => before[file],
                };
                let sizes = [size(0), size(1), size(2)];
                // Every length near a boundary, and some of the others.
                let near = len < before[torn] + 6 || len + 6 > step.sizes[torn];
                if !near && len % 29 != 0 {
                    continue;
                }
                let complete = sizes == step.sizes;
                let kept = &steps[..count + usize::from(complete)];
                check_cut(directory.path(), sizes, kept)?;
            }
        }
        before = step.sizes;
    }
    Ok(())
}

fn check_cut(whole: &Path, cut: [u64; 3], kept: &[Step]) -> TestResult {
    let directory = tempfile::tempdir()?;
    copy_cut(whole, directory.path(), cut)?;
    let (images, cuts) = Images::open(directory.path())?;
    assert_eq!(images.len(), kept.len() + 1);
    // Everything after the last complete image is cut off and reported.
    let end = kept.last().map_or([8, 8, 0], |step| step.sizes);
    let lost: u64 = cuts.iter().map(|cut| cut.lost_bytes).sum();
    assert_eq!(lost, cut.iter().sum::<u64>() - end.iter().sum::<u64>());
    assert_eq!(sizes(directory.path())?, end);
    for step in kept {
        assert_eq!(*images.load(step.id)?, small(step.value));
        assert_eq!(images.path(step.id)?, step.path);
    }
    // The store can be used again.
    let (id, new) = images.insert(Images::empty(), &edge("more", None), &small(1000))?;
    assert!(new);
    drop(images);
    let (images, cuts) = Images::open(directory.path())?;
    assert!(cuts.is_empty());
    assert_eq!(*images.load(id)?, small(1000));
    Ok(())
}

/// A failure of the machine may cut each file anywhere.
#[test]
fn files_cut_on_their_own_lose_what_was_behind_the_cut_and_no_more() -> TestResult {
    let directory = tempfile::tempdir()?;
    let steps = fill(directory.path())?;
    let whole = sizes(directory.path())?;
    let mut random = Random::new(3);
    for _ in 0..200 {
        let cut = whole.map(|size| random.below(size + 1));
        let target = tempfile::tempdir()?;
        copy_cut(directory.path(), target.path(), cut)?;
        let images = open(target.path())?;
        for step in &steps {
            let in_tree = step.sizes[2] <= cut[2];
            assert_eq!(images.contains(step.id), in_tree);
            let loaded = images.load(step.id);
            if in_tree && step.sizes[0] <= cut[0] {
                assert_eq!(*loaded?, small(step.value));
            } else if in_tree {
                assert!(
                    matches!(loaded, Err(StoreError::Missing { .. })),
                    "{loaded:?}"
                );
            }
            if in_tree && step.sizes[1] <= cut[1] {
                assert_eq!(images.path(step.id)?, step.path);
            }
        }
        let (id, _) = images.insert(Images::empty(), &edge("more", None), &small(1000))?;
        let images = open(target.path())?;
        assert_eq!(*images.load(id)?, small(1000));
    }
    Ok(())
}

#[test]
fn damage_is_an_error_that_names_the_file_and_never_a_wrong_image() -> TestResult {
    let directory = tempfile::tempdir()?;
    let steps = fill(directory.path())?;
    for path in image_files(directory.path()) {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let original = fs::read(&path)?;
        let mut random = Random::new(original.len() as u64);
        for _ in 0..300 {
            let at = random.below(original.len() as u64);
            let bit = 1 << random.below(8);
            file.write_all_at(&[original[at as usize] ^ bit], at)?;
            // A reader, because a writer cuts off a wrong last line.
            let checked = Images::follow(directory.path()).and_then(|images| {
                for step in &steps {
                    assert_eq!(*images.load(step.id)?, small(step.value));
                    assert_eq!(images.path(step.id)?, step.path);
                }
                Ok(())
            });
            match checked {
                Err(
                    StoreError::Damaged { path: named, .. } | StoreError::Version { path: named },
                ) => {
                    assert_eq!(named, path);
                }
                // The last line is treated as one that is still being written.
                Err(StoreError::UnknownImage(_)) => {
                    assert_eq!(path, image_files(directory.path())[2]);
                }
                other => panic!("bit {bit} of byte {at} of {}: {other:?}", path.display()),
            }
            file.write_all_at(&[original[at as usize]], at)?;
        }
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_journal_keeps_every_line_before_the_cut(
        notes in prop::collection::vec((".{0,20}", any::<Option<u64>>()), 0..12),
        cut in any::<prop::sample::Index>(),
        plain in any::<bool>(),
    ) {
        let notes: Vec<_> = notes.into_iter().map(|(text, number)| Note { text, number }).collect();
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("notes.jsonl");
        let open = |notes: &mut Vec<Note>| {
            let add = |note| notes.push(note);
            if plain { Journal::open_plain(&path, add) } else { Journal::open(&path, add) }
        };
        let mut ends = vec![0];
        let (mut journal, _) = open(&mut Vec::new())?;
        for note in &notes {
            journal.append(note)?;
            ends.push(journal.len_bytes());
        }
        let cut = cut.index(journal.len_bytes() as usize + 1) as u64;
        OpenOptions::new().write(true).open(&path)?.set_len(cut)?;
        let kept = ends.iter().filter(|end| **end <= cut).count() - 1;
        let mut read = Vec::new();
        let (mut journal, lost_bytes) = open(&mut read)?;
        prop_assert_eq!(&read, &notes[..kept]);
        prop_assert_eq!(lost_bytes, cut - ends[kept]);
        let more = Note { text: "more".into(), number: None };
        journal.append(&more)?;
        let mut read = Vec::new();
        prop_assert_eq!(open(&mut read)?.1, 0);
        prop_assert_eq!(read.last(), Some(&more));
        // Any tool can read it.
        for line in fs::read_to_string(&path)?.lines() {
            let value: serde_json::Value = serde_json::from_str(line)?;
            prop_assert!(value["text"].is_string());
        }
    }
}

#[test]
fn damage_in_the_middle_of_a_journal_is_named_with_its_place() -> TestResult {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("notes.jsonl");
    let (mut journal, _) = Journal::open(&path, drop::<Note>)?;
    let note = Note {
        text: "note".into(),
        number: Some(1),
    };
    journal.append(&note)?;
    let second = journal.len_bytes();
    journal.append(&note)?;
    journal.append(&note)?;
    let file = OpenOptions::new().write(true).open(&path)?;
    file.write_all_at(b"!", second + 30)?;
    let error = Journal::open(&path, drop::<Note>).err();
    let Some(StoreError::Damaged { at, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(at, second);
    // Nothing was cut off.
    assert_eq!(path.metadata()?.len(), journal.len_bytes());
    Ok(())
}

#[test]
fn a_queue_keeps_every_case_before_the_cut() -> TestResult {
    let directory = tempfile::tempdir()?;
    let journal = directory.path().join("queue.jsonl");
    let case = |number: u8| TestCase {
        image: Images::empty(),
        input: vec![number; 5],
    };
    let (queue, _) = Queue::open(directory.path())?;
    let mut ends = vec![0];
    for number in 0..3 {
        queue.append(&case(number), &entry("seed"))?;
        ends.push(journal.metadata()?.len());
    }
    drop(queue);
    let whole = fs::read(&journal)?;
    for cut in 0..=whole.len() as u64 {
        fs::write(&journal, &whole[..cut as usize])?;
        let (queue, cuts) = Queue::open(directory.path())?;
        let kept = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(queue.len(), kept);
        let lost: u64 = cuts.iter().map(|cut| cut.lost_bytes).sum();
        assert_eq!(lost, cut - ends[kept]);
        for (number, queued) in (0..).zip(queue.cases()) {
            assert_eq!(queue.load(queued.number)?, case(number));
        }
    }
    Ok(())
}
