//! The bytes on disk, as docs/reference/campaign-format.md describes them. Only a new version may change them.

use std::fs;

use powerfail_fuzz_store::{DirectoryContents, Edge, Images, Queue, Retirement, TestCase};
use powerfail_image::FileContents;

use crate::common::{PAGE, TestResult, edge, entry, open};

fn pool(bytes: &[u8], at: usize) -> DirectoryContents {
    let mut page = [0; PAGE];
    page[at..at + bytes.len()].copy_from_slice(bytes);
    let mut pool = FileContents {
        len_bytes: 3 * PAGE as u64,
        ..FileContents::default()
    };
    pool.set_page(1, &page);
    DirectoryContents {
        files: [("pool".to_owned(), pool)].into(),
    }
}

#[test]
fn the_bytes_on_disk_are_these() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let (given, _) = images.insert_root("seed", &pool(b"abc", 5))?;
    let set = edge("set 1\n", Some(41));
    let (made, _) = images.insert(given, &set, &pool(b"abd", 5))?;
    let create = Edge {
        input: vec![0xff, 0],
        failure_point: None,
    };
    images.insert(Images::empty(), &create, &pool(b"abe", 5))?;
    let (queue, _) = Queue::open(directory.path())?;
    let case = TestCase {
        image: made,
        input: b"set 2\n".to_vec(),
    };
    let (number, _) = queue.append(&case, &entry("havoc"))?;
    queue.retire(number, Retirement::Crashes { signal: Some(11) })?;
    let text = |name: &str| fs::read_to_string(directory.path().join(name));
    assert_eq!(text("images.jsonl")?, include_str!("format/images.jsonl"));
    assert_eq!(text("queue.jsonl")?, include_str!("format/queue.jsonl"));
    let pack = fs::read(directory.path().join("images.pack"))?;
    let mut lines = String::new();
    for row in pack.chunks(16) {
        let digits: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        lines = lines + &digits.join(" ") + "\n";
    }
    assert_eq!(lines, include_str!("format/images.pack.txt"));
    Ok(())
}
