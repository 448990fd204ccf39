//! Makes an image again from its parent and its edge: the program is recorded, and the trace cut.

use std::io;
use std::path::Path;
use std::sync::Arc;

use powerfail_fuzz_store::{Edge, Images, Rebuild};
use powerfail_image::{Contents, ImageId};
use powerfail_model::EventIndex;

use crate::error::CampaignError;
use crate::harvest::contents_at;
use crate::recording::{Recorded, Recorder};

impl Recorder {
    /// What an edge leads to.
    pub(crate) fn follow(&self, from: &Contents, edge: &Edge) -> Result<Contents, CampaignError> {
        let recording = match self.record(from, &edge.input)? {
            Recorded::Done(recording) => recording,
            Recorded::Useless(sentence) => return Err(CampaignError::Target(sentence)),
            Recorded::Interrupted => return Err(CampaignError::Interrupted),
        };
        let trace = &recording.trace;
        let end = trace.event_count();
        let at = edge.failure_point.unwrap_or(end);
        if at > end {
            return Err(CampaignError::Target(format!(
                "the run has {end} events now, and the failure point is {at}: it depends on more than the \
                 image and the input"
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
    fn run(&mut self, from: &Contents, edge: &Edge) -> io::Result<Contents> {
        self.follow(from, edge).map_err(io::Error::other)
    }
}

/// Makes every image of a campaign again from the tree alone, and compares it with what is kept. Gives those
/// that became something else, each with a sentence.
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
            Ok(_) => wrong.push((node.id, "it has other bytes".to_owned())),
            Err(error) => wrong.push((node.id, crate::checker::sentence(&error))),
        }
    }
    Ok(wrong)
}
