//! What to look for, and under which assumptions.

use powerfail_model::Domain;

use crate::trust::Trust;

/// The parameters of the lint.
#[derive(Clone, Debug)]
pub struct LintOptions {
    /// What survives a crash without any instruction. Under `eadr` nothing needs a flush, so only
    /// fences and non-temporal stores are judged. Under `pagecache` only msync and its like make
    /// anything durable: they are the flushes, and flush and fence instructions are not judged.
    pub domain: Domain,
    /// Whose business is not reported.
    pub trust: Trust,
    /// Also give what is not a bug by itself: PF0601, PF0602, PF0604 and PF0605.
    pub warnings: bool,
    /// After how many fences of its thread a store that is not flushed is late: PF0605.
    pub dirty_fences: u32,
}

impl LintOptions {
    /// The usual value of [`Self::dirty_fences`], which Yat's paper proposes.
    pub const DIRTY_FENCES: u32 = 10;
}

impl Default for LintOptions {
    fn default() -> Self {
        Self {
            domain: Domain::default(),
            trust: Trust::default(),
            warnings: false,
            dirty_fences: Self::DIRTY_FENCES,
        }
    }
}
