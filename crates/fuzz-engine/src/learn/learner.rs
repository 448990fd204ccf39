//! Which inputs are worth observing, and what follows from the observations.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashSet, FxHasher};

use super::context::Context;
use super::forms::{Forms, has_unknown};
use super::observation::{Observation, ObservedKind, find, string_of};
use super::substitute::{separator_of, substitutions};
use super::template::Template;
use crate::mutate::Dice;
use crate::mutate::text::{is_text, lines, words};

/// Limits: more is not what a program understands, but what it stores.
const TEMPLATES_MAX: usize = 128;
const WORDS_MAX: usize = 1024;
const TRIALS_MAX: usize = 1024;
const TRIED_MAX: usize = 1 << 16;
const LONGEST_WORD: usize = 62;
const LONGEST_CASE: usize = 1024;
/// The number of inputs that follow from one observed input, by how many substitutions that has had already.
const FOLLOWING: [usize; 4] = [24, 8, 4, 2];
/// A word is tried as a command with up to this many arguments.
const ARGUMENTS_MAX: usize = 3;
/// So many characters are tried as what separates arguments.
const DELIMITERS_MAX: usize = 8;

/// An input to run and to observe.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The input.
    pub input: Vec<u8>,
    /// How many substitutions have made it.
    depth: usize,
    /// It consists of unknown words, and [`Forms`] learns from comparisons of words.
    is_probe: bool,
}

/// What is known of the inputs that a program understands, and inputs that may reveal more.
#[derive(Debug, Default)]
pub struct Learner {
    forms: Forms,
    templates: Vec<Template>,
    trials: VecDeque<Trial>,
    /// Words that may be commands, and how many lines with them were made for the current context.
    words: Vec<Box<[u8]>>,
    words_tried: usize,
    /// Those of the words that may be what separates arguments.
    delimiters: Vec<u8>,
    context: Context,
    tried: FxHashSet<u64>,
    known_words: FxHashSet<Box<[u8]>>,
    new_words: Vec<Vec<u8>>,
}

