//! Images only take the space of their differences. The benchmark `corpus` has the figures for ten thousand.

use powerfail_fuzz_store::{DirectoryContents, Images};
use powerfail_protocol::random::Random;

use crate::common::{TestResult, edge, open, run};

/// 500 MB for ten thousand would be 50 kB for each; they take a hundredth of that.
const BYTES_PER_IMAGE: u64 = 500;

#[test]
fn a_thousand_images_of_8_mib_take_half_a_megabyte() -> TestResult {
    const IMAGES: usize = 1000;
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let create = edge("create\n", None);
    let pool = run(&DirectoryContents::default(), &create);
    let (first, _) = images.insert(Images::empty(), &create, &pool)?;
    let whole_bytes = images.bytes_on_disk()?;
    let mut random = Random::new(7);
    let mut ids = vec![first];
    while ids.len() < IMAGES {
        // Late images are chosen more often: the images of a campaign form long chains.
        let any = random.below(ids.len() as u64);
        let parent = ids[any.max(random.below(ids.len() as u64)) as usize];
        let from = images.load(parent)?;
        let input = format!(
            "insert {}\nremove {}\n",
            random.below(1000),
            random.below(1000)
        );
        for failure_point in [None, Some(2), Some(5)] {
            let edge = edge(&input, failure_point);
            let (id, new) = images.insert(parent, &edge, &run(&from, &edge))?;
            ids.extend(new.then_some(id));
        }
    }
    let bytes = images.bytes_on_disk()? - whole_bytes;
    assert!(
        bytes < IMAGES as u64 * BYTES_PER_IMAGE,
        "{bytes} bytes for {IMAGES} images"
    );
    assert_eq!(open(directory.path())?.len(), ids.len() + 1);
    Ok(())
}
