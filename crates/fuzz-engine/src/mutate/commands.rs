//! Mutations of inputs that are lines of commands: `put 1 2`, `del 1`.
//!
//! Many similar commands, and commands on existing keys, make data structures grow, split, shrink and merge. Random
//! byte changes hardly ever produce such commands.

use std::ops::Range;

use super::dice::Dice;
use super::numbers::{block_len, change, series};
use super::text::{first_word, lines, numbers, value, words};
use super::vocabulary::Vocabulary;

/// A kind of mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    InsertLine,
    DeleteLines,
    DuplicateLine,
    SwapLines,
    OrderLines,
    SpliceLines,
    ReplaceWord,
    ChangeNumber,
    InsertBlock,
    KnownKeys,
    Truncate,
    Repeat,
    Arity,
    Stretch,
    InsertForm,
}

/// All kinds, with their weights.
pub(crate) const KINDS: [(Kind, u32); 15] = [
    (Kind::InsertLine, 12),
    (Kind::DeleteLines, 12),
    (Kind::DuplicateLine, 6),
    (Kind::SwapLines, 6),
    (Kind::OrderLines, 3),
    (Kind::SpliceLines, 8),
    (Kind::ReplaceWord, 14),
    (Kind::ChangeNumber, 14),
    (Kind::InsertBlock, 12),
    (Kind::KnownKeys, 14),
    (Kind::Truncate, 3),
    (Kind::Repeat, 2),
    (Kind::Arity, 4),
    (Kind::Stretch, 3),
    (Kind::InsertForm, 10),
];

/// Word lengths around common buffer and node sizes.
const STRETCHED: [usize; 8] = [8, 16, 32, 63, 64, 128, 255, 1024];

/// One mutation of an input.
pub(crate) struct Commands<'a, 'b> {
    pub(crate) input: &'a mut Vec<u8>,
    /// Another test case.
    pub(crate) other: &'a [u8],
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) dice: Dice<'b>,
    pub(crate) max_bytes: usize,
}

impl Commands<'_, '_> {
    /// Applies a mutation. Returns whether it has changed anything.
    pub(crate) fn apply(&mut self, kind: Kind) -> bool {
        let done = match kind {
            Kind::InsertLine => self.insert_line(),
            Kind::DeleteLines => self.delete_lines(),
            Kind::DuplicateLine => self.duplicate_line(),
            Kind::SwapLines => self.swap_lines(),
            Kind::OrderLines => self.order_lines(),
            Kind::SpliceLines => self.splice_lines(),
            Kind::ReplaceWord => self.replace_word(),
            Kind::ChangeNumber => self.change_number(),
            Kind::InsertBlock => self.insert_block(),
            Kind::KnownKeys => self.known_keys(),
            Kind::Truncate => self.truncate(),
            Kind::Repeat => self.repeat(),
            Kind::Arity => self.arity(),
            Kind::Stretch => self.stretch(),
            Kind::InsertForm => self.insert_form(),
        };
        if self.input.len() > self.max_bytes {
            // Cuts at the end of a line: half a command would be another command.
            let end = self.input[..self.max_bytes]
                .iter()
                .rposition(|byte| *byte == b'\n');
            self.input
                .truncate(end.map_or(self.max_bytes, |end| end + 1));
        }
        done.is_some()
    }

    fn line(&mut self) -> Option<Range<usize>> {
        let lines = lines(self.input);
        self.dice.pick(&lines).cloned()
    }

    /// Some adjacent lines, at most this many.
    fn some_lines(&mut self, most: usize) -> Option<(Vec<Range<usize>>, Range<usize>)> {
        let lines = lines(self.input);
        let first = self.dice.below(lines.len());
        let count = self
            .dice
            .between(1, most.clamp(1, (lines.len() - first).max(1)));
        let last = (first + count).min(lines.len());
        (first < last).then_some((lines, first..last))
    }

    /// A position for inserting a line: in one of three cases the end, because that is where a program of commands
    /// grows.
    fn position(&mut self) -> usize {
        let lines = lines(self.input);
        if self.dice.one_in(3) {
            return self.input.len();
        }
        self.dice.pick(&lines).map_or(0, |line| line.start)
    }

