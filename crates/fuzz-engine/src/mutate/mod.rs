//! Mutators: those of `LibAFL` on bytes, and our own on command lines and by grammars.

mod by_grammar;
mod commands;
mod dice;
pub(crate) mod numbers;
pub(crate) mod text;
mod vocabulary;

use std::sync::Arc;

use libafl::corpus::Corpus;
use libafl::mutators::{
    HavocMutationsType, HavocScheduledMutator, Mutator, havoc_mutations,
    token_mutations::TokenInsert, token_mutations::TokenReplace, tokens_mutations,
};
use libafl::state::{HasCorpus, HasMaxSize, HasRand};
use libafl_bolts::tuples::{Merge, merge_tuple_list_type, tuple_list_type};

use self::commands::{Commands, KINDS};
use self::text::is_text;
use self::vocabulary::Vocabulary;
use crate::engine::Origin;
use crate::engine::input::CaseInput;
use crate::engine::schedule::State;
use crate::grammar::Grammar;
use crate::learn::Learner;

pub(crate) use self::dice::Dice;

type Havoc = HavocScheduledMutator<
    merge_tuple_list_type!(
        HavocMutationsType,
        tuple_list_type!(TokenInsert, TokenReplace)
    ),
>;

/// Of a hundred mutations of text, this many change bytes instead of commands.
const HAVOC_PERCENT: usize = 12;

/// Of a hundred mutations, this many are made by the grammar if there is one.
const GRAMMAR_PERCENT: usize = 50;

/// An input of text is mutated this many times at most, in powers of two.
const STACKED: usize = 3;

/// All mutators of an engine.
pub(crate) struct Mutators {
    havoc: Havoc,
    grammar: Option<Arc<Grammar>>,
    vocabulary: Vocabulary,
    other: Vec<u8>,
}

impl Mutators {
    pub(crate) fn new(grammar: Option<Arc<Grammar>>) -> Self {
        Self {
            havoc: HavocScheduledMutator::new(havoc_mutations().merge(tokens_mutations())),
            grammar,
            vocabulary: Vocabulary::default(),
            other: Vec::new(),
        }
    }

    /// Learns from a kept test case.
    pub(crate) fn learn(&mut self, input: &[u8]) {
        if is_text(input) {
            self.vocabulary.learn(input);
        }
    }

    /// Learns a word.
    pub(crate) fn learn_token(&mut self, token: &[u8]) {
        if is_text(token) && !token.contains(&b'\n') {
            self.vocabulary.learn_token(token);
        }
    }

    /// What is known of the commands of the program.
    pub(crate) fn learner(&mut self) -> &mut Learner {
        &mut self.vocabulary.learner
    }

    /// Mutates an input.
    pub(crate) fn mutate(&mut self, state: &mut State, input: &mut CaseInput) -> Origin {
        if let Some(grammar) = self.grammar.clone()
            && Dice(state.rand_mut()).percent(GRAMMAR_PERCENT)
        {
            self.mutate_by(&grammar, state, input);
            return Origin::Grammar;
        }
        if !is_text(&input.bytes) || Dice(state.rand_mut()).percent(HAVOC_PERCENT) {
            self.havoc
                .mutate(state, input)
                .expect("LibAFL mutates whatever bytes there are");
            // Some mutators of LibAFL check the size before they add to it.
            input.bytes.truncate(state.max_size());
            return Origin::Havoc;
        }
        self.mutate_commands(state, input);
        Origin::Commands
    }

    fn mutate_by(&mut self, grammar: &Grammar, state: &mut State, input: &mut CaseInput) {
        let max_bytes = state.max_size();
        for _ in 0..1 << Dice(state.rand_mut()).below(STACKED) {
            self.choose_other(state);
            by_grammar::mutate(
                grammar,
                &mut input.bytes,
                &self.other,
                &mut Dice(state.rand_mut()),
                max_bytes,
            );
            commands::cut(&mut input.bytes, max_bytes);
        }
    }

    fn mutate_commands(&mut self, state: &mut State, input: &mut CaseInput) {
        let mut left = 1 << Dice(state.rand_mut()).below(STACKED);
        // Some mutations are impossible, such as deleting from an empty input.
        for _ in 0..4 * left {
            let weights = KINDS.map(|(_, weight)| weight);
            let kind = KINDS[Dice(state.rand_mut()).weighted(&weights)].0;
            if kind == commands::Kind::SpliceLines {
                self.choose_other(state);
            }
            let max_bytes = state.max_size();
            let mut commands = Commands {
                input: &mut input.bytes,
                other: &self.other,
                vocabulary: &self.vocabulary,
                dice: Dice(state.rand_mut()),
                max_bytes,
            };
            left -= u32::from(commands.apply(kind));
            if left == 0 {
                break;
            }
        }
    }

    /// Another test case, to take something from.
    fn choose_other(&mut self, state: &mut State) {
        self.other.clear();
        let count = state.corpus().count();
        if count == 0 {
            return;
        }
        let nth = Dice(state.rand_mut()).below(count);
        let id = state.corpus().nth(nth);
        if let Ok(case) = state.corpus().get(id)
            && let Some(input) = case.borrow().input()
        {
            self.other.extend_from_slice(&input.bytes);
        }
    }
}
