//! Counts of what was seen, by code and call stacks.

use powerfail_finding::Code;
use powerfail_trace::StackId;
use rustc_hash::FxHashMap;

use crate::attribution::User;

/// An event that has a part in something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) event: u64,
    pub(crate) stack: StackId,
    pub(crate) user: StackId,
}

impl Seen {
    pub(crate) fn new(event: u64, stack: StackId, user: User) -> Self {
        Self {
            event,
            stack,
            user: user.node(),
        }
    }
}

/// How often something was seen, and where first.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) first: Vec<Seen>,
    /// The first events that were counted at the end of the pass, at most [`EVENTS_MAX`].
    pub(crate) events: Vec<u64>,
}

/// How many events of a tally are kept, so that crashes can try them.
pub(crate) const EVENTS_MAX: usize = 16;

/// What was seen, by code and the nodes of the user's frames.
#[derive(Debug, Default)]
pub(crate) struct Tallies(FxHashMap<(Code, StackId, StackId), Tally>);

impl Tallies {
    /// Counts one, whose first one or two places tell it from others.
    pub(crate) fn add(&mut self, code: Code, places: &[Seen]) {
        self.add_many(code, places, 1);
    }

    /// The same for a loss, whose events are kept.
    pub(crate) fn add_loss(&mut self, code: Code, places: &[Seen]) {
        let tally = self.add_many(code, places, 1);
        if tally.events.len() < EVENTS_MAX {
            tally.events.extend(places.first().map(|seen| seen.event));
        }
    }

    pub(crate) fn add_many(&mut self, code: Code, places: &[Seen], count: u64) -> &mut Tally {
        let user = |place: usize| places.get(place).map_or(StackId::NONE, |seen| seen.user);
        // A warning is one line of code, whatever it met there.
        let other = match code {
            Code::SharedFlush
            | Code::UnorderedFlushes
            | Code::NeighbourFlush
            | Code::LateFlush
            | Code::StoreNotAdded => StackId::NONE,
            _ => user(1),
        };
        let tally = self
            .0
            .entry((code, user(0), other))
            .or_insert_with(|| Tally {
                count: 0,
                first: places.to_vec(),
                events: Vec::new(),
            });
        tally.count += count;
        // Some are counted when the pass is over, in no order.
        if places < tally.first.as_slice() {
            tally.first = places.to_vec();
        }
        tally
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (Code, Tally)> {
        self.0.into_iter().map(|((code, ..), tally)| (code, tally))
    }
}

/// How often a call of the user's was useless, and how often it was made at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uses {
    pub(crate) useless: u64,
    pub(crate) all: u64,
    pub(crate) first: Option<Seen>,
    /// The user's frame is the event itself, not a call.
    pub(crate) is_site: bool,
}

/// The calls of one kind, by the node of the user's frame.
#[derive(Debug, Default)]
pub(crate) struct Calls(pub(crate) FxHashMap<StackId, Uses>);

impl Calls {
    pub(crate) fn add(&mut self, seen: Seen, useless: bool) {
        let uses = self.0.entry(seen.user).or_insert(Uses {
            useless: 0,
            all: 0,
            first: None,
            is_site: seen.stack == seen.user,
        });
        uses.all += 1;
        if useless {
            uses.useless += 1;
            // Calls of several threads end in another order than they begin.
            uses.first = Some(uses.first.map_or(seen, |first| first.min(seen)));
        }
    }

    /// Adds the calls of another kind as useful ones of this kind.
    pub(crate) fn add_useful(&mut self, others: &Self) {
        for (&node, other) in &others.0 {
            let uses = self.0.entry(node).or_insert(Uses {
                useless: 0,
                all: 0,
                first: None,
                is_site: other.is_site,
            });
            uses.all += other.all;
        }
    }
}
