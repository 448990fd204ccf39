//! The instructions that append records.

use std::collections::BTreeSet;
use std::fs::File;

use powerfail_protocol::SiteId;
use powerfail_protocol::message::SiteTactic;
use powerfail_protocol::shared::Stacks;
use powerfail_trace::recording::TacticCounts;
use powerfail_trace::{Frame, StackId, TraceError, TraceWriter};

/// What a number in a record stands for: an instruction, or an instruction and its callers.
#[derive(Clone, Debug)]
struct Site {
    /// Innermost first.
    frames: Box<[Frame]>,
    tactic: SiteTactic,
    /// Known once a record of the site was written.
    stack: StackId,
}

/// All sites, of all processes.
#[derive(Debug)]
pub(crate) struct Sites {
    all: Vec<Option<Site>>,
    counts: TacticCounts,
    stacks: Stacks,
}

/// Sites are numbered densely; a higher number is a damaged message.
const SITES_MAX: usize = 1 << 24;

impl Sites {
    /// No sites yet; `stacks` says how much of them the trace has.
    pub(crate) fn new(stacks: Stacks) -> Self {
        Self {
            all: Vec::new(),
            counts: TacticCounts::default(),
            stacks,
        }
    }

    /// Adds a site, or changes how it is reached.
    pub(crate) fn define(&mut self, id: SiteId, frame: Frame, tactic: SiteTactic) {
        if let Some(before) = self.tactic(id) {
            self.counts.remove(before);
        }
        self.counts.add(tactic);
        self.set(id, Box::new([frame]), tactic);
    }

    /// Adds a call stack of a site: its frames, innermost first.
    pub(crate) fn define_stack(&mut self, id: SiteId, site: SiteId, frames: Box<[Frame]>) {
        let tactic = self.tactic(site).unwrap_or(SiteTactic::System);
        self.set(id, frames, tactic);
    }

    fn tactic(&self, id: SiteId) -> Option<SiteTactic> {
        Some(self.all.get(id.0 as usize)?.as_ref()?.tactic)
    }

    fn set(&mut self, id: SiteId, frames: Box<[Frame]>, tactic: SiteTactic) {
        let place = id.0 as usize;
        if place >= SITES_MAX {
            return;
        }
        if place >= self.all.len() {
            self.all.resize(place + 1, None);
        }
        self.all[place] = Some(Site {
            frames,
            tactic,
            stack: StackId::NONE,
        });
    }

    /// The call stack of a site. None if the site was never defined, or if none are wanted.
    pub(crate) fn stack(
        &mut self,
        id: SiteId,
        writer: &mut TraceWriter<File>,
    ) -> Result<StackId, TraceError> {
        let wanted = self.stacks != Stacks::None;
        let Some(Some(site)) = self.all.get_mut(id.0 as usize).filter(|_| wanted) else {
            return Ok(StackId::NONE);
        };
        if site.stack.is_none() {
            site.stack = writer.intern_stack(&site.frames)?;
        }
        Ok(site.stack)
    }

    /// The addresses of frames that are in no module.
    pub(crate) fn outside_of_modules(&self) -> BTreeSet<u64> {
        let frames = self.all.iter().flatten().flat_map(|site| &site.frames);
        frames
            .filter_map(|frame| match frame {
                Frame::Absolute { address } => Some(*address),
                Frame::Module { .. } => None,
            })
            .collect()
    }

    /// Whether a site traps at each execution.
    pub(crate) fn is_trap(&self, id: SiteId) -> bool {
        self.tactic(id) == Some(SiteTactic::Trap)
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
