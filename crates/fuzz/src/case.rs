//! What is run: an input on an image.

use powerfail_image::ImageId;

/// What a program is run on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TestCase {
    /// The image that its pool is.
    pub image: ImageId,
    /// What it is fed.
    pub input: Vec<u8>,
}
