//! Whether an execution still does what a finding is about. Costs an execution instead of a recording and recoveries.
//!
//! An execution reaches locations on PM paths: transitions between two operations. Those at the places of a finding
//! are known from its trace. This is a shortcut: an input may show the finding and come to its places in another way.

use powerfail_image::ImageId;

use crate::error::CampaignError;
use crate::target_runner::TargetRunner;

/// The places of a finding, and a target that executes inputs.
#[derive(Debug, Default)]
pub(crate) struct ReachedPlaces {
    target: Option<TargetRunner>,
    /// Where the finding is.
    places: Vec<u32>,
    /// What was done just before that.
    window: Vec<u32>,
}

impl ReachedPlaces {
    /// The locations that a test case reaches; the others say nothing.
    pub(crate) fn new(
        mut target: TargetRunner,
        image: ImageId,
        input: &[u8],
        mut places: Vec<u32>,
        mut window: Vec<u32>,
    ) -> Result<Self, CampaignError> {
        target.execute(image, input)?;
        let pm = target.executor().coverage().pm;
        let is_reached = |location: &u32| pm.get(*location as usize).is_some_and(|it| *it > 0);
        places.retain(is_reached);
        window.retain(is_reached);
        Ok(Self {
            target: Some(target),
            places,
            window,
        })
    }

    /// Whether an input reaches the places, or also what came before them. True if nothing is known about them.
    pub(crate) fn are_reached(
        &mut self,
        image: ImageId,
        input: &[u8],
        is_strict: bool,
    ) -> Result<bool, CampaignError> {
        let Some(target) = self.target.as_mut().filter(|_| !self.places.is_empty()) else {
            return Ok(true);
        };
        target.execute(image, input)?;
        let pm = target.executor().coverage().pm;
        let wanted = if is_strict {
            &self.window
        } else {
            &self.places
        };
        let is_reached = |location: &u32| pm.get(*location as usize).is_some_and(|it| *it > 0);
        Ok(wanted.iter().all(is_reached))
    }
}
