//! What makes stores durable in a domain, in words.

use powerfail_model::Domain;

/// What makes stores durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remedy(pub(crate) Domain);

impl Remedy {
    const fn is_sync(self) -> bool {
        matches!(self.0, Domain::PageCache)
    }

    /// `flush the data stored at map.c:17 and fence`.
    pub(crate) fn of(self, what: &str) -> String {
        if self.is_sync() {
            format!("write {what} back with msync(MS_SYNC) or fdatasync")
        } else {
            format!("flush {what} and fence")
        }
    }

    /// What to do after a store.
    pub(crate) fn after_store(self, at: &str) -> String {
        if self.is_sync() {
            format!("call msync(MS_SYNC) or fdatasync after the store at {at}")
        } else {
            format!("flush the line after the store at {at}, then fence")
        }
    }

    /// `flushed`: what a store is not that is lost.
    pub(crate) const fn done(self) -> &'static str {
        if self.is_sync() {
            "written back by msync"
        } else {
            "flushed"
        }
    }

    /// `flush`: the operation.
    pub(crate) const fn operation(self) -> &'static str {
        if self.is_sync() { "msync" } else { "flush" }
    }
}
