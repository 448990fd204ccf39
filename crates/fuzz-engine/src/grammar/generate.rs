//! Generates inputs from a grammar.

use libafl_bolts::rands::StdRand;

use super::{Grammar, Node, NodeNumber};
use crate::mutate::Dice;

/// At this nesting of rules, only the shallowest alternatives are taken.
const DEEPEST: u32 = 24;

impl Grammar {
    /// Generates an input, which depends only on the seed. It is longer than `max_bytes` only if the grammar requires it.
    pub fn generate(&self, seed: u64, max_bytes: usize) -> Vec<u8> {
        let mut random = StdRand::with_seed(seed);
        self.generate_all(&mut Dice(&mut random), max_bytes)
    }

    pub(crate) fn generate_all(&self, dice: &mut Dice<'_>, max_bytes: usize) -> Vec<u8> {
        self.generate_node(self.start_node(), dice, max_bytes)
    }

    /// Generates the text of a node.
    pub(crate) fn generate_node(
        &self,
        node: NodeNumber,
        dice: &mut Dice<'_>,
        max_bytes: usize,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(node, dice, max_bytes, 0, &mut bytes);
        bytes
    }

    fn write(
        &self,
        node: NodeNumber,
        dice: &mut Dice<'_>,
        max_bytes: usize,
        depth: u32,
        out: &mut Vec<u8>,
    ) {
        match self.node(node) {
            Node::Literal(bytes) => out.extend_from_slice(bytes),
            Node::Class(ranges) => {
                let count = ranges
                    .iter()
                    .map(|(first, last)| usize::from(last - first) + 1)
                    .sum();
                let mut at = dice.below(count);
                for (first, last) in ranges {
                    let len = usize::from(last - first) + 1;
                    if at < len {
                        out.push(first + at as u8);
                        break;
                    }
                    at -= len;
                }
            }
            Node::Number(first, last) => {
                out.extend_from_slice(number(*first, *last, dice).to_string().as_bytes());
            }
            Node::Rule(rule) => self.write(self.rules[*rule].body, dice, max_bytes, depth + 1, out),
            Node::Sequence(parts) => {
                for part in parts {
                    self.write(*part, dice, max_bytes, depth, out);
                }
            }
            Node::Choice(alternatives) => {
                let full = depth >= DEEPEST || out.len() >= max_bytes;
                let choice = if full {
                    alternatives
                        .iter()
                        .min_by_key(|node| self.depths[node.0 as usize])
                } else {
                    dice.pick(alternatives)
                };
                if let Some(choice) = choice {
                    self.write(*choice, dice, max_bytes, depth, out);
                }
            }
            Node::Repeat { item, min, max } => {
                let usual = if dice.one_in(8) { 40 } else { 8 };
                let most = max.unwrap_or(min + usual).min(min.saturating_add(1 << 16));
                let wanted = dice.between(*min as usize, most as usize);
                for count in 0..wanted {
                    if count >= *min as usize && (out.len() >= max_bytes || depth >= DEEPEST) {
                        break;
                    }
                    self.write(*item, dice, max_bytes, depth, out);
                }
            }
        }
    }
}

/// A number in a range: any one, or one near an end.
fn number(first: u64, last: u64, dice: &mut Dice<'_>) -> u64 {
    let span = last - first;
    match dice.below(8) {
        0 => first + dice.below(span.min(8) as usize + 1) as u64,
        1 => last - dice.below(span.min(2) as usize + 1) as u64,
        2 => first + dice.below(span.min(64) as usize + 1) as u64,
        _ if span == u64::MAX => dice.bits(),
        _ => first + dice.bits() % (span + 1),
    }
}
