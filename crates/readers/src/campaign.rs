//! The directory of a campaign: read as another process reads it, and resumed.

use powerfail_files::Directory;
use powerfail_fuzz_store::{
    Campaign, DirectoryContents, Edge, Entry, Images, Priority, TestCase, read_cases, read_record,
    read_stats,
};
use serde_json::json;

use crate::archive::{Unpacked, pack_directory};

/// More images are not looked at.
const IMAGES_MAX: usize = 8;

pub(crate) fn body(bytes: &[u8]) {
    let place = Unpacked::new(bytes);
    let inside = place.path("inside");
    let _ = read_record(&inside);
    let _ = read_cases(&inside);
    let _ = read_stats(&inside);
    let mut made = vec!["image".to_owned()];
    if let Ok(images) = Images::follow(&inside) {
        for (number, node) in images.nodes().iter().take(IMAGES_MAX).enumerate() {
            let _ = images.path(node.id);
            if let Ok(contents) = images.load(node.id) {
                let name = format!("image-{number}");
                let to = Directory::create_new(&place.path(&name)).expect("a directory");
                let _ = contents.write(&to);
                made.push(name);
            }
        }
    }
    if let Ok(campaign) = Campaign::resume(&inside) {
        for case in campaign.queue.cases().iter().take(IMAGES_MAX) {
            let _ = campaign.queue.load(case.number);
        }
        let case = TestCase {
            image: Images::empty(),
            input: b"new".to_vec(),
        };
        let _ = campaign.queue.append(&case, &entry());
    }
    let made: Vec<&str> = made.iter().map(String::as_str).collect();
    place.is_confined(&made);
}

fn entry() -> Entry {
    Entry {
        priority: Priority::High,
        time_s: 0.5,
        execs: 3,
        new_locations: 1,
        found_by: "seed".into(),
        minimised_from: None,
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let place = tempfile::tempdir().expect("a directory");
    let out = place.path().join("out");
    let command = vec!["kv".to_owned(), "{pool}".to_owned()];
    let campaign = Campaign::create(&out, command, json!({"jobs": 1})).expect("a campaign");
    let mut seeds = vec![pack_directory(&out)];
    let mut contents = DirectoryContents::default();
    let file = contents.files.entry("pool".into()).or_default();
    file.len_bytes = 1 << 13;
    file.set_page(1, &[7; 4096]);
    let mut parent = Images::empty();
    for (number, input) in [&b"put 1\n"[..], &[b'x'; 300]].into_iter().enumerate() {
        let edge = Edge {
            input: input.to_vec(),
            failure_point: (number > 0).then_some(17),
        };
        let made = campaign.images.insert(parent, &edge, &contents);
        parent = made.expect("an image").0;
        let case = TestCase {
            image: parent,
            input: input.to_vec(),
        };
        campaign.queue.append(&case, &entry()).expect("a test case");
        let file = contents.files.entry("more/log".into()).or_default();
        file.len_bytes = 100;
    }
    drop(campaign);
    seeds.push(pack_directory(&out));
    seeds
}
