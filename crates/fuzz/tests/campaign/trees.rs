//! Images can be rebuilt from the tree alone.

use crate::Campaign;

#[test]
fn every_image_is_made_again_byte_for_byte() {
    let campaign = Campaign::new("wu", &["abc\n", "a!w\n", "ru\n"]);
    let told = campaign.until_images(15);
    assert_eq!(told.code, Some(0), "{told:#?}");
    let again = campaign.helper(&["rebuild"]);
    assert_eq!(again.code, Some(0), "{again:#?}");
    assert_eq!(again.of("wrong").count(), 0, "{again:#?}");
    let images = again.of("images").next().expect("their number")[1];
    let images: u64 = images.parse().expect("a number");
    assert!(images >= 15, "{again:#?}");
}
