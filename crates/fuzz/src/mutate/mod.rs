//! Mutators: those of LibAFL on bytes, and ours on command lines.

use std::sync::Arc;

use libafl::mutators::{
    HavocMutationsType, HavocScheduledMutator, Mutator, havoc_mutations,
    token_mutations::TokenInsert, token_mutations::TokenReplace, tokens_mutations,
};
use libafl_bolts::tuples::{Merge, merge_tuple_list_type, tuple_list_type};

use crate::engine::Origin;
use crate::engine::input::CaseInput;
use crate::engine::schedule::State;
use crate::grammar::Grammar;

type Havoc = HavocScheduledMutator<
    merge_tuple_list_type!(
        HavocMutationsType,
        tuple_list_type!(TokenInsert, TokenReplace)
    ),
>;

/// All mutators of an engine.
pub(crate) struct Mutators {
    havoc: Havoc,
    #[expect(dead_code, reason = "next")]
    grammar: Option<Arc<Grammar>>,
}

impl Mutators {
    pub(crate) fn new(grammar: Option<Arc<Grammar>>) -> Self {
        Self {
            havoc: HavocScheduledMutator::new(havoc_mutations().merge(tokens_mutations())),
            grammar,
        }
    }

    /// Learns from a test case that is kept.
    pub(crate) fn learn(&mut self, _input: &[u8]) {}

    /// Learns a word.
    pub(crate) fn learn_token(&mut self, _token: &[u8]) {}

    /// A mutation of this kind has found something.
    pub(crate) fn succeeded(&mut self, _origin: Origin) {}

    /// Mutates an input.
    pub(crate) fn mutate(&mut self, state: &mut State, input: &mut CaseInput) -> Origin {
        self.havoc
            .mutate(state, input)
            .expect("LibAFL mutates whatever bytes there are");
        Origin::Havoc
    }
}
