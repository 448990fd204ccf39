//! States with a purpose: what is left if just this operation is lost, or just this one is kept.

use std::collections::BTreeSet;

use super::choices::{Frame, Picker};
use super::file::{Cut, LengthOption, PageName};
use super::ids::{NodeId, OperationIndex, PAGE_BYTES, PageIndex, SECTOR_BYTES, SECTORS_PER_PAGE};
use super::machine::{Logged, Machine};
use super::operation::{ByteRange, Operation};
use super::state::CrashState;

impl Machine {
    /// The states with a prefix of the calls that change names or are logged, and all of the data or as
    /// little as possible, the newest first: of about `most` prefixes, the shortest among them.
    pub(super) fn prefixes(&self, most: usize) -> impl Iterator<Item = CrashState> + '_ {
        let cuts = std::iter::once(Cut::END).chain(self.log().keys().rev().map(|&i| Cut(i)));
        let last = self.log().len();
        let step = (last + 1).div_ceil(most.max(1));
        let cuts =
            { cuts.enumerate() }.filter(move |(place, _)| place % step == 0 || *place == last);
        cuts.flat_map(|(_, cut)| {
            let frame = self.frame(cut);
            let newest = self.compose(&frame, &mut Extreme { newest: true });
            let oldest = self.compose(&frame, &mut Extreme { newest: false });
            newest.into_iter().chain(oldest)
        })
    }

    /// The newest states without an operation.
    pub(super) fn losing(&self, index: OperationIndex, operation: &Operation) -> Vec<CrashState> {
        if self.names.open().contains_key(&index) {
            let frame = if self.rules.ordered {
                self.frame(Cut(index))
            } else {
                let mut lost = BTreeSet::from([index]);
                self.names.close_upwards(&mut lost);
                Frame {
                    cut: Cut::END,
                    lost: lost.into_iter().collect(),
                }
            };
            return Vec::from_iter(self.compose(&frame, &mut Extreme { newest: true }));
        }
        let Some(node) = operation.file() else {
            return Vec::new();
        };
        if self.log().contains_key(&index) {
            return Vec::from_iter(
                self.compose(&self.frame(Cut(index)), &mut Extreme { newest: true }),
            );
        }
        let mut states = Vec::new();
        for cut_length in [false, true] {
            let state = self.newest_cuts(node, index).find_map(|cut| {
                let mut picker = Lose {
                    index,
                    cut_length,
                    keeps: |_| false,
                };
                let state = self.compose(&self.frame(cut), &mut picker)?;
                loses(&state, index).then_some(state)
            });
            push_new(&mut states, state);
        }
        states
    }

    /// The states in which a write survives in part: a beginning of it, or an end.
    pub(super) fn tearing(&self, index: OperationIndex, operation: &Operation) -> Vec<CrashState> {
        let Operation::Write { node, range } = *operation else {
            return Vec::new();
        };
        if range.len_bytes == 0 {
            return Vec::new();
        }
        let first = range.offset / SECTOR_BYTES;
        let past = range.end().div_ceil(SECTOR_BYTES);
        let pages = SECTORS_PER_PAGE as u64;
        let mut cuts = BTreeSet::from([
            first + 1,
            first + (past - first) / 2,
            past - 1,
            (first + 1).next_multiple_of(pages),
            (past - 1) / pages * pages,
        ]);
        cuts.retain(|&cut| first < cut && cut < past);
        let mut states = Vec::new();
        for at in cuts {
            for keeps_start in [true, false] {
                let state = self.newest_cuts(node, index).find_map(|cut| {
                    let mut picker = Lose {
                        index,
                        cut_length: false,
                        keeps: |sector| (sector < at) == keeps_start,
                    };
                    let state = self.compose(&self.frame(cut), &mut picker)?;
                    loses(&state, index).then_some(state)
                });
                push_new(&mut states, state);
            }
        }
        // The file ends inside of the write.
        let Some(file) = self.file(node) else {
            return states;
        };
        let lens: Vec<u64> = file
            .length_options(self.rules, Cut::END)
            .iter()
            .filter(|o| o.first_lost == index && o.len > range.offset)
            .map(|o| o.len)
            .collect();
        for len in [lens.first(), lens.last()].into_iter().flatten() {
            let mut picker = EndAt {
                node,
                index,
                len: *len,
            };
            push_new(
                &mut states,
                self.compose(&self.frame(Cut::END), &mut picker),
            );
        }
        states
    }

    /// The state with an operation, and without all that it does not need.
    pub(super) fn keeping(
        &self,
        index: OperationIndex,
        operation: &Operation,
    ) -> Option<CrashState> {
        if self.names.open().contains_key(&index) || self.log().contains_key(&index) {
            let frame = if self.rules.ordered {
                self.frame(self.cut_after(index))
            } else {
                let mut kept = BTreeSet::from([index]);
                self.names.close_downwards(&mut kept);
                let open = self.names.open().keys();
                Frame {
                    cut: Cut::END,
                    lost: open.filter(|i| !kept.contains(i)).copied().collect(),
                }
            };
            return self.compose(&frame, &mut Extreme { newest: false });
        }
        let node = operation.file()?;
        let range = match *operation {
            Operation::Write { range, .. } => range,
            _ => ByteRange::default(),
        };
        let mut picker = Keep { node, index, range };
        if !self.rules.ordered {
            let open = self.names.open().iter();
            let mut kept: BTreeSet<OperationIndex> = open
                .filter(|(_, change)| change.nodes.contains(&node))
                .map(|(&index, _)| index)
                .collect();
            self.names.close_downwards(&mut kept);
            let open = self.names.open().keys();
            let frame = Frame {
                cut: Cut::END,
                lost: open.filter(|i| !kept.contains(i)).copied().collect(),
            };
            return self.compose(&frame, &mut picker);
        }
        let mut cuts: BTreeSet<Cut> = self
            .log()
            .keys()
            .next()
            .map(|&i| Cut(i))
            .into_iter()
            .collect();
        cuts.insert(self.cut_after(index));
        cuts.insert(Cut::END);
        for (&of_name, change) in self.names.open() {
            if change.nodes.contains(&node) {
                cuts.insert(self.cut_after(of_name));
            }
        }
        cuts.into_iter().find_map(|cut| {
            let frame = self.frame(cut);
            if !self.names.view(&frame.lost).has(node) {
                return None;
            }
            self.compose(&frame, &mut picker)
        })
    }

    /// The shortest prefix of the log that has an operation.
    fn cut_after(&self, index: OperationIndex) -> Cut {
        let after = OperationIndex(index.0 + 1);
        let next = self.log().range(after..).next();
        next.map_or(Cut::END, |(&index, _)| Cut(index))
    }

    /// The cuts that matter for an operation on a file, the newest first.
    fn newest_cuts(&self, node: NodeId, index: OperationIndex) -> impl Iterator<Item = Cut> + '_ {
        let after = self.log().range(index..).rev();
        let of_file = after.filter(move |(index, logged)| {
            **logged == Logged::File(node)
                || self
                    .names
                    .open()
                    .get(index)
                    .is_some_and(|c| c.nodes.contains(&node))
        });
        std::iter::once(Cut::END).chain(of_file.map(|(&index, _)| Cut(index)))
    }
}

