//! What to look for, and under which assumptions.

use powerfail_model::Domain;

use crate::trust::Trust;

/// The parameters of the lint.
#[derive(Clone, Debug, Default)]
pub struct LintOptions {
    /// What survives a crash without any instruction. Under `eadr` nothing needs a flush, so only
    /// fences and non-temporal stores are judged. Under `pagecache` only msync and its like make
    /// anything durable: they are the flushes, and flush and fence instructions are not judged.
    pub domain: Domain,
    /// Whose business is not reported.
    pub trust: Trust,
    /// Also give what is not a bug by itself: PF0601 and PF0602.
    pub warnings: bool,
}