impl Learner {
    /// Words of the program or of a dictionary: each may be a command that the program recognises without a function
    /// of the C library, and which cannot be observed therefore.
    pub fn try_words<'a>(&mut self, words: impl IntoIterator<Item = &'a [u8]>) {
        for word in words {
            let word = word.trim_ascii();
            if let [delimiter] = word
                && delimiter.is_ascii_punctuation()
                && self.delimiters.len() < DELIMITERS_MAX
            {
                self.delimiters.push(*delimiter);
            }
            if is_text(word) && !word.is_empty() && self.words.len() < WORDS_MAX {
                self.words.push(word.into());
            }
        }
    }

    /// An input that did something new: what the program does with it is worth observing.
    pub fn try_case(&mut self, input: &[u8]) {
        self.context.add(input);
        if input.len() <= LONGEST_CASE {
            self.push(input.to_vec(), 0);
        }
    }

    /// The next input to run and to observe.
    pub fn next_trial(&mut self) -> Option<Trial> {
        loop {
            let trial = self.next_candidate()?;
            if self.tried.len() == TRIED_MAX {
                self.tried.clear();
            }
            if self.tried.insert(hash_of(&trial.input)) {
                return Some(trial);
            }
        }
    }

    fn next_candidate(&mut self) -> Option<Trial> {
        if let Some(input) = self.forms.probe() {
            return Some(Trial {
                input,
                depth: 0,
                is_probe: true,
            });
        }
        if let Some(trial) = self.trials.pop_front() {
            return Some(trial);
        }
        // What does nothing to an empty pool may do something to one with contents.
        if self.context.renew() {
            self.words_tried = 0;
            for line in self.examples() {
                self.push([self.context.lines(), &line].concat(), 0);
            }
            return self.next_candidate();
        }
        let line = self.next_word()?;
        let input = [self.context.lines(), &line].concat();
        Some(Trial {
            input,
            depth: 0,
            is_probe: false,
        })
    }

    /// The next word as a command with some arguments.
    fn next_word(&mut self) -> Option<Vec<u8>> {
        let number = self.words_tried;
        self.words_tried += 1;
        let Some(word) = self.words.get(number / (ARGUMENTS_MAX + 1)) else {
            return self.next_delimited(number - self.words.len() * (ARGUMENTS_MAX + 1));
        };
        let arguments = number % (ARGUMENTS_MAX + 1);
        let mut line = word.to_vec();
        for number in 1..=arguments {
            line.push(self.forms.separator());
            line.extend_from_slice(number.to_string().as_bytes());
        }
        line.push(b'\n');
        Some(line)
    }

    /// A word as a command whose two arguments, or whose words, are separated by a character that the program compares with:
    /// `set 1=2` and `set=1=2`.
    fn next_delimited(&self, number: usize) -> Option<Vec<u8>> {
        if self.delimiters.is_empty() || self.forms.separator() != b' ' {
            return None;
        }
        let word = self.words.get(number / (2 * self.delimiters.len()))?;
        let delimiter = self.delimiters[number / 2 % self.delimiters.len()];
        let first = if number.is_multiple_of(2) {
            b' '
        } else {
            delimiter
        };
        Some([word, &[first, b'1', delimiter, b'2', b'\n'][..]].concat())
    }

    fn push(&mut self, input: Vec<u8>, depth: usize) {
        if self.trials.len() < TRIALS_MAX {
            self.trials.push_back(Trial {
                input,
                depth,
                is_probe: false,
            });
        }
    }

    /// Learns from what the program did with an input.
    pub fn learn(&mut self, trial: &Trial, observations: &[Observation]) {
        let input = &trial.input;
        for observation in observations {
            match observation.kind {
                ObservedKind::Compared | ObservedKind::Sought => {
                    self.learn_words(input, observation);
                }
                ObservedKind::Split => self.learn_separator(input, observation),
                ObservedKind::Scanned => self.learn_template(input, observation),
                ObservedKind::Options => self.learn_options(&observation.other),
                ObservedKind::Number => {}
            }
        }
        // With several lines, it is unknown which one was compared.
        if is_text(input) && lines(input).len() == 1 {
            let compared = observations
                .iter()
                .filter(|it| it.kind == ObservedKind::Compared)
                .map(|it| (&it.text[..], &it.other[..]));
            self.forms.learn(input, compared);
        }
        self.substitute(trial, observations);
    }

    /// The last observations come first: the program gave up behind them.
    fn substitute(&mut self, trial: &Trial, observations: &[Observation]) {
        let most = FOLLOWING.get(trial.depth).copied().unwrap_or(0);
        let is_word = |operand: &[u8]| words(operand).len() == 1;
        let is_open = |it: &&Observation| {
            let is_learnt =
                it.kind == ObservedKind::Compared && is_word(&it.text) && is_word(&it.other);
            !trial.is_probe || !is_learnt
        };
        let following = observations.iter().rev().filter(is_open);
        let following = following.flat_map(|it| substitutions(&trial.input, it));
        for input in following.take(most).collect::<Vec<_>>() {
            self.push(input, trial.depth + 1);
        }
    }

    /// An operand is a word if the other one comes from the input.
    fn learn_words(&mut self, input: &[u8], observation: &Observation) {
        let pair = [string_of(&observation.text), string_of(&observation.other)];
        let is_input = pair.map(|operand| contains(input, operand));
        for (word, is_known, is_relevant) in [
            (pair[0], is_input[0], is_input[1]),
            (pair[1], is_input[1], is_input[0]),
        ] {
            if !is_known && is_relevant {
                self.learn_word(word);
            }
        }
    }

    fn learn_word(&mut self, word: &[u8]) {
        if (1..=LONGEST_WORD).contains(&word.len())
            && self.known_words.len() < WORDS_MAX
            && self.known_words.insert(word.into())
        {
            self.new_words.push(word.to_vec());
        }
    }

    fn learn_separator(&mut self, input: &[u8], observation: &Observation) {
        let text = string_of(&observation.text);
        let is_input = text.is_empty() || find(input, text).is_some();
        if let Some(separator) = separator_of(&observation.other).filter(|_| is_input) {
            self.forms.add_separator(separator);
        }
    }

    fn learn_template(&mut self, input: &[u8], observation: &Observation) {
        let text = string_of(&observation.text);
        let prefix = match find(input, text) {
            Some(at) => {
                let line = input[..at].rsplit(|byte| *byte == b'\n').next();
                line.unwrap_or_default()
            }
            // A stream has no text.
            None if text.is_empty() => &[],
            None => return,
        };
        let Some(template) = Template::new(prefix, string_of(&observation.other)) else {
            return;
        };
        let is_useful = template.has_words() || text.is_empty();
        if is_useful
            && !has_unknown(prefix)
            && self.templates.len() < TEMPLATES_MAX
            && !self.templates.contains(&template)
        {
            self.push(template.example(), 0);
            self.push([self.context.lines(), &template.example()].concat(), 0);
            self.templates.push(template);
        }
    }

    fn learn_options(&mut self, letters: &[u8]) {
        for letter in letters.iter().filter(|it| it.is_ascii_alphanumeric()) {
            self.learn_word(&[b'-', *letter]);
        }
    }

    /// Words that the program compared with, since the last call.
    pub fn take_words(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.new_words)
    }

    /// Lines of all commands that are known, one for each of their forms.
    pub fn examples(&self) -> Vec<Vec<u8>> {
        let templates = self.templates.iter().map(Template::example);
        templates.chain(self.forms.examples()).collect()
    }

    /// A line with a command that the program understands. `keys` are numbers that were used before.
    pub(crate) fn line(&self, keys: &[u64], dice: &mut Dice<'_>) -> Option<Vec<u8>> {
        let at = dice.below(self.templates.len() + self.forms.len());
        match self.templates.get(at) {
            Some(template) => Some(template.line(keys, dice)),
            None => self.forms.line(keys, dice),
        }
    }

    /// A command that takes keys, with its arguments: the first one is to be replaced.
    pub(crate) fn line_for_key(&self, dice: &mut Dice<'_>) -> Option<Vec<u8>> {
        let at = dice.below(self.templates.len() + self.forms.len());
        let Some(template) = self.templates.get(at) else {
            return self.forms.line_for_key(dice);
        };
        let line = template.line(&[], dice);
        let key = words(&line).get(1)?.clone();
        line[key].iter().all(u8::is_ascii_digit).then_some(line)
    }

    /// The words that are allowed instead of a word of a line.
    pub(crate) fn name_in(
        &self,
        line: &[u8],
        column: usize,
        dice: &mut Dice<'_>,
    ) -> Option<Vec<u8>> {
        self.forms.name_in(line, column, dice)
    }
}

