//! Makes an image again from its parent and its edge: the program is recorded, and the trace cut.

use std::io;

use powerfail_corpus::{Edge, Rebuild};
use powerfail_image::Contents;
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
