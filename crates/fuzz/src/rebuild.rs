//! Makes an image again from its parent and its edge: records the run, and takes the pool at the failure point.

use std::io;
use std::path::Path;
use std::sync::Arc;

use powerfail_fuzz_store::{Edge, Images, Rebuild};
use powerfail_image::{DirectoryContents, ImageId};
use powerfail_model::EventIndex;

use crate::crash_images::contents_at;
use crate::error::CampaignError;
use crate::recording::{Recorded, Recorder};

impl Recorder {
    /// The image that an edge leads to.
    pub(crate) fn follow(
        &self,
        from: &DirectoryContents,
        edge: &Edge,
    ) -> Result<DirectoryContents, CampaignError> {
        let recording = match self.record(from, &edge.input)? {
            Recorded::Done(recording) => recording,
            Recorded::Unusable(sentence) => return Err(CampaignError::Target(sentence)),
            Recorded::Interrupted => return Err(CampaignError::Interrupted),
        };
        let trace = &recording.trace;
        let end = trace.event_count();
        let at = edge.failure_point.unwrap_or(end);
        if at > end {
            return Err(CampaignError::Target(format!(
                "the run now has {end} events, but the failure point is {at}: the target depends on something \
                 besides the image and the input"
            )));
        }
        let mut made = None;
        contents_at(
            trace,
            &self.pool_directory(),
            from,
            &[EventIndex(at)],
            |_, contents| {
                made = Some(contents);
                Ok(())
            },
        )?;
        Ok(made.unwrap_or_default())
    }
}

impl Rebuild for Recorder {
    fn run(&mut self, from: &DirectoryContents, edge: &Edge) -> io::Result<DirectoryContents> {
        self.follow(from, edge).map_err(io::Error::other)
    }
}

/// Makes every image of a campaign again from the tree alone, and compares it with the stored one. Returns the images
/// that differ, each with the reason.
pub fn rebuild_all(
    out: &Path,
    runtime: &Arc<[u8]>,
) -> Result<Vec<(ImageId, String)>, CampaignError> {
    let options = Arc::new(crate::run::resumed_options(out)?);
    let images = Images::follow(out)?;
    let mut recorder = Recorder::new(&options, runtime)?;
    let mut wrong = Vec::new();
    for node in images.nodes() {
        match images.rebuild(node.id, &mut recorder) {
            Ok(contents) if contents == *images.load(node.id)? => {}
            Ok(_) => wrong.push((node.id, "the bytes differ".to_owned())),
            Err(error) => wrong.push((node.id, crate::check_worker::sentence(&error))),
        }
    }
    Ok(wrong)
}