/// Whether an operand occurs in an input, in upper or lower case.
fn contains(input: &[u8], operand: &[u8]) -> bool {
    !operand.is_empty()
        && input
            .windows(operand.len())
            .any(|part| part.eq_ignore_ascii_case(operand))
}

fn hash_of(input: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    input.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(kind: ObservedKind, text: &[u8], other: &[u8]) -> Observation {
        Observation {
            kind,
            text: text.to_vec(),
            other: other.to_vec(),
        }
    }

    /// All trials with a program that does this with a line.
    fn trials(learner: &mut Learner, program: impl Fn(&[u8]) -> Vec<Observation>) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(trial) = learner.next_trial() {
            learner.learn(&trial, &program(&trial.input));
            all.push(trial.input);
        }
        all
    }

    #[test]
    fn a_chain_of_formats_is_learnt_from_one_line() {
        let mut learner = Learner::default();
        let scans = |line: &[u8]| {
            let formats = ["put %lu %lu", "swap %lu with %lu", "%s %s"];
            formats
                .map(|format| observation(ObservedKind::Scanned, line, format.as_bytes()))
                .to_vec()
        };
        let trials = trials(&mut learner, scans);
        assert!(trials.contains(&b"put 1 2\n".to_vec()));
        assert!(trials.contains(&b"swap 1 with 2\n".to_vec()));
        assert_eq!(learner.examples().len(), 2, "{learner:?}");
    }

    #[test]
    fn words_between_commas() {
        let mut learner = Learner::default();
        let splits = |line: &[u8]| {
            let first = line
                .trim_ascii()
                .split(|byte| *byte == b',')
                .next()
                .unwrap();
            vec![
                observation(ObservedKind::Split, line, b",\n"),
                observation(ObservedKind::Compared, first, b"put"),
            ]
        };
        trials(&mut learner, splits);
        let examples = learner.examples();
        assert!(examples.contains(&b"put,1,2\n".to_vec()), "{examples:?}");
        assert_eq!(learner.take_words(), [b"put"]);
    }

    #[test]
    fn words_of_the_program_are_tried_with_arguments() {
        let mut learner = Learner::default();
        learner.try_words([&b"p "[..], b"\n"]);
        let trials = trials(&mut learner, |_| Vec::new());
        for line in ["p\n", "p 1\n", "p 1 2\n", "p 1 2 3\n"] {
            assert!(trials.contains(&line.as_bytes().to_vec()), "{line}");
        }
    }

    #[test]
    fn arguments_may_be_separated_by_what_the_program_compares_with() {
        let mut learner = Learner::default();
        learner.try_words([&b"set"[..], b"="]);
        let trials = trials(&mut learner, |_| Vec::new());
        for line in ["set 1=2\n", "set=1=2\n"] {
            assert!(trials.contains(&line.as_bytes().to_vec()), "{line}");
        }
    }

    #[test]
    fn commands_are_tried_again_where_there_are_keys() {
        let mut learner = Learner::default();
        learner.try_words([&b"del"[..]]);
        trials(&mut learner, |_| Vec::new());
        learner.try_case(b"put 1 5\n");
        let trials = trials(&mut learner, |line| {
            vec![observation(
                ObservedKind::Scanned,
                line,
                b"swap %lu with %lu",
            )]
        });
        for line in [
            "put 1 5\nput 2 6\ndel 1\n",
            "put 1 5\nput 2 6\nswap 1 with 2\n",
        ] {
            assert!(trials.contains(&line.as_bytes().to_vec()), "{line}");
        }
    }

    #[test]
    fn observations_of_other_texts_are_left_out() {
        let mut learner = Learner::default();
        let reads = |_: &[u8]| {
            vec![
                observation(ObservedKind::Scanned, b"MemTotal: 5 kB", b"MemTotal: %lu"),
                observation(ObservedKind::Compared, b"LANG", b"PMEM_NO_FLUSH"),
            ]
        };
        trials(&mut learner, reads);
        assert!(learner.examples().is_empty() && learner.take_words().is_empty());
    }

    #[test]
    fn trials_come_to_an_end() {
        let mut learner = Learner::default();
        learner.try_case(b"\x7fELF\x02");
        // A program that always wants to see something else.
        let wants = |input: &[u8]| {
            let mut next = input.to_vec();
            next[0] = next[0].wrapping_add(1);
            vec![observation(ObservedKind::Compared, input, &next)]
        };
        assert!(trials(&mut learner, wants).len() < 1000);
    }
}
