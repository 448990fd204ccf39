//! The crash states of one set of rules. All of them are made in one way: [`Machine::compose`] walks
//! through what is not sure and asks a [`Picker`] at each choice. Listing, counting, sampling, aiming and
//! judging differ only in the picker.

use std::collections::BTreeSet;

use super::file::{Cut, LengthOption, PageName};
use super::ids::{NodeId, OperationIndex, PageIndex};
use super::machine::{Logged, Machine};
use super::names::LostSets;
use super::state::{CrashState, LostLength, LostPage};

/// What decides at each choice; `None` ends the walk without a state.
pub(super) trait Picker {
    fn length(&mut self, node: NodeId, options: &[LengthOption]) -> Option<usize>;
    fn page(&mut self, node: NodeId, page: PageIndex, options: &[PageName]) -> Option<usize>;
}

/// How much of the names and of the log survives.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) cut: Cut,
    pub(super) lost: Vec<OperationIndex>,
}

impl Machine {
    /// The frames, the newest first. Where the order of calls counts, these are the prefixes of the log.
    pub(super) fn frames(&self) -> Box<dyn Iterator<Item = Frame> + '_> {
        if !self.rules.ordered {
            return Box::new(LostSets::new(&self.names).map(|lost| Frame {
                cut: Cut::END,
                lost,
            }));
        }
        let cuts = std::iter::once(Cut::END).chain(self.log().keys().rev().map(|&i| Cut(i)));
        Box::new(cuts.map(|cut| self.frame(cut)))
    }

    pub(super) fn frame(&self, cut: Cut) -> Frame {
        let lost = self.names.open().range(cut.0..).map(|(&index, _)| index);
        Frame {
            cut,
            lost: lost.collect(),
        }
    }

    /// The frame with the next longer prefix of the log, if its names are the same.
    fn next_frame_with_same_names(&self, frame: &Frame) -> Option<Frame> {
        if !self.rules.ordered || frame.cut == Cut::END {
            return None;
        }
        if self.log()[&frame.cut.0] == Logged::Names || self.names.open().contains_key(&frame.cut.0)
        {
            return None;
        }
        let after = OperationIndex(frame.cut.0.0 + 1);
        let next = self.log().range(after..).next();
        Some(Frame {
            cut: next.map_or(Cut::END, |(&index, _)| Cut(index)),
            lost: frame.lost.clone(),
        })
    }

    pub(super) fn compose(&self, frame: &Frame, picker: &mut impl Picker) -> Option<CrashState> {
        let mut state = CrashState {
            lost: frame.lost.clone(),
            ..CrashState::default()
        };
        let view = self.names.view(&frame.lost);
        for (node, file) in self.open_files() {
            if !view.has(node) {
                continue;
            }
            let options = file.length_options(self.rules, frame.cut);
            let length = options[picker.length(node, &options)?];
            state.lengths.extend(length.name(node));
            let mut failed = false;
            file.for_each_choice(self.rules, frame.cut, &length, |page, options| {
                let Some(choice) = picker.page(node, page, options) else {
                    failed = true;
                    return false;
                };
                let name = options[choice];
                if name == LostPage::WHOLE {
                    return true;
                }
                match state.pages.last_mut() {
                    Some(last) if (last.node, last.page) == (node, page) => {
                        for (all, one) in last.first_lost.iter_mut().zip(name) {
                            *all = (*all).min(one);
                        }
                    }
                    _ => state.pages.push(LostPage {
                        node,
                        page,
                        first_lost: name,
                    }),
                }
                true
            });
            if failed {
                return None;
            }
        }
        Some(state)
    }

    /// All states of a frame that no newer frame has.
    fn states_of(&self, frame: Frame) -> impl Iterator<Item = CrashState> + '_ {
        let next = self.next_frame_with_same_names(&frame);
        let mut script = Script::default();
        std::iter::from_fn(move || {
            loop {
                if script.done {
                    return None;
                }
                script.begin();
                let state = self.compose(&frame, &mut script)?;
                script.advance();
                if !next
                    .as_ref()
                    .is_some_and(|next| self.permits_in(next, &state))
                {
                    return Some(state);
                }
            }
        })
    }

    /// All states, each once, the newest first.
    pub(super) fn states(&self) -> impl Iterator<Item = CrashState> + '_ {
        self.frames().flat_map(|frame| self.states_of(frame))
    }

    /// Whether a frame has more than so many states. Costs no more than that many choices.
    pub(super) fn newest_frame_has_more_than(&self, limit: u64) -> bool {
        let frame = self.frame(Cut::END);
        let view = self.names.view(&frame.lost);
        let mut product: u64 = 1;
        for (node, file) in self.open_files() {
            if !view.has(node) {
                continue;
            }
            let mut sum: u64 = 0;
            for length in file.length_options(self.rules, frame.cut).iter().rev() {
                let mut states: u64 = 1;
                file.for_each_choice(self.rules, frame.cut, length, |_, options| {
                    states = states.saturating_mul(options.len() as u64);
                    states <= limit
                });
                sum = sum.saturating_add(states);
                if sum > limit {
                    break;
                }
            }
            product = product.saturating_mul(sum);
            if product > limit {
                return true;
            }
        }
        false
    }

    fn permits_in(&self, frame: &Frame, state: &CrashState) -> bool {
        self.compose(frame, &mut Match(state)).as_ref() == Some(state)
    }

    /// Whether a crash can leave the state.
    pub(super) fn permits(&self, state: &CrashState) -> bool {
        let open = self.names.open();
        if !state.lost.iter().all(|index| open.contains_key(index)) {
            return false;
        }
        if !self.rules.ordered {
            let mut closed: BTreeSet<OperationIndex> = state.lost.iter().copied().collect();
            self.names.close_upwards(&mut closed);
            let frame = Frame {
                cut: Cut::END,
                lost: state.lost.clone(),
            };
            return closed.len() == state.lost.len() && self.permits_in(&frame, state);
        }
        let first_lost = state.lost.first().copied();
        if let Some(first) = first_lost
            && open.range(first..).count() != state.lost.len()
        {
            return false;
        }
        // The cuts that leave these names: up to the first lost operation, from behind the last one kept.
        let mut cut = first_lost.map_or(Cut::END, Cut);
        loop {
            let frame = Frame {
                cut,
                lost: state.lost.clone(),
            };
            if self.permits_in(&frame, state) {
                return true;
            }
            match self.log().range(..cut.0).next_back() {
                Some((index, _)) if !open.contains_key(index) => cut = Cut(*index),
                _ => return false,
            }
        }
    }
}