    /// Inserts whole lines before the line that starts there.
    fn insert(&mut self, at: usize, mut block: Vec<u8>) {
        if at > 0 && self.input[at - 1] != b'\n' {
            block.insert(0, b'\n');
        }
        if block.last() != Some(&b'\n') {
            block.push(b'\n');
        }
        self.input.splice(at..at, block);
    }

    /// A line to derive others from: of this input, or of any other.
    fn model(&mut self) -> Option<Vec<u8>> {
        if self.dice.percent(35)
            && let Some(line) = self.vocabulary.line(&mut self.dice)
        {
            return Some(line.to_vec());
        }
        if self.dice.percent(30)
            && let Some(line) = self.vocabulary.learner.line_for_key(&mut self.dice)
        {
            return Some(line);
        }
        let line = self.line()?;
        Some(self.input[line].to_vec())
    }

    /// The numbers of the whole input.
    fn all_numbers(&self) -> Vec<u64> {
        let lines = lines(self.input);
        let values = lines.into_iter().flat_map(|range| {
            let line = &self.input[range];
            numbers(line)
                .into_iter()
                .filter_map(|number| value(&line[number]))
                .collect::<Vec<_>>()
        });
        values.collect()
    }

    fn insert_line(&mut self) -> Option<()> {
        let mut line = match self.vocabulary.line(&mut self.dice) {
            Some(line) => line.to_vec(),
            None => self.vocabulary.token(&mut self.dice)?.to_vec(),
        };
        if self.dice.one_in(2) {
            let others = self.all_numbers();
            change_a_number(&mut line, &others, &mut self.dice);
        }
        let at = self.position();
        self.insert(at, line);
        Some(())
    }

    /// A command that the program understands. At the beginning it is often one that all others depend on.
    fn insert_form(&mut self) -> Option<()> {
        let keys = self.all_numbers();
        let line = self.vocabulary.learner.line(&keys, &mut self.dice)?;
        let at = if self.dice.one_in(4) {
            0
        } else {
            self.position()
        };
        self.insert(at, line);
        Some(())
    }

    fn delete_lines(&mut self) -> Option<()> {
        let most = if self.dice.one_in(2) {
            1
        } else {
            1 << self.dice.between(1, 8)
        };
        let (lines, some) = self.some_lines(most)?;
        self.input
            .drain(lines[some.start].start..lines[some.end - 1].end);
        Some(())
    }

    fn duplicate_line(&mut self) -> Option<()> {
        let line = self.line()?;
        let text = self.input[line.clone()].to_vec();
        let at = if self.dice.one_in(2) {
            line.end
        } else {
            self.position()
        };
        self.insert(at, text);
        Some(())
    }

    fn swap_lines(&mut self) -> Option<()> {
        let (one, other) = (self.line()?, self.line()?);
        let (first, second) = if one.start < other.start {
            (one, other)
        } else {
            (other, one)
        };
        if first == second {
            return None;
        }
        let text = self.input[second.clone()].to_vec();
        let moved = self.input[first.clone()].to_vec();
        self.input.drain(second.clone());
        self.insert(second.start, moved);
        self.input.drain(first.clone());
        self.insert(first.start, text);
        Some(())
    }

    fn order_lines(&mut self) -> Option<()> {
        let (lines, some) = self.some_lines(64)?;
        if some.len() < 2 {
            return None;
        }
        let all = lines[some.start].start..lines[some.end - 1].end;
        let mut texts: Vec<Vec<u8>> = lines[some]
            .iter()
            .map(|line| self.input[line.clone()].to_vec())
            .collect();
        if self.dice.one_in(2) {
            texts.reverse();
        } else {
            self.dice.shuffle(&mut texts);
        }
        for text in &mut texts {
            if text.last() != Some(&b'\n') {
                text.push(b'\n');
            }
        }
        self.input.splice(all, texts.concat());
        Some(())
    }

    fn splice_lines(&mut self) -> Option<()> {
        let theirs = lines(self.other);
        let from = self.dice.below(theirs.len());
        let line = theirs.get(from)?;
        if self.dice.one_in(2) {
            // The beginning of this input and the end of the other.
            let at = self.position();
            self.input.truncate(at);
            self.insert(at, self.other[line.start..].to_vec());
        } else {
            let count = self.dice.between(1, (theirs.len() - from).min(64));
            let block = self.other[line.start..theirs[from + count - 1].end].to_vec();
            let at = self.position();
            self.insert(at, block);
        }
        Some(())
    }

