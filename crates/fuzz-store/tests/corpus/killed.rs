//! A campaign that is killed repeatedly at random moments.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use powerfail_fuzz_store::{Campaign, CaseNumber, ImageId, Images, Stats, TestCase};
use powerfail_protocol::random::Random;

use crate::common::{TestResult, edge, entry, other_process, small};

const VARIABLE: &str = "POWERFAIL_CORPUS_TEST_KILLED";

/// The campaign: stores an image, a test case and a line, and then reports it, until it is killed.
fn work_forever(directory: &Path) -> TestResult {
    let campaign = Campaign::resume(directory)?;
    let cases = campaign.queue.cases();
    let mut parent = cases.last().map_or(Images::empty(), |case| case.image);
    let mut value = campaign.images.len() as u64;
    loop {
        let input = format!("{value} ").repeat(1 + value as usize % 200);
        let (image, _) = (campaign.images).insert(parent, &edge(&input, None), &small(value))?;
        let case = TestCase {
            image,
            input: input.into_bytes(),
        };
        let (number, _) = campaign.queue.append(&case, &entry("killed"))?;
        campaign.stats.append(&Stats {
            execs: value,
            ..Stats::default()
        })?;
        println!("\nkept {} {image} {value}", number.0);
        value += 1;
        parent = if value.is_multiple_of(5) {
            Images::empty()
        } else {
            image
        };
    }
}

#[test]
fn a_killed_campaign_has_all_that_it_reported() -> TestResult {
    if let Some(directory) = std::env::var_os(VARIABLE) {
        return work_forever(Path::new(&directory));
    }
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    drop(Campaign::create(
        directory,
        Vec::new(),
        serde_json::Value::Null,
    )?);
    let mut random = Random::new(20);
    let mut reported: Vec<(CaseNumber, ImageId, u64)> = Vec::new();
    for _ in 0..20 {
        let test = "killed::a_killed_campaign_has_all_that_it_reported";
        let mut other = other_process(test, VARIABLE, directory)
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = other.stdout.take().ok_or("it is piped")?;
        let mut rest = 1 + random.below(40);
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            let Some(words) = line.strip_prefix("kept ") else {
                continue;
            };
            let words: Vec<_> = words.split(' ').collect();
            let [number, image, value] = words[..] else {
                // The last line may be incomplete as well.
                continue;
            };
            reported.push((CaseNumber(number.parse()?), image.parse()?, value.parse()?));
            // Reports between the kill and the end of the output count as well.
            rest = rest.saturating_sub(1);
            if rest == 0 {
                other.kill()?;
            }
        }
        other.wait()?;
        let campaign = Campaign::resume(directory)?;
        for (number, image, value) in &reported {
            assert_eq!(*campaign.images.load(*image)?, small(*value));
            let case = campaign.queue.load(*number)?;
            assert_eq!(case.image, *image);
            assert!(case.input.starts_with(format!("{value} ").as_bytes()));
        }
        let (_, _, value) = reported.last().ok_or("something is reported")?;
        let last = campaign.stats.last().ok_or("statistics")?;
        assert!(last.execs >= *value);
    }
    assert!(reported.len() >= 20);
    Ok(())
}
