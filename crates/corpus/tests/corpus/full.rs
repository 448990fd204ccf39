//! A disk that is full: what cannot be kept is refused, and everything else goes on.
//!
//! The limit of file sizes stands for the disk: a write that reaches it is done in part, and the next one
//! fails. It is a limit of a process, so this test runs itself again in another one.

use std::path::Path;
use std::process::Command;

use powerfail_corpus::{Campaign, Contents, CorpusError, StatsLine, TestCase};
use powerfail_image::FileContents;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::{PAGE, Random, TestResult, edge, entry, other_process, small};

const VARIABLE: &str = "POWERFAIL_CORPUS_TEST_FULL";

/// So many failures are seen at least, or the test tests nothing.
const FAILURES: u64 = 500;

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
    // The signal that comes with the limit is ignored, as it is where disks are full.
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

/// Contents that do not compress.
fn noise(value: u64) -> Contents {
    let mut random = Random::new(value);
    let mut pool = FileContents {
        len_bytes: 8 * PAGE as u64,
        ..FileContents::default()
    };
    for number in 0..8 {
        pool.set_page(number, &std::array::from_fn(|_| random.next() as u8));
    }
    Contents {
        files: [("pool".to_owned(), pool)].into(),
    }
}

/// Does all that is kept, one after the other, until something fails. Each may be done twice.
fn work(campaign: &mut Campaign, round: u64) -> Result<(), CorpusError> {
    let (root, _) = campaign.images.insert_root("root", &small(round))?;
    let long = "x".repeat(2000 + round as usize);
    let (child, _) = (campaign.images).insert(root, &edge(&long, None), &small(10_000 + round))?;
    let case = TestCase {
        image: child,
        input: round.to_le_bytes().repeat(100),
    };
    let (number, _) = campaign.queue.append(&case, &entry("full"))?;
    campaign.queue.retire(number, "it is tested")?;
    campaign.stats.append(&StatsLine {
        execs: round,
        ..StatsLine::default()
    })
}

fn check(directory: &Path, rounds: u64) -> TestResult {
    let campaign = Campaign::resume(directory)?;
    assert_eq!(campaign.cuts, []);
    assert!(campaign.images.verify().is_empty());
    for round in 0..rounds {
        assert!(campaign.images.contains(small(round).id()));
        let child = small(10_000 + round).id();
        let path = campaign.images.path(child)?;
        assert_eq!(
            path.last().map(|edge| edge.input.len() as u64),
            Some(2000 + round)
        );
        let case = campaign
            .queue
            .load(powerfail_corpus::CaseNumber(round + 1))?;
        assert_eq!(
            (case.image, &case.input[..8]),
            (child, &round.to_le_bytes()[..])
        );
    }
    assert!(campaign.queue.is_empty());
    assert_eq!(campaign.queue.cases().len() as u64, rounds);
    assert_eq!(
        campaign.stats.last().map(|line| line.execs + 1),
        Some(rounds)
    );
    Ok(())
}

fn fill_again_and_again(directory: &Path) -> TestResult {
    let mut campaign = Campaign::create(directory, Vec::new(), serde_json::Value::Null)?;
    let files = [
        "images.pack",
        "inputs.pack",
        "images.jsonl",
        "queue.jsonl",
        "stats.jsonl",
    ];
    let mut failures = 0_u64;
    let mut round = 0;
    for file in files {
        let path = directory.join(file);
        for step in 0..12 {
            // The file that is to meet the limit has to be the longest: the others would meet it first.
            // Only the first can be made so on purpose; the others are as long as they are.
            if file == "images.pack" {
                campaign.images.insert_root("noise", &noise(round))?;
            }
            let mut room = path.metadata()?.len() + step % 3;
            while let Err(error) = {
                limit(Some(room))?;
                work(&mut campaign, round)
            } {
                limit(None)?;
                assert!(error.is_full(), "{error:?}");
                failures += 1;
                room += 1 + room / 50 + step;
            }
            limit(None)?;
            round += 1;
        }
    }
    drop(campaign);
    check(directory, round)?;
    println!("\nfailures {failures}");
    Ok(())
}