    fn replace_word(&mut self) -> Option<()> {
        let line = self.line()?;
        let words = words(&self.input[line.clone()]);
        let column = self.dice.below(words.len());
        let word = words.get(column)?;
        let range = line.start + word.start..line.start + word.end;
        let text = self.input[line.clone()].to_vec();
        let learner = &self.vocabulary.learner;
        if self.dice.one_in(2)
            && let Some(name) = learner.name_in(&text, column, &mut self.dice)
        {
            self.input.splice(range, name);
            return Some(());
        }
        let new = match self.dice.weighted(&[30, 25, 30, 5, 10, 4]) {
            0 => self.vocabulary.word(column, &mut self.dice)?.to_vec(),
            1 => self.same_column(column)?,
            2 => self.vocabulary.token(&mut self.dice)?.to_vec(),
            3 => self.vocabulary.any_word(&mut self.dice)?.to_vec(),
            // What is between two delimiters may be empty.
            5 if column > 0 => Vec::new(),
            // Many shells have commands of one letter.
            _ => vec![b'a' + self.dice.below(26) as u8],
        };
        self.input.splice(range, new);
        Some(())
    }

    /// A word of another line of this input, in the same column: a key that was already used.
    fn same_column(&mut self, column: usize) -> Option<Vec<u8>> {
        let line = self.line()?;
        let line = &self.input[line];
        let word = words(line).get(column)?.clone();
        Some(line[word].to_vec())
    }

    fn change_number(&mut self) -> Option<()> {
        let range = self.line()?;
        let others = self.all_numbers();
        let mut line = self.input[range.clone()].to_vec();
        change_a_number(&mut line, &others, &mut self.dice)?;
        self.input.splice(range, line);
        Some(())
    }

    /// Many lines similar to one, with other numbers.
    fn insert_block(&mut self) -> Option<()> {
        let line = self.model()?;
        let count = block_len(&mut self.dice).min(self.max_bytes / line.len().max(1));
        let places = numbers(&line);
        let place = if self.dice.percent(70) {
            places.first()
        } else {
            self.dice.pick(&places)
        };
        let mut block = Vec::with_capacity(count * (line.len() + 4));
        match place.cloned() {
            Some(place) => {
                let first = value(&line[place.clone()]).unwrap_or(0);
                for number in series(first, count, &mut self.dice) {
                    block.extend_from_slice(&line[..place.start]);
                    block.extend_from_slice(number.to_string().as_bytes());
                    block.extend_from_slice(&line[place.end..]);
                    end_line(&mut block);
                }
            }
            None => {
                // Keys that are words get numbers appended.
                let words = words(&line);
                let end = words.get(1).map(|word| word.end);
                for number in series(0, count, &mut self.dice) {
                    let end = end.unwrap_or(line.len());
                    block.extend_from_slice(&line[..end]);
                    if words.len() > 1 {
                        block.extend_from_slice(number.to_string().as_bytes());
                    }
                    block.extend_from_slice(&line[end..]);
                    end_line(&mut block);
                }
            }
        }
        let at = self.position();
        self.insert(at, block);
        Some(())
    }

    /// Another command on the keys of some lines: deletes or reads what was inserted.
    fn known_keys(&mut self) -> Option<()> {
        let most = if self.dice.one_in(2) {
            2
        } else {
            1 << self.dice.between(1, 6)
        };
        let (lines, some) = self.some_lines(most)?;
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(some.len());
        for line in &lines[some.clone()] {
            let line = &self.input[line.clone()];
            if let Some(word) = words(line).get(1) {
                keys.push(line[word.clone()].to_vec());
            }
        }
        match self.dice.below(4) {
            0 => keys.reverse(),
            1 => self.dice.shuffle(&mut keys),
            _ => {}
        }
        let model = self.other_command(&lines[some.start])?;
        let words = words(&model);
        let mut block = Vec::new();
        for key in keys {
            match words.get(1) {
                Some(word) => {
                    block.extend_from_slice(&model[..word.start]);
                    block.extend_from_slice(&key);
                    block.extend_from_slice(&model[word.end..]);
                }
                None => {
                    block.extend_from_slice(&model[..words.first()?.end]);
                    block.push(b' ');
                    block.extend_from_slice(&key);
                }
            }
            end_line(&mut block);
        }
        if block.is_empty() {
            return None;
        }
        let after = lines[some.end - 1].end;
        let at = if self.dice.one_in(3) {
            after
        } else {
            self.input.len()
        };
        self.insert(at, block);
        Some(())
    }

