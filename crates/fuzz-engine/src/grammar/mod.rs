//! Grammars of inputs. `docs/reference/fuzz-grammar.md` describes the notation.
//!
//! A grammar generates inputs ([`Grammar::generate`]) and matches inputs, so that their parts can be replaced. Matching is
//! greedy: each choice takes its longest alternative, each repetition as much as it can. A grammar that needs backtracking
//! (`{ "a" } "a"`) does not match its own inputs; parts are inserted then, but not replaced.

mod generate;
mod match_input;
mod read;
mod scan;

pub use read::GrammarError;

pub(crate) use match_input::{InputMatch, Repetition};

/// Number of a node of a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeNumber(pub(crate) u32);

/// What a grammar consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// These bytes.
    Literal(Vec<u8>),
    /// One byte of these ranges.
    Class(Vec<(u8, u8)>),
    /// A decimal number, both ends included.
    Number(u64, u64),
    /// What the rule with this number says.
    Rule(usize),
    /// One after the other.
    Sequence(Vec<NodeNumber>),
    /// One of them.
    Choice(Vec<NodeNumber>),
    /// The same many times.
    Repeat {
        item: NodeNumber,
        min: u32,
        max: Option<u32>,
    },
}

#[derive(Debug)]
struct Rule {
    name: String,
    body: NodeNumber,
}

/// A grammar of inputs.
#[derive(Debug)]
pub struct Grammar {
    nodes: Vec<Node>,
    /// How deep the shallowest text of each node is.
    depths: Vec<u32>,
    rules: Vec<Rule>,
    start: usize,
}

impl Grammar {
    /// The words that it mentions.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Literal(bytes) => Some(bytes.trim_ascii()).filter(|bytes| !bytes.is_empty()),
            _ => None,
        })
    }

    /// The names of its rules, in the order of the file.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.name.as_str())
    }

    fn node(&self, number: NodeNumber) -> &Node {
        &self.nodes[number.0 as usize]
    }

    fn start_node(&self) -> NodeNumber {
        self.rules[self.start].body
    }
}

#[cfg(test)]
mod tests;
