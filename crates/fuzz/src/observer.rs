//! Whom to tell.

use std::path::Path;

use powerfail_finding::Finding;

use crate::stats::Stats;

/// Hears what happens. Everything that is told has been kept before. Called by several threads.
pub trait Observer: Sync {
    /// About once a second.
    fn stats(&self, stats: &Stats);
    /// A new finding, and the directory with its evidence.
    fn finding(&self, finding: &Finding, directory: &Path);
    /// Something that limits the campaign: a sentence.
    fn warning(&self, sentence: &str);
    /// Whether to stop.
    fn is_interrupted(&self) -> bool;
}
