//! The content of kept test cases: lines by command, and words by column.

use rustc_hash::{FxHashMap, FxHashSet};

use super::dice::Dice;
use super::text::{first_word, lines, words};
use crate::learn::Learner;

/// Limits. New lines replace old ones. New words are dropped: a larger set does not consist of words.
const LINES_RECENT: usize = 512;
const LINES_PER_COMMAND: usize = 16;
const LINES_PER_CASE: usize = 8;
const COMMANDS: usize = 256;
const COLUMNS: usize = 4;
const WORDS_PER_COLUMN: usize = 256;
const LONGEST_LINE: usize = 256;
const LONGEST_WORD: usize = 64;

/// A list that forgets its oldest entries.
#[derive(Debug, Default)]
struct Ring {
    entries: Vec<Box<[u8]>>,
    next: usize,
}

impl Ring {
    fn push(&mut self, entry: &[u8], most: usize) {
        if self.entries.len() < most {
            self.entries.push(entry.into());
        } else {
            self.entries[self.next % most] = entry.into();
        }
        self.next = (self.next + 1) % most;
    }
}

/// Words without repetition.
#[derive(Debug, Default)]
struct Words {
    list: Vec<Box<[u8]>>,
    set: FxHashSet<Box<[u8]>>,
}

impl Words {
    fn add(&mut self, word: &[u8], most: usize) {
        if self.list.len() < most && !word.is_empty() && self.set.insert(word.into()) {
            self.list.push(word.into());
        }
    }
}

/// Everything learnt so far.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    /// One line of each command of each case: useful commands occur often.
    recent: Ring,
    commands: Vec<Ring>,
    numbers: FxHashMap<Box<[u8]>, usize>,
    columns: [Words; COLUMNS],
    tokens: Words,
    /// Commands that the program understands.
    pub(crate) learner: Learner,
}

impl Vocabulary {
    /// Learns from a test case.
    pub(crate) fn learn(&mut self, input: &[u8]) {
        let mut seen: Vec<&[u8]> = Vec::new();
        for range in lines(input) {
            let line = &input[range];
            let Some(first) = first_word(line) else {
                continue;
            };
            let first = &line[first];
            if line.len() > LONGEST_LINE || seen.contains(&first) || seen.len() == LINES_PER_CASE {
                continue;
            }
            seen.push(first);
            self.learn_line(line, first);
        }
    }

    fn learn_line(&mut self, line: &[u8], first: &[u8]) {
        self.recent.push(line, LINES_RECENT);
        let known = self.numbers.get(first).copied();
        let command = known.or_else(|| {
            (self.commands.len() < COMMANDS).then(|| {
                self.commands.push(Ring::default());
                self.numbers.insert(first.into(), self.commands.len() - 1);
                self.commands.len() - 1
            })
        });
        if let Some(command) = command {
            self.commands[command].push(line, LINES_PER_COMMAND);
        }
        for (column, range) in words(line).into_iter().enumerate() {
            let word = &line[range];
            // Numbers are generated, not remembered.
            if word.len() <= LONGEST_WORD && !word.iter().all(u8::is_ascii_digit) {
                self.columns[column.min(COLUMNS - 1)].add(word, WORDS_PER_COLUMN);
            }
        }
    }

    /// Learns a word of a dictionary or of the program.
    pub(crate) fn learn_token(&mut self, token: &[u8]) {
        self.tokens.add(token, usize::MAX);
    }

    /// A line of any test case: often of a common command, sometimes of any command.
    pub(crate) fn line(&self, dice: &mut Dice<'_>) -> Option<&[u8]> {
        let ring = if dice.one_in(3) {
            dice.pick(&self.commands)?
        } else {
            &self.recent
        };
        dice.pick(&ring.entries).map(AsRef::as_ref)
    }

    /// A word that was seen in a column.
    pub(crate) fn word(&self, column: usize, dice: &mut Dice<'_>) -> Option<&[u8]> {
        dice.pick(&self.columns[column.min(COLUMNS - 1)].list)
            .map(AsRef::as_ref)
    }

    /// A word that was seen anywhere.
    pub(crate) fn any_word(&self, dice: &mut Dice<'_>) -> Option<&[u8]> {
        let column = dice.below(COLUMNS);
        self.word(column, dice)
    }

    /// A token.
    pub(crate) fn token(&self, dice: &mut Dice<'_>) -> Option<&[u8]> {
        dice.pick(&self.tokens.list).map(AsRef::as_ref)
    }
}