fn loses(state: &CrashState, index: OperationIndex) -> bool {
    let mut sectors = state.pages.iter().flat_map(|page| page.first_lost);
    sectors.any(|first| first == index) || state.lengths.iter().any(|l| l.first_lost == index)
}

fn push_new(states: &mut Vec<CrashState>, state: Option<CrashState>) {
    if let Some(state) = state
        && !states.contains(&state)
    {
        states.push(state);
    }
}

/// Always the newest option, or always the oldest.
pub(super) struct Extreme {
    pub(super) newest: bool,
}

impl Picker for Extreme {
    fn length(&mut self, _: NodeId, options: &[LengthOption]) -> Option<usize> {
        Some(if self.newest { options.len() - 1 } else { 0 })
    }

    fn page(&mut self, _: NodeId, _: PageIndex, options: &[PageName]) -> Option<usize> {
        Some(if self.newest { options.len() - 1 } else { 0 })
    }
}

/// The newest options that lose an operation in the sectors that are not kept.
struct Lose<F> {
    index: OperationIndex,
    cut_length: bool,
    keeps: F,
}

impl<F: Fn(u64) -> bool> Picker for Lose<F> {
    fn length(&mut self, _: NodeId, options: &[LengthOption]) -> Option<usize> {
        let lost = options.iter().position(|o| o.first_lost == self.index);
        Some(
            lost.filter(|_| self.cut_length)
                .unwrap_or(options.len() - 1),
        )
    }

