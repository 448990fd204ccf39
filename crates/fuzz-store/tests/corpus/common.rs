//! Pools that change like those of real programs, and a program that changes them.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_fuzz_store::{DirectoryContents, Edge, Entry, Images, Priority, Rebuild, StoreError};
use powerfail_image::FileContents;
use powerfail_protocol::random::Random;

pub(crate) type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

pub(crate) const PAGE: usize = 4096;
pub(crate) const POOL_BYTES: u64 = 8 << 20;

/// A pool as a transaction library leaves it: a header, a log, tables, and a heap of records.
pub(crate) fn new_pool() -> DirectoryContents {
    let mut random = Random::new(1);
    let mut pool = FileContents {
        len_bytes: POOL_BYTES,
        ..FileContents::default()
    };
    for number in 0..100_u64 {
        let mut page = [0; PAGE];
        for record in 0..PAGE / 64 {
            let at = record * 64;
            page[at..at + 8].copy_from_slice(&(number * 64 + record as u64).to_le_bytes());
            page[at + 8..at + 16].copy_from_slice(&random.word().to_le_bytes());
        }
        pool.set_page(number * 20, &page);
    }
    DirectoryContents {
        files: [("pool".to_owned(), pool)].into(),
    }
}

/// The effect of a run of a few commands on a pool: some records in a handful of pages, the log, and a counter. The
/// same input always has the same effect; a failure leaves the first part of it.
pub(crate) fn run(from: &DirectoryContents, edge: &Edge) -> DirectoryContents {
    if from.files.is_empty() {
        return new_pool();
    }
    let seed = blake3::hash(&edge.input);
    let mut random = Random::new(u64::from_le_bytes(
        seed.as_bytes()[..8].try_into().expect("8 bytes"),
    ));
    let mut contents = from.clone();
    let pool = contents.files.get_mut("pool").expect("a pool");
    let stores = edge.failure_point.unwrap_or(8);
    for store in 0..stores {
        // The log is always at the same location; records are anywhere, some in pages that were not used yet.
        let (page, at) = match store % 4 {
            0 => (0, 512 + 64 * (store as usize / 4)),
            _ => (random.below(2048), 64 * random.below(64) as usize),
        };
        let mut bytes = pool.pages.get(&page).map_or([0; PAGE], |page| **page);
        let value = random.word().to_le_bytes();
        bytes[at..at + 8].copy_from_slice(&value);
        bytes[at + 8..at + 24].copy_from_slice(b"a value of text.");
        pool.set_page(page, &bytes);
    }
    contents
}

/// Runs the program, and counts the runs.
#[derive(Default)]
pub(crate) struct Program {
    pub(crate) runs: usize,
}

impl Rebuild for Program {
    fn run(
        &mut self,
        from: &DirectoryContents,
        input: &[u8],
        failure_points: &[Option<u64>],
    ) -> io::Result<Vec<DirectoryContents>> {
        self.runs += 1;
        let run = |failure_point: &Option<u64>| {
            let edge = Edge {
                input: input.to_vec(),
                failure_point: *failure_point,
            };
            run(from, &edge)
        };
        Ok(failure_points.iter().map(run).collect())
    }
}

pub(crate) fn edge(input: &str, failure_point: Option<u64>) -> Edge {
    Edge {
        input: input.into(),
        failure_point,
    }
}

pub(crate) fn entry(found_by: &str) -> Entry {
    Entry {
        priority: Priority::Medium,
        time_s: 1.5,
        execs: 7,
        new_locations: 3,
        found_by: found_by.to_owned(),
        minimised_from: None,
    }
}

pub(crate) fn open(directory: &Path) -> Result<Images, StoreError> {
    Images::open(directory).map(|(images, _)| images)
}

/// The files that images consist of, in the order in which they are written.
pub(crate) fn image_files(directory: &Path) -> [PathBuf; 3] {
    ["images.pack", "inputs.pack", "images.jsonl"].map(|name| directory.join(name))
}

/// A few pages, for tests that create many images.
pub(crate) fn small(value: u64) -> DirectoryContents {
    let mut pool = FileContents {
        len_bytes: 3 * PAGE as u64,
        ..FileContents::default()
    };
    let mut page = [7; PAGE];
    pool.set_page(0, &page);
    page[8..16].copy_from_slice(&value.to_le_bytes());
    pool.set_page(value % 3, &page);
    DirectoryContents {
        files: [("pool".to_owned(), pool)].into(),
    }
}

/// Runs this test program again with one test only, which finds the variable and takes the other role.
pub(crate) fn other_process(test: &str, variable: &str, value: impl AsRef<OsStr>) -> Command {
    let own = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(own);
    command.args(["--exact", test, "--nocapture"]);
    command.env(variable, value);
    command
}
