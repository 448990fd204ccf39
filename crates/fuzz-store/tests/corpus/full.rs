//! A full disk: what cannot be stored is refused, and everything else continues.
//!
//! The limit of file sizes simulates the disk: a write that reaches it is done in part, and the next one fails. It is
//! a limit of a process, so this test runs itself again in another process.

use std::path::Path;
use std::process::Command;

use powerfail_fuzz_store::{
    Campaign, DirectoryContents, Edge, Images, Stats, StoreError, TestCase, read_stats,
};
use powerfail_image::FileContents;
use powerfail_protocol::random::Random;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::{PAGE, TestResult, entry, other_process, small};

const VARIABLE: &str = "POWERFAIL_CORPUS_TEST_FULL";

const ROUNDS: u64 = 6;
/// The minimum number of failures; otherwise the test checks nothing.
const FAILURES: u64 = 100;

fn limit(bytes: Option<u64>) -> TestResult {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = bytes.or(maximum);
    setrlimit(Resource::Fsize, Rlimit { current, maximum })?;
    Ok(())
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() -> TestResult {
    if let Some(directory) = std::env::var_os(VARIABLE) {
        return fill_again_and_again(Path::new(&directory));
    }
    let directory = tempfile::tempdir()?;
    let other = other_process(
        "full::a_full_disk_refuses_and_loses_nothing",
        VARIABLE,
        directory.path(),
    );
    // The signal for the limit is ignored, because a full disk sends none.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(other.get_program())
        .args(other.get_args())
        .env(VARIABLE, directory.path())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let failures: u64 = (text.lines())
        .find_map(|line| line.strip_prefix("failures ")?.parse().ok())
        .ok_or("it says how many")?;
    assert!(failures > FAILURES, "{failures}");
    Ok(())
}

/// Bytes that do not compress.
fn noise(value: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(value + 1);
    (0..len).map(|_| random.word() as u8).collect()
}

fn noisy_pool(value: u64) -> DirectoryContents {
    let mut pool = FileContents {
        len_bytes: PAGE as u64,
        ..FileContents::default()
    };
    let page = noise(value, PAGE).try_into().expect("a page");
    pool.set_page(0, &page);
    DirectoryContents {
        files: [("pool".to_owned(), pool)].into(),
    }
}

/// Stores something, such that one file reaches the limit before the others.
fn keep(campaign: &Campaign, file: &str, round: u64) -> Result<(), StoreError> {
    let long = Edge {
        input: noise(round, 3000),
        failure_point: None,
    };
    let case = |len| TestCase {
        image: Images::empty(),
        input: noise(round, len),
    };
    let images = &campaign.images;
    match file {
        "images.pack" => images.insert_root("noise", &noisy_pool(round)).map(drop),
        "inputs.pack" => (images.insert(Images::empty(), &long, &small(round))).map(drop),
        "images.jsonl" => images.insert_root("small", &small(round)).map(drop),
        "queue.jsonl" => (campaign.queue.append(&case(20), &entry("full"))).map(drop),
        "input" => (campaign.queue.append(&case(8000), &entry("full"))).map(drop),
        _ => campaign.stats.append(&Stats {
            execs: round,
            ..Stats::default()
        }),
    }
}

/// How many items [`keep`] has stored, all of which must be intact.
fn count(campaign: &Campaign, file: &str) -> TestResult<u64> {
    Ok(match file {
        "queue.jsonl" | "input" => {
            for case in campaign.queue.cases() {
                campaign.queue.load(case.number)?;
            }
            campaign.queue.len() as u64
        }
        "stats.jsonl" => read_stats(campaign.directory())?.len() as u64,
        _ => {
            for node in campaign.images.nodes() {
                campaign.images.path(node.id)?;
            }
            assert!(campaign.images.verify().is_empty());
            campaign.images.len() as u64 - 1
        }
    })
}

fn fill_again_and_again(directory: &Path) -> TestResult {
    let mut failures = 0_u64;
    let files = [
        "images.pack",
        "inputs.pack",
        "images.jsonl",
        "queue.jsonl",
        "input",
        "stats.jsonl",
    ];
    for file in files {
        let directory = directory.join(file);
        let campaign = Campaign::create(&directory, Vec::new(), serde_json::Value::Null)?;
        for round in 0..ROUNDS {
            let len = directory
                .join(file)
                .metadata()
                .map_or(0, |metadata| metadata.len());
            let mut room = len + round % 3;
            while round > 0 && {
                limit(Some(room))?;
                let kept = keep(&campaign, file, round);
                limit(None)?;
                match kept {
                    Ok(()) => false,
                    Err(error) => {
                        assert!(error.is_full(), "{error:?}");
                        let StoreError::File { path, .. } = error else {
                            return Err("a full disk is an error of a file".into());
                        };
                        assert!(path.to_string_lossy().ends_with(file), "{}", path.display());
                        assert_eq!(count(&campaign, file)?, round);
                        true
                    }
                }
            } {
                failures += 1;
                room += 1 + room / 30;
            }
            if round == 0 {
                keep(&campaign, file, round)?;
            }
            assert_eq!(count(&campaign, file)?, round + 1);
        }
        drop(campaign);
        let campaign = Campaign::resume(&directory)?;
        assert_eq!(campaign.cuts, []);
        assert_eq!(count(&campaign, file)?, ROUNDS);
    }
    println!("\nfailures {failures}");
    Ok(())
}
