//! The images that an engine knows, and which of them are worth more runs.

use powerfail_image::ImageId;
use rustc_hash::FxHashMap;

use super::input::ImageNumber;

/// An image is given up if its first runs, this many, have all crashed or hung.
const HOPELESS_RUNS: u32 = 24;

/// How many of the newest images are tried early.
const NEWEST: usize = 16;

#[derive(Debug)]
struct Image {
    id: ImageId,
    runs: u32,
    normal_runs: u32,
    /// The program did not read its input in the last run.
    fixed: bool,
    reported: bool,
}

/// All images.
#[derive(Debug, Default)]
pub(crate) struct Images {
    images: Vec<Image>,
    numbers: FxHashMap<ImageId, ImageNumber>,
}

impl Images {
    pub(crate) fn len(&self) -> usize {
        self.images.len()
    }

    pub(crate) fn number(&mut self, id: ImageId) -> ImageNumber {
        *self.numbers.entry(id).or_insert_with(|| {
            self.images.push(Image {
                id,
                runs: 0,
                normal_runs: 0,
                fixed: false,
                reported: false,
            });
            ImageNumber(self.images.len() as u32 - 1)
        })
    }

    pub(crate) fn id(&self, number: ImageNumber) -> ImageId {
        self.images[number.0 as usize].id
    }

    /// Counts a run.
    pub(crate) fn ran(&mut self, number: ImageNumber, normal: bool, fixed: bool) {
        let image = &mut self.images[number.0 as usize];
        image.runs = image.runs.saturating_add(1);
        image.normal_runs = image.normal_runs.saturating_add(u32::from(normal));
        image.fixed = fixed;
    }

    /// Whether other inputs may do something new on this image.
    pub(crate) fn is_hopeful(&self, number: ImageNumber) -> bool {
        let image = &self.images[number.0 as usize];
        !image.fixed && (image.normal_runs > 0 || image.runs < HOPELESS_RUNS)
    }

    /// Whether this is the first crash or hang on the image.
    pub(crate) fn first_abnormal(&mut self, number: ImageNumber) -> bool {
        !std::mem::replace(&mut self.images[number.0 as usize].reported, true)
    }

    /// Another image, one of the newest in every second case.
    pub(crate) fn other(&self, than: ImageNumber, random: u64) -> Option<ImageNumber> {
        let from = if random & 1 == 0 {
            self.images.len().saturating_sub(NEWEST)
        } else {
            0
        };
        let count = (self.images.len() - from) as u64;
        let number = ImageNumber((from as u64 + (random >> 1) % count.max(1)) as u32);
        (count > 0 && number != than && self.is_hopeful(number)).then_some(number)
    }
}
