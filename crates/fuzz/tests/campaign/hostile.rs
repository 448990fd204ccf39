//! Misbehaving targets. A few images are enough: by then, the initial inputs have been executed and recorded.

use crate::Campaign;

#[test]
fn processes_that_are_left_behind_do_not_matter() {
    let campaign = Campaign::new("f", &["a!fb\n", "!f\n"]);
    let told = campaign.until_images(5);
    assert_eq!(told.code, Some(0), "{told:#?}");
    assert!(told.of("end").next().is_some(), "{told:#?}");
}

#[test]
fn large_files_have_an_end() {
    let campaign = Campaign::new("g", &["a!g\n", "ab\n"]);
    let told = campaign.until_images(5);
    assert_eq!(told.code, Some(0), "{told:#?}");
    assert!(told.of("end").next().is_some(), "{told:#?}");
}
