//! The instructions that append records.

use std::fs::File;

use powerfail_abi::SiteId;
use powerfail_abi::message::SiteTactic;
use powerfail_trace::{Frame, StackId, TraceError, TraceWriter};

use crate::summary::TacticCounts;

#[derive(Clone, Copy, Debug)]
struct Site {
    frame: Frame,
    tactic: SiteTactic,
    /// Known once a record of the site was written.
    stack: StackId,
}

/// All sites, of all processes.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    sites: Vec<Option<Site>>,
    counts: TacticCounts,
}

/// Sites are numbered densely; a higher number is a damaged message.
const SITES_MAX: usize = 1 << 24;

impl Sites {
    /// A site is there, or is reached in another way than before.
    pub(crate) fn define(&mut self, id: SiteId, frame: Frame, tactic: SiteTactic) {
        let place = id.0 as usize;
        if place >= SITES_MAX {
            return;
        }
        if place >= self.sites.len() {
            self.sites.resize(place + 1, None);
        }
        if let Some(before) = self.sites[place] {
            self.counts.remove(before.tactic);
        }
        self.counts.add(tactic);
        self.sites[place] = Some(Site {
            frame,
            tactic,
            stack: StackId::NONE,
        });
    }

    /// The call stack of a site: one frame. None if the site was never defined.
    pub(crate) fn stack(
        &mut self,
        id: SiteId,
        writer: &mut TraceWriter<File>,
    ) -> Result<StackId, TraceError> {
        let Some(Some(site)) = self.sites.get_mut(id.0 as usize) else {
            return Ok(StackId::NONE);
        };
        if site.stack.is_none() {
            site.stack = writer.intern_stack(&[site.frame])?;
        }
        Ok(site.stack)
    }

    /// Whether a site traps at each execution.
    pub(crate) fn is_trap(&self, id: SiteId) -> bool {
        matches!(
            self.sites.get(id.0 as usize),
            Some(Some(Site {
                tactic: SiteTactic::Trap,
                ..
            }))
        )
    }

    /// How many there are of each tactic.
    pub(crate) const fn counts(&self) -> TacticCounts {
        self.counts
    }
}

/// The tactic with a number.
pub(crate) fn tactic_from_number(number: u64) -> Option<SiteTactic> {
    [
        SiteTactic::Trap,
        SiteTactic::Jump,
        SiteTactic::Pun,
        SiteTactic::Eviction,
        SiteTactic::System,
    ]
    .into_iter()
    .find(|tactic| *tactic as u64 == number)
}
