//! Makes images from a trace: what the run left at its end, and what a power failure would have left.
//!
//! A crash image is the pool at one moment, with every store before it durable. The moments are those before
//! ordering points whose location on the PM path is new in the campaign (section 3.2 of the `PMFuzz` paper), and a
//! few random ones. Images with lost lines are the business of the checks, not of the fuzzer.

use std::path::Path;

use powerfail_explore::{FailurePointOptions, FailurePointsByStack, Random};
use powerfail_image::{CursorOptions, DirectoryContents, ImageCursor};
use powerfail_model::{EventIndex, PoolIndex, Rules};
use powerfail_protocol::fuzz::MAP_LEN;
use powerfail_recorder::executor::locations_of;
use powerfail_trace::Trace;

use crate::error::CampaignError;

/// The maximum number of crash images of one trace.
const CRASH_IMAGES_MAX: usize = 64;

/// Locations at which crash images were made.
#[derive(Clone, Debug)]
pub(crate) struct ImagedLocations {
    seen: Vec<bool>,
    /// Locations since the last call of [`ImagedLocations::take_new`].
    new: Vec<u32>,
}

impl Default for ImagedLocations {
    fn default() -> Self {
        Self {
            seen: vec![false; MAP_LEN],
            new: Vec::new(),
        }
    }
}

impl ImagedLocations {
    /// Adds a location; returns whether it is new.
    pub(crate) fn insert(&mut self, location: u32) -> bool {
        let place = location as usize & (MAP_LEN - 1);
        let is_new = !std::mem::replace(&mut self.seen[place], true);
        if is_new {
            self.new.push(location);
        }
        is_new
    }

    /// Adds locations of an earlier run of the campaign.
    pub(crate) fn restore(&mut self, locations: &[u32]) {
        for location in locations {
            self.seen[*location as usize & (MAP_LEN - 1)] = true;
        }
    }

    /// The locations that were added since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.new)
    }
}

/// How moments for crash images are chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageOptions {
    pub(crate) rules: Rules,
    pub(crate) include_create: bool,
    /// Whether an operation is identified by its whole call stack.
    pub(crate) stacks: bool,
    /// The average number of random moments.
    pub(crate) random_images: f64,
}

/// Chooses the moments of a trace at which crash images are made, in order, and adds their locations to `seen`.
pub(crate) fn choose_moments(
    trace: &Trace,
    choice: &ImageOptions,
    seen: &mut ImagedLocations,
    random: &mut Random,
) -> Result<Vec<EventIndex>, CampaignError> {
    let options = FailurePointOptions {
        per_stack: 0,
        include_create: choice.include_create,
        digests: false,
        ..FailurePointOptions::default()
    };
    let tree = FailurePointsByStack::ordering(trace, choice.rules, options, &mut |_| false)?;
    let points = tree.stacks().iter().flat_map(|stack| &stack.points);
    let mut points: Vec<EventIndex> = points.map(|point| point.at).collect();
    points.sort_unstable();
    let locations = locations_at(trace, choice.stacks, &points)?;
    let mut chosen: Vec<EventIndex> = Vec::new();
    for (at, location) in points.iter().zip(locations) {
        if chosen.len() < CRASH_IMAGES_MAX && seen.insert(location) {
            chosen.push(*at);
        }
    }
    let wanted = random_count(choice.random_images, random);
    if !points.is_empty() {
        for _ in 0..wanted {
            let place = random.below(points.len() as u64);
            chosen.push(points[place as usize]);
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

/// A random number whose average is `rate`.
fn random_count(rate: f64, random: &mut Random) -> u64 {
    const PARTS: u32 = 1 << 20;
    #[expect(
        clippy::cast_sign_loss,
        reason = "clamped to numbers that are not negative"
    )]
    let scaled = (rate.clamp(0.0, 64.0) * f64::from(PARTS)) as u64;
    let parts = u64::from(PARTS);
    scaled / parts + u64::from(random.below(parts) < scaled % parts)
}

/// The location on the PM path of each of these moments, which are in order: that of the event or, if the event is
/// no operation, that of the last operation before it.
pub(crate) fn locations_at(
    trace: &Trace,
    stacks: bool,
    points: &[EventIndex],
) -> Result<Vec<u32>, CampaignError> {
    let mut found = Vec::with_capacity(points.len());
    let mut last = 0;
    locations_of(trace, stacks, |it| {
        while points.get(found.len()).is_some_and(|next| *next < it.event) {
            found.push(last);
        }
        last = it.location;
        if points.get(found.len()) == Some(&it.event) {
            found.push(last);
        }
    })?;
    found.resize(points.len(), last);
    Ok(found)
}

/// The contents of the directory of `{pool}` at moments of a trace, which are in order; the number of events stands for
/// the end. Files that are not pools are taken from `parent`.
pub(crate) fn contents_at(
    trace: &Trace,
    directory: &Path,
    parent: &DirectoryContents,
    moments: &[EventIndex],
    mut each: impl FnMut(EventIndex, DirectoryContents) -> Result<(), CampaignError>,
) -> Result<(), CampaignError> {
    let mut cursor = ImageCursor::new(trace, CursorOptions::default())?;
    let files: Vec<(PoolIndex, String)> = (0..)
        .map(PoolIndex)
        .zip(trace.pools())
        .filter_map(|(index, pool)| {
            let name = pool.path.strip_prefix(directory).ok()?;
            Some((index, name.to_str()?.to_owned()))
        })
        .collect();
    for at in moments {
        cursor.move_to(*at)?;
        let mut contents = parent.clone();
        for (pool, name) in &files {
            if let Some(file) = cursor.file_contents(*pool) {
                contents.files.insert(name.clone(), file);
            }
        }
        contents.share_with(parent);
        each(*at, contents)?;
    }
    Ok(())
}