    /// A line with another command than this one, or a token that may be one.
    fn other_command(&mut self, line: &Range<usize>) -> Option<Vec<u8>> {
        let line = self.input[line.clone()].to_vec();
        let mine = &line[first_word(&line)?];
        if self.dice.percent(40)
            && let Some(model) = self.vocabulary.learner.line_for_key(&mut self.dice)
        {
            return Some(model);
        }
        if self.dice.percent(75) {
            let model = self.vocabulary.line(&mut self.dice)?.to_vec();
            if &model[first_word(&model)?] != mine || self.dice.one_in(8) {
                return Some(model);
            }
        }
        let token = self.vocabulary.token(&mut self.dice)?;
        Some(token.to_vec())
    }

    fn truncate(&mut self) -> Option<()> {
        let line = self.line()?;
        self.input.truncate(line.end);
        Some(())
    }

    fn repeat(&mut self) -> Option<()> {
        if self.input.is_empty() || self.input.len() > self.max_bytes / 2 {
            return None;
        }
        let all = self.input.clone();
        let at = self.input.len();
        self.insert(at, all);
        Some(())
    }

    /// Adds a word to a line or removes one.
    fn arity(&mut self) -> Option<()> {
        let line = self.line()?;
        let words = words(&self.input[line.clone()]);
        if words.len() > 1 && self.dice.one_in(2) {
            let column = self.dice.between(1, words.len() - 1);
            self.input
                .drain(line.start + words[column - 1].end..line.start + words[column].end);
        } else {
            let end = line.start + words.last()?.end;
            let word = match self.dice.below(3) {
                0 => self.vocabulary.any_word(&mut self.dice)?.to_vec(),
                _ => self.dice.below(64).to_string().into_bytes(),
            };
            self.input
                .splice(end..end, [b" ".as_slice(), &word].concat());
        }
        Some(())
    }

    /// Replaces a word by a long one.
    fn stretch(&mut self) -> Option<()> {
        let line = self.line()?;
        let words = words(&self.input[line.clone()]);
        let column = self.dice.between(1, words.len().max(2) - 1);
        let word = words.get(column)?;
        let len = *self.dice.pick(&STRETCHED)?;
        let fill = if self.dice.one_in(2) {
            b'1'
        } else {
            b'a' + self.dice.below(26) as u8
        };
        self.input.splice(
            line.start + word.start..line.start + word.end,
            vec![fill; len],
        );
        Some(())
    }
}

/// Shortens an input to the maximum length.
pub(crate) fn cut(input: &mut Vec<u8>, max_bytes: usize) {
    if input.len() > max_bytes {
        // Cuts at the end of a line: half a command would be another command.
        let end = input[..max_bytes].iter().rposition(|byte| *byte == b'\n');
        input.truncate(end.map_or(max_bytes, |end| end + 1));
    }
}

fn end_line(block: &mut Vec<u8>) {
    if block.last() != Some(&b'\n') {
        block.push(b'\n');
    }
}