/// Goes through all combinations: the choices of the next run, and how many there were at each.
#[derive(Default)]
struct Script {
    choices: Vec<(usize, usize)>,
    at: usize,
    done: bool,
}

impl Script {
    fn begin(&mut self) {
        self.at = 0;
    }

    /// The newest option first.
    fn choose(&mut self, count: usize) -> usize {
        if self.at == self.choices.len() {
            self.choices.push((0, count));
        }
        let (choice, _) = self.choices[self.at];
        self.at += 1;
        count - 1 - choice
    }

    fn advance(&mut self) {
        while let Some((choice, count)) = self.choices.pop() {
            if choice + 1 < count {
                self.choices.push((choice + 1, count));
                return;
            }
        }
        self.done = true;
    }
}

impl Picker for Script {
    fn length(&mut self, _: NodeId, options: &[LengthOption]) -> Option<usize> {
        Some(self.choose(options.len()))
    }

    fn page(&mut self, _: NodeId, _: PageIndex, options: &[PageName]) -> Option<usize> {
        Some(self.choose(options.len()))
    }
}

/// Finds the choices that make a given state.
struct Match<'a>(&'a CrashState);

impl Picker for Match<'_> {
    fn length(&mut self, node: NodeId, options: &[LengthOption]) -> Option<usize> {
        let lengths = &self.0.lengths;
        let wanted: Option<LostLength> = lengths
            .binary_search_by_key(&node, |length| length.node)
            .ok()
            .map(|place| lengths[place]);
        options.iter().position(|o| o.name(node) == wanted)
    }

    fn page(&mut self, node: NodeId, page: PageIndex, options: &[PageName]) -> Option<usize> {
        let pages = &self.0.pages;
        let wanted = pages
            .binary_search_by_key(&(node, page), |lost| (lost.node, lost.page))
            .map_or(LostPage::WHOLE, |place| pages[place].first_lost);
        if let [only] = options
            && *only == LostPage::WHOLE
        {
            return Some(0);
        }
        // An option names one sector or all of them.
        let one = one_sector(options);
        options.iter().position(|name| match one {
            Some(sector) => name[sector] == wanted[sector],
            None => *name == wanted,
        })
    }
}

/// The sector that options speak of, if it is only one.
pub(super) fn one_sector(options: &[PageName]) -> Option<usize> {
    let mut named = (0..LostPage::WHOLE.len())
        .filter(|&sector| options.iter().any(|n| n[sector] != LostPage::NOTHING));
    let first = named.next()?;
    named.next().is_none().then_some(first)
}
