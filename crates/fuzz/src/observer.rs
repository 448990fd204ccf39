//! The interface through which a campaign reports what happens.

use std::path::Path;

use powerfail_finding::Finding;

use powerfail_fuzz_store::{MinimisedInput, Stats};

/// Receives the events of a campaign. Everything that is reported is on disk already. Called by several threads.
pub trait CampaignObserver: Sync {
    /// New statistics, about once a second.
    fn stats(&self, stats: &Stats);
    /// A new finding, and the directory with its evidence.
    fn finding(&self, finding: &Finding, directory: &Path);
    /// Something limits the campaign; the sentence says what.
    fn warning(&self, sentence: &str);
    /// The test case of a finding became smaller.
    fn minimising(&self, _minimised: &MinimisedInput) {}
    /// Whether the campaign has to stop.
    fn is_interrupted(&self) -> bool;
}