    fn page(&mut self, _: NodeId, page: PageIndex, options: &[PageName]) -> Option<usize> {
        let base = page.0 * PAGE_BYTES / SECTOR_BYTES;
        let lost = options.iter().rposition(|name| {
            let mut sectors = name.iter().enumerate();
            sectors
                .any(|(sector, &first)| first == self.index && !(self.keeps)(base + sector as u64))
        });
        Some(lost.unwrap_or(options.len() - 1))
    }
}

/// A file ends inside of a write; all else is the newest.
struct EndAt {
    node: NodeId,
    index: OperationIndex,
    len: u64,
}

impl Picker for EndAt {
    fn length(&mut self, node: NodeId, options: &[LengthOption]) -> Option<usize> {
        if node != self.node {
            return Some(options.len() - 1);
        }
        options
            .iter()
            .position(|o| o.first_lost == self.index && o.len == self.len)
    }

    fn page(&mut self, _: NodeId, _: PageIndex, options: &[PageName]) -> Option<usize> {
        Some(options.len() - 1)
    }
}

/// The oldest options that have an operation.
struct Keep {
    node: NodeId,
    index: OperationIndex,
    range: ByteRange,
}

impl Picker for Keep {
    fn length(&mut self, node: NodeId, options: &[LengthOption]) -> Option<usize> {
        if node != self.node {
            return Some(0);
        }
        options.iter().position(|o| o.len >= self.range.end())
    }

    fn page(&mut self, node: NodeId, _: PageIndex, options: &[PageName]) -> Option<usize> {
        if node != self.node {
            return Some(0);
        }
        let before = options.iter().rposition(|name| name.contains(&self.index));
        match before {
            Some(before) => (before + 1 < options.len()).then_some(before + 1),
            None => Some(0),
        }
    }
}

/// Options by chance.
pub(super) struct Chance<'a> {
    pub(super) random: &'a mut Random,
    /// How many of 8 choices take the newest option.
    pub(super) newest_of_8: u64,
}

impl Chance<'_> {
    fn choose(&mut self, count: usize) -> usize {
        if count == 1 || self.random.below(8) < self.newest_of_8 {
            count - 1
        } else {
            self.random.below(count as u64) as usize
        }
    }
}

impl Picker for Chance<'_> {
    fn length(&mut self, _: NodeId, options: &[LengthOption]) -> Option<usize> {
        Some(self.choose(options.len()))
    }

    fn page(&mut self, _: NodeId, _: PageIndex, options: &[PageName]) -> Option<usize> {
        Some(self.choose(options.len()))
    }
}

/// Numbers that a seed determines: splitmix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

impl Machine {
    /// A state by chance.
    pub(super) fn random_state(&self, random: &mut Random) -> Option<CrashState> {
        let frame = if self.rules.ordered {
            let count = self.log().len() as u64;
            let place = if random.below(2) == 0 {
                count
            } else {
                random.below(count + 1)
            };
            let cut = self.log().keys().nth(place as usize);
            self.frame(cut.map_or(Cut::END, |&index| Cut(index)))
        } else {
            let of_8 = random.below(5);
            let mut lost = BTreeSet::new();
            for &index in self.names.open().keys() {
                if random.below(8) < of_8 {
                    lost.insert(index);
                }
            }
            self.names.close_upwards(&mut lost);
            Frame {
                cut: Cut::END,
                lost: lost.into_iter().collect(),
            }
        };
        let newest_of_8 = [0, 1, 4, 7, 8][random.below(5) as usize];
        self.compose(
            &frame,
            &mut Chance {
                random,
                newest_of_8,
            },
        )
    }
}
