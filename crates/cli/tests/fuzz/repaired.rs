//! A campaign whose `images.pack` is removed, cut off or damaged makes its images again, byte for byte.

use std::collections::BTreeMap;
use std::fs;

use powerfail_fuzz_store::{DirectoryContents, ImageId, Images};

use crate::common::{CLEAN, FINDINGS, Folder, Run, SETUP};
use crate::{folder, fuzz, has_run, write_seeds};

const PACK: &str = "out/images.pack";

/// A campaign with images of crashes, and all of its images.
fn campaign(folder: &Folder) -> BTreeMap<ImageId, DirectoryContents> {
    write_seeds(folder);
    let flags = ["--seeds", "seeds", "--jobs", "1", "--timeout", "10s"];
    // Images are made before crashes find the bug.
    let more = ["--check-with", "prefix", "--until-found", "--time", "90s"];
    fuzz(folder, &[&flags[..], &more].concat()).ends_with(FINDINGS);
    let all = images(folder);
    let tree = Images::follow(&folder.path("out")).expect("a tree");
    let is_crash = |id: &ImageId| tree.node(*id).is_ok_and(|it| it.failure_point.is_some());
    assert!(all.keys().any(is_crash), "{}", all.len());
    all
}

/// All images of the campaign, as they are on disk.
fn images(folder: &Folder) -> BTreeMap<ImageId, DirectoryContents> {
    let images = Images::follow(&folder.path("out")).expect("a tree");
    let load = |id| (*images.load(id).expect("contents")).clone();
    let ids = images.nodes().into_iter().map(|node| node.id);
    ids.map(|id| (id, load(id))).collect()
}

#[track_caller]
fn are_all_there(folder: &Folder, before: &BTreeMap<ImageId, DirectoryContents>) {
    let now = images(folder);
    for (id, contents) in before {
        assert_eq!(now.get(id), Some(contents), "{id}");
        assert_eq!(contents.id(), *id);
    }
}

fn repair(folder: &Folder) -> Run {
    folder.powerfail(&["fuzz", "repair", "out"])
}

#[test]
fn images_are_made_again_byte_for_byte() {
    let folder = folder();
    let before = campaign(&folder);
    let sound = repair(&folder).ends_with(CLEAN);
    assert!(sound.stdout.contains("nothing is damaged"), "{sound:?}");

    fs::remove_file(folder.path(PACK)).expect("a pack");
    let repaired = repair(&folder).ends_with(CLEAN);
    // All but the empty one.
    let count = format!("the contents of {} images were missing", before.len() - 1);
    assert!(repaired.stdout.contains(&count), "{repaired:?}");
    are_all_there(&folder, &before);

    let mut pack = fs::read(folder.path(PACK)).expect("a pack");
    for byte in pack.iter_mut().step_by(211) {
        *byte ^= 0x10;
    }
    fs::write(folder.path(PACK), pack).expect("a pack");
    let repaired = repair(&folder).ends_with(CLEAN);
    assert!(repaired.stdout.contains("first 8 bytes"), "{repaired:?}");
    are_all_there(&folder, &before);
    let sound = repair(&folder).ends_with(CLEAN);
    assert!(sound.stdout.contains("nothing is damaged"), "{sound:?}");
}

#[test]
fn a_resumed_campaign_repairs_itself() {
    let folder = folder();
    let before = campaign(&folder);
    for part in [0, 1, 2] {
        let pack = fs::read(folder.path(PACK)).expect("a pack");
        fs::write(folder.path(PACK), &pack[..part * pack.len() / 3]).expect("a pack");
        let run = folder.powerfail(&["fuzz", "--resume", "--out", "out", "--execs", "1"]);
        has_run(&run);
        let says = run.stderr.contains("missing or damaged");
        assert!(says && run.stderr.contains("stored again"), "{run:?}");
        are_all_there(&folder, &before);
    }
}

#[test]
fn what_cannot_be_made_again_is_named_and_nothing_else_is_lost() {
    let folder = folder();
    let before = campaign(&folder);
    fs::remove_file(folder.path(PACK)).expect("a pack");
    let (shop, aside) = (folder.path("shop"), folder.path("aside"));
    fs::rename(&shop, &aside).expect("a program");
    let run = repair(&folder).ends_with(SETUP);
    assert!(run.stderr.contains("some images are lost"), "{run:?}");
    for id in before.keys().filter(|id| **id != Images::empty()) {
        assert!(run.stdout.contains(&id.to_string()), "no {id} in {run:?}");
    }
    fs::rename(&aside, &shop).expect("a program");
    repair(&folder).ends_with(CLEAN);
    are_all_there(&folder, &before);
}

#[test]
fn long_inputs_are_restored_from_test_cases() {
    const INPUTS: &str = "out/inputs.pack";
    let folder = folder();
    write_seeds(&folder);
    folder.write("seeds/long", &"abc".repeat(200));
    let flags = ["--seeds", "seeds", "--jobs", "1", "--timeout", "10s"];
    let more = ["--check-with", "prefix", "--until-found", "--time", "90s"];
    fuzz(&folder, &[&flags[..], &more].concat()).ends_with(FINDINGS);
    let paths = |folder: &Folder| {
        let images = Images::follow(&folder.path("out")).expect("a tree");
        let ids = images.nodes().into_iter().map(|node| node.id);
        ids.map(|id| images.path(id).ok()).collect::<Vec<_>>()
    };
    let before = paths(&folder);
    assert!(before.iter().all(Option::is_some));
    fs::remove_file(folder.path(INPUTS)).expect("a pack");
    let repaired = repair(&folder).ends_with(CLEAN);
    let says = repaired.stdout.contains("stored again, from test cases");
    assert!(says, "{repaired:?}");
    assert_eq!(paths(&folder), before);
}
