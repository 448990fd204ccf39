//! Run directories are removed.

use std::fs;
use std::process::Command;

use powerfail_image::{RunDirectory, sweep_leftovers};

#[test]
fn a_run_directory_is_gone_when_dropped() {
    let parent = tempfile::tempdir().unwrap();
    let first = RunDirectory::create_in(parent.path()).unwrap();
    let second = RunDirectory::create_in(parent.path()).unwrap();
    assert_ne!(first.path(), second.path());
    fs::create_dir_all(second.path().join("slot-0/deep")).unwrap();
    drop(second);
    let left: Vec<_> = fs::read_dir(parent.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
    assert!(first.path().is_dir());
}

#[test]
fn leftovers_of_the_dead_are_swept_and_nothing_else() {
    let parent = tempfile::tempdir().unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    let dead = child.id();
    child.wait().unwrap();
    let make = |name: String| {
        let path = parent.path().join(name);
        fs::create_dir_all(path.join("slot-0")).unwrap();
        path
    };
    let leftover = make(format!("powerfail-{dead}-123-0"));
    // Process ids are reused: the start time identifies the process.
    let recycled = make(format!("powerfail-{}-1-0", std::process::id()));
    let repeated = make(format!("powerfail-repeat-{dead}-0"));
    let repeating = make(format!("powerfail-repeat-{}-0", std::process::id()));
    let foreign = make("powerfail-notes".into());
    let alive = RunDirectory::create_in(parent.path()).unwrap();
    let removed = sweep_leftovers(parent.path()).unwrap();
    let mut expected = vec![leftover, recycled, repeated];
    expected.sort_unstable();
    assert_eq!(removed, expected);
    assert!(repeating.is_dir() && foreign.is_dir() && alive.path().is_dir());
}

#[test]
fn a_locked_directory_is_in_use_even_if_its_process_is_not_seen() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("powerfail-1-1-0");
    fs::create_dir(&path).unwrap();
    let lock = fs::File::open(&path).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(sweep_leftovers(parent.path()).unwrap().is_empty());
    // Closing it would not be enough: a child of another test may share the descriptor.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
    assert_eq!(sweep_leftovers(parent.path()).unwrap(), [path]);
}