fn change_a_number(line: &mut Vec<u8>, others: &[u64], dice: &mut Dice<'_>) -> Option<()> {
    let places = numbers(line);
    let place = dice.pick(&places)?.clone();
    let old = value(&line[place.clone()]).unwrap_or(u64::MAX);
    let new = change(old, others, dice);
    let sign = if dice.one_in(64) { "-" } else { "" };
    line.splice(place, format!("{sign}{new}").into_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use libafl_bolts::rands::StdRand;

    use super::*;

    /// All results of a kind of mutation in many attempts.
    fn results(kind: Kind, input: &str, other: &str) -> BTreeSet<String> {
        let mut random = StdRand::with_seed(1);
        let mut vocabulary = Vocabulary::default();
        vocabulary.learn(other.as_bytes());
        vocabulary.learn_token(b"token");
        let mut results = BTreeSet::new();
        for _ in 0..2000 {
            let mut bytes = input.as_bytes().to_vec();
            let dice = Dice(&mut random);
            let mut commands = Commands {
                input: &mut bytes,
                other: other.as_bytes(),
                vocabulary: &vocabulary,
                dice,
                max_bytes: 400,
            };
            commands.apply(kind);
            assert!(bytes.len() <= 400);
            results.insert(String::from_utf8(bytes).unwrap());
        }
        results
    }

    fn has(kind: Kind, input: &str, other: &str, expected: &[&str]) {
        let results = results(kind, input, other);
        for text in expected {
            assert!(
                results.contains(*text),
                "{kind:?} never gives {text:?}, but for instance {:?}",
                results.first()
            );
        }
    }

    #[test]
    fn lines_come_and_go() {
        has(
            Kind::InsertLine,
            "put 1 2\n",
            "del 7\n",
            &["put 1 2\ndel 7\n", "del 7\nput 1 2\n"],
        );
        has(
            Kind::InsertLine,
            "put 1 2",
            "del 7",
            &["put 1 2\ndel 7\n", "del 7\nput 1 2"],
        );
        has(
            Kind::DeleteLines,
            "a\nb\nc\n",
            "",
            &["b\nc\n", "a\nc\n", "a\nb\n", "c\n", ""],
        );
        has(
            Kind::DuplicateLine,
            "a\nb\n",
            "",
            &["a\na\nb\n", "a\nb\na\n", "a\nb\nb\n"],
        );
        has(
            Kind::SwapLines,
            "a\nb\nc",
            "",
            &["b\na\nc", "c\nb\na\n", "a\nc\nb\n"],
        );
        has(
            Kind::OrderLines,
            "a\nb\nc\n",
            "",
            &["c\nb\na\n", "b\nc\na\n"],
        );
        has(
            Kind::SpliceLines,
            "a\nb\n",
            "x\ny\n",
            &["a\nx\ny\n", "a\ny\n", "a\nb\nx\n", "a\nx\nb\n"],
        );
        has(Kind::Truncate, "a\nb\nc\n", "", &["a\n", "a\nb\n"]);
        has(Kind::Repeat, "a\nb\n", "", &["a\nb\na\nb\n"]);
    }

    #[test]
    fn words_and_numbers_change() {
        has(
            Kind::ReplaceWord,
            "put 1 2\n",
            "del 7\n",
            &["del 1 2\n", "token 1 2\n", "put token 2\n", "i 1 2\n"],
        );
        has(
            Kind::ReplaceWord,
            "put 1 2\nget 3\n",
            "",
            &["put 3 2\nget 3\n", "put 1 2\nput 3\n", "put 1 2\nget 1\n"],
        );
        has(
            Kind::ReplaceWord,
            "set a=1\n",
            "",
            &["set =1\n", "set a=\n"],
        );
        has(
            Kind::ChangeNumber,
            "put 5 70\n",
            "",
            &[
                "put 6 70\n",
                "put 4 70\n",
                "put 70 70\n",
                "put 5 69\n",
                "put 5 128\n",
            ],
        );
        has(
            Kind::Arity,
            "put 5\n",
            "",
            &["put\n", "put 5 0\n", "put 5 63\n"],
        );
        has(
            Kind::Stretch,
            "put 5\n",
            "",
            &["put 11111111\n", "put aaaaaaaa\n"],
        );
    }

    #[test]
    fn blocks_count_up_down_and_at_random() {
        let expected = [
            "put 1 2\nput 0 2\nput 1 2\nput 2 2\n",
            "put 1 2\nput 3 2\nput 2 2\nput 1 2\n",
            "put 1 2\nput 1 0\nput 1 1\n",
        ];
        has(Kind::InsertBlock, "put 1 2\n", "", &expected);
        has(
            Kind::InsertBlock,
            "set k v\n",
            "",
            &["set k v\nset k0 v\nset k1 v\n"],
        );
        has(Kind::InsertBlock, "sync\n", "", &["sync\nsync\nsync\n"]);
        let longest = results(Kind::InsertBlock, "put 1 2\n", "")
            .iter()
            .map(|text| lines(text.as_bytes()).len())
            .max();
        assert!(longest > Some(40));
    }

    #[test]
    fn what_was_put_is_deleted() {
        let expected = [
            "put 4 1\nput 5 1\ndel 4\n",
            "put 4 1\nput 5 1\ndel 4\ndel 5\n",
            "put 4 1\nput 5 1\ndel 5\ndel 4\n",
            "put 4 1\ndel 4\nput 5 1\n",
            "put 4 1\nput 5 1\ntoken 5\n",
        ];
        has(Kind::KnownKeys, "put 4 1\nput 5 1\n", "del 9\n", &expected);
    }
}
