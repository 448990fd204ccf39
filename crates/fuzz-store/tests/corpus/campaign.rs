//! One process at a time, and a campaign that is restored unchanged.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use powerfail_fuzz_store::{
    Campaign, Images, Lock, Stats, StoreError, TestCase, discard_unused, read_record, read_stats,
};
use serde_json::json;

use crate::common::{TestResult, entry, other_process};

const VARIABLE: &str = "POWERFAIL_CORPUS_TEST_LOCK";

#[test]
fn a_campaign_is_resumed_as_it_was() -> TestResult {
    let directory = tempfile::tempdir()?;
    let directory = directory.path().join("out");
    let nothing = Campaign::resume(&directory).err();
    assert!(matches!(nothing, Some(StoreError::NoCampaign { .. })));
    let command = vec!["kv".to_owned(), "{pool}".to_owned()];
    let campaign = Campaign::create(&directory, command.clone(), json!({"jobs": 2}))?;
    let id = campaign.record.id.clone();
    assert_eq!(campaign.directory(), directory);
    assert!(campaign.findings_directory().is_dir());
    let both = Campaign::resume(&directory).err();
    assert!(matches!(both, Some(StoreError::Locked { .. })), "{both:?}");
    drop(campaign);
    let again = Campaign::create(&directory, Vec::new(), json!(null)).err();
    assert!(
        matches!(again, Some(StoreError::Exists { .. })),
        "{again:?}"
    );
    let mut campaign = Campaign::resume(&directory)?;
    assert_eq!(campaign.record.command, command);
    assert_eq!(campaign.record.options, json!({"jobs": 2}));
    campaign.set_options(json!({"jobs": 4}))?;
    let record = read_record(&directory)?;
    assert_eq!((record.id, record.options), (id, json!({"jobs": 4})));
    std::fs::write(directory.join("campaign.json"), r#"{"format": 99}"#)?;
    let newer = read_record(&directory).err();
    assert!(
        matches!(newer, Some(StoreError::Version { .. })),
        "{newer:?}"
    );
    Ok(())
}

/// Whatever lies in the directory, nothing outside of it is read or written.
#[test]
fn no_link_in_the_directory_is_followed() -> TestResult {
    for name in [
        "images.jsonl",
        "images.pack",
        "inputs.pack",
        "queue.jsonl",
        "stats.jsonl",
        "lock",
        "queue",
        "findings",
    ] {
        let place = tempfile::tempdir()?;
        let (directory, outside) = (place.path().join("out"), place.path().join("outside"));
        std::fs::create_dir(&directory)?;
        if ["queue", "findings"].contains(&name) {
            std::fs::create_dir(&outside)?;
        } else {
            std::fs::write(&outside, "precious")?;
        }
        std::os::unix::fs::symlink(&outside, directory.join(name))?;
        let refused = Campaign::create(&directory, Vec::new(), json!(null)).err();
        let Some(StoreError::File { path, source, .. }) = refused else {
            panic!("{name}: {refused:?}");
        };
        assert_eq!(path, directory.join(name));
        assert!(source.to_string().contains("symbolic link"), "{source}");
        if outside.is_file() {
            assert_eq!(std::fs::read_to_string(&outside)?, "precious");
        }
    }
    let place = tempfile::tempdir()?;
    std::fs::create_dir(place.path().join("outside"))?;
    let link = place.path().join("out");
    std::os::unix::fs::symlink(place.path().join("outside"), &link)?;
    let refused = Campaign::create(&link, Vec::new(), json!(null)).err();
    assert!(
        matches!(refused, Some(StoreError::File { .. })),
        "{refused:?}"
    );
    assert_eq!(std::fs::read_dir(place.path().join("outside"))?.count(), 0);
    Ok(())
}

#[test]
fn only_a_campaign_in_which_nothing_happened_is_discarded() -> TestResult {
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    std::fs::write(directory.join("notes"), "mine")?;
    std::fs::write(directory.join("checks.jsonl"), "")?;
    let campaign = Campaign::create(directory, Vec::new(), json!(null))?;
    assert!(!discard_unused(directory), "it is in use");
    drop(campaign);
    assert!(discard_unused(directory));
    let left: Vec<_> = std::fs::read_dir(directory)?.collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let campaign = Campaign::create(directory, Vec::new(), json!(null))?;
    let case = TestCase {
        image: Images::empty(),
        input: b"a".to_vec(),
    };
    campaign.queue.append(&case, &entry("added"))?;
    drop(campaign);
    assert!(!discard_unused(directory));
    assert_eq!(Campaign::resume(directory)?.queue.len(), 1);
    Ok(())
}

#[test]
fn statistics_go_on_where_they_stopped() -> TestResult {
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    let campaign = Campaign::create(directory, Vec::new(), json!(null))?;
    assert_eq!(campaign.stats.last(), None);
    let mut lines = Vec::new();
    for number in 0..3_u32 {
        lines.push(Stats {
            time_s: 0.1 + f64::from(number),
            execs: 1000 * u64::from(number),
            stability: 0.99,
            more: [("of_the_future".to_owned(), json!(number))].into(),
            ..Stats::default()
        });
        campaign.stats.append(&lines[number as usize])?;
    }
    // A plot reads the file while it is written, and sees only numbers.
    assert_eq!(read_stats(directory)?, lines);
    let text = std::fs::read_to_string(directory.join("stats.jsonl"))?;
    assert!(text.starts_with(r#"{"time_s":0.1,"execs":0,"#), "{text}");
    drop(campaign);
    let path = directory.join("stats.jsonl");
    std::fs::write(&path, format!("{text}{{\"time_s\":4"))?;
    let campaign = Campaign::resume(directory)?;
    assert_eq!(campaign.stats.last().as_ref(), lines.last());
    assert_eq!((campaign.cuts.len(), campaign.cuts[0].lost_bytes), (1, 11));
    assert_eq!(std::fs::read_to_string(&path)?, text);
    Ok(())
}

/// Takes the lock, reports it, and waits for the end of its input.
fn hold(directory: &Path) -> TestResult {
    let _lock = Lock::take(directory)?;
    println!("\nlocked");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Waits until a process reports that it has the lock. Returns its output, so that later output can be read.
fn wait_for_lock(process: &mut Child) -> TestResult<BufReader<ChildStdout>> {
    let mut stdout = BufReader::new(process.stdout.take().ok_or("it is piped")?);
    let mut lines = stdout.by_ref().lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "locked"));
    Ok(stdout)
}

#[test]
fn two_processes_do_not_have_one_lock() -> TestResult {
    if let Some(directory) = std::env::var_os(VARIABLE) {
        return hold(Path::new(&directory));
    }
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    let start = || {
        let test = "campaign::two_processes_do_not_have_one_lock";
        other_process(test, VARIABLE, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
    };
    let locked_by = || match Lock::take(directory) {
        Err(StoreError::Locked { by, .. }) => Some(by),
        _ => None,
    };
    // A process that ends normally.
    let mut other = start()?;
    let mut rest = wait_for_lock(&mut other)?;
    assert_eq!(locked_by(), Some(format!("process {}", other.id())));
    drop(other.stdin.take());
    rest.read_to_end(&mut Vec::new())?;
    assert!(other.wait()?.success());
    drop(Lock::take(directory)?);
    // A process that is killed.
    let mut other = start()?;
    let _rest = wait_for_lock(&mut other)?;
    other.kill()?;
    other.wait()?;
    let record = std::fs::read_to_string(directory.join("lock"))?;
    drop(Lock::take(directory)?);
    // A process that is killed and has left a forked child: the kernel's lock is still held.
    std::fs::write(directory.join("lock"), record)?;
    let mut left = Command::new("flock")
        .arg(directory.join("lock"))
        .args(["sh", "-c", "echo locked; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let _rest = wait_for_lock(&mut left)?;
    let lock = Lock::take(directory)?;
    assert_eq!(locked_by(), Some(format!("process {}", std::process::id())));
    drop(left.stdin.take());
    left.wait()?;
    assert!(locked_by().is_some());
    drop(lock);
    assert_eq!(locked_by(), None);
    Ok(())
}
