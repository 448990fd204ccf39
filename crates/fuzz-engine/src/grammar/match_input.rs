//! Matches an input with a grammar.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::{Grammar, Node, NodeNumber};

/// An input that needs more steps does not match.
const MOST_STEPS: usize = 200_000;

/// The maximum nesting of rules.
const DEEPEST: u32 = 200;

/// A repetition in an input, and the ranges of its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repetition {
    pub(crate) item: NodeNumber,
    pub(crate) min: u32,
    pub(crate) max: Option<u32>,
    pub(crate) start: usize,
    pub(crate) items: Vec<Range<usize>>,
}

/// The parts of an input that matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputMatch {
    /// Rules (as their bodies), numbers and classes, with the bytes that they match.
    pub(crate) parts: Vec<(NodeNumber, Range<usize>)>,
    pub(crate) repetitions: Vec<Repetition>,
}

impl Grammar {
    /// Whether an input matches this grammar.
    pub fn matches(&self, input: &[u8]) -> bool {
        self.find(input).is_some()
    }

    /// Matches an input; `None` if it does not match.
    pub(crate) fn find(&self, input: &[u8]) -> Option<InputMatch> {
        let mut finder = Finder {
            grammar: self,
            input,
            ends: FxHashMap::default(),
            steps: 0,
        };
        let start = self.start_node();
        if finder.end(start, 0, 0)? != input.len() {
            return None;
        }
        let mut found = InputMatch::default();
        finder.collect(start, 0, 0, &mut found);
        Some(found)
    }
}

struct Finder<'a> {
    grammar: &'a Grammar,
    input: &'a [u8],
    /// The end of each node at each start.
    ends: FxHashMap<(NodeNumber, usize), Option<usize>>,
    steps: usize,
}

impl Finder<'_> {
    /// The end of the text that a node matches at a position.
    fn end(&mut self, node: NodeNumber, at: usize, depth: u32) -> Option<usize> {
        self.steps += 1;
        if self.steps > MOST_STEPS || depth > DEEPEST {
            return None;
        }
        let grammar = self.grammar;
        match grammar.node(node) {
            Node::Literal(bytes) => self.input[at..]
                .starts_with(bytes)
                .then_some(at + bytes.len()),
            Node::Class(ranges) => {
                let byte = *self.input.get(at)?;
                ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&byte))
                    .then_some(at + 1)
            }
            Node::Number(first, last) => {
                // The longest digits that are in the range.
                let digits = self.input[at..]
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit())
                    .take(20)
                    .count();
                (1..=digits).rev().map(|len| at + len).find(|end| {
                    let text = std::str::from_utf8(&self.input[at..*end]).unwrap_or_default();
                    let plain = text.len() == 1 || !text.starts_with('0');
                    plain
                        && text
                            .parse::<u64>()
                            .is_ok_and(|value| (*first..=*last).contains(&value))
                })
            }
            Node::Rule(rule) => {
                if let Some(end) = self.ends.get(&(node, at)) {
                    return *end;
                }
                // A left-recursive rule does not match.
                self.ends.insert((node, at), None);
                let end = self.end(grammar.rules[*rule].body, at, depth + 1);
                self.ends.insert((node, at), end);
                end
            }
            Node::Sequence(parts) => parts
                .iter()
                .try_fold(at, |at, part| self.end(*part, at, depth + 1)),
            Node::Choice(alternatives) => {
                if let Some(end) = self.ends.get(&(node, at)) {
                    return *end;
                }
                let end = alternatives
                    .iter()
                    .filter_map(|node| self.end(*node, at, depth + 1))
                    .max();
                self.ends.insert((node, at), end);
                end
            }
            Node::Repeat { item, min, max } => {
                let (count, end) = self
                    .items(*item, *max, at, depth)
                    .fold((0, at), |(count, _), end| (count + 1, end));
                (count >= *min).then_some(end)
            }
        }
    }

    /// The ends of the items of a repetition.
    fn items(
        &mut self,
        item: NodeNumber,
        max: Option<u32>,
        at: usize,
        depth: u32,
    ) -> impl Iterator<Item = usize> {
        let mut at = at;
        let mut left = max.unwrap_or(u32::MAX);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            // An empty item would repeat forever.
            let end = self.end(item, at, depth + 1).filter(|end| *end > at)?;
            at = end;
            Some(end)
        })
    }

    /// Matches again, and collects the parts.
    fn collect(
        &mut self,
        node: NodeNumber,
        at: usize,
        depth: u32,
        found: &mut InputMatch,
    ) -> Option<usize> {
        let end = self.end(node, at, depth)?;
        let grammar = self.grammar;
        match grammar.node(node) {
            Node::Literal(_) => {}
            Node::Class(_) | Node::Number(..) => found.parts.push((node, at..end)),
            Node::Rule(rule) => {
                found.parts.push((node, at..end));
                self.collect(grammar.rules[*rule].body, at, depth + 1, found);
            }
            Node::Sequence(parts) => {
                parts
                    .iter()
                    .try_fold(at, |at, part| self.collect(*part, at, depth + 1, found));
            }
            Node::Choice(alternatives) => {
                let taken = alternatives
                    .iter()
                    .find(|node| self.end(**node, at, depth + 1) == Some(end));
                if let Some(taken) = taken {
                    self.collect(*taken, at, depth + 1, found);
                }
            }
            Node::Repeat { item, min, max } => {
                let ends: Vec<usize> = self.items(*item, *max, at, depth).collect();
                let starts = std::iter::once(at).chain(ends.iter().copied());
                let items: Vec<Range<usize>> =
                    starts.zip(&ends).map(|(start, end)| start..*end).collect();
                for range in &items {
                    self.collect(*item, range.start, depth + 1, found);
                }
                found.repetitions.push(Repetition {
                    item: *item,
                    min: *min,
                    max: *max,
                    start: at,
                    items,
                });
            }
        }
        Some(end)
    }
}
