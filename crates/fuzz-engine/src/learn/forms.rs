//! The commands that a program understands, learnt from the values that it compares its input with.
//!
//! A program that reads a line of unknown words compares the first one with all commands that take this number of
//! words. After a known command, it compares the next words with the names that are allowed there. None of that is
//! visible in its accesses to the pool, so random mutation would take long.

use std::cmp::Ordering;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::mutate::Dice;
use crate::mutate::numbers::argument;
use crate::mutate::text::{first_word, words};

/// Unknown words, by column: these bytes, and the last one again for longer words. No program knows them.
const UNKNOWN: [&[u8]; 4] = [b"zqa", b"yqb", b"xqc", b"wqd"];
/// Lengths of unknown words. Some programs compare words only if their lengths are equal, others compare as many bytes
/// as the shorter word has, so that a short word shows only the beginning of a command.
const LENGTHS: [usize; 11] = [16, 3, 1, 2, 4, 5, 6, 7, 8, 9, 10];
const LONG: usize = LENGTHS[0];
const SHORT: usize = LENGTHS[1];
/// Limits: a larger set does not consist of commands.
const COMMANDS_MAX: usize = 128;
const NAMES_MAX: usize = 64;
const PROBES_MAX: usize = 512;
const SEPARATORS_MAX: usize = 4;
const LONGEST_NAME: usize = 32;

/// A command with a given number of arguments: the names allowed for each. It is empty for numbers and keys.
#[derive(Debug)]
struct Form {
    separator: u8,
    arguments: Vec<Vec<Box<[u8]>>>,
}

#[derive(Debug)]
struct Command {
    name: Box<[u8]>,
    forms: Vec<Form>,
}

/// The known commands and their arguments, and inputs that may reveal more.
#[derive(Debug)]
pub(crate) struct Forms {
    commands: Vec<Command>,
    numbers: FxHashMap<Box<[u8]>, usize>,
    separators: Vec<u8>,
    probes: VecDeque<Vec<u8>>,
    /// The number of probes so far.
    probed: usize,
}

impl Default for Forms {
    fn default() -> Self {
        let mut forms = Self {
            commands: Vec::new(),
            numbers: FxHashMap::default(),
            separators: Vec::new(),
            probes: VecDeque::new(),
            probed: 0,
        };
        forms.add_separator(b' ');
        forms
    }
}

/// An unknown word of a length.
fn unknown(column: usize, len: usize) -> Vec<u8> {
    let word = UNKNOWN[column];
    (0..len).map(|at| word[at.min(word.len() - 1)]).collect()
}

/// Whether a text has words that no program knows.
pub(crate) fn has_unknown(text: &[u8]) -> bool {
    let is_unknown = |word: &[u8]| UNKNOWN.iter().any(|it| word.starts_with(&it[..2]));
    words(text).into_iter().any(|word| is_unknown(&text[word]))
}

fn line_of(words: &[Vec<u8>], separator: u8) -> Vec<u8> {
    let mut line = words.join(&separator);
    line.push(b'\n');
    line
}

impl Forms {
    /// Adds what separates words. Unknown words with this separator are probed.
    pub(crate) fn add_separator(&mut self, separator: u8) {
        if self.separators.len() == SEPARATORS_MAX || self.separators.contains(&separator) {
            return;
        }
        self.separators.push(separator);
        for len in LENGTHS {
            for count in 1..=UNKNOWN.len() {
                let word = |column| unknown(column, if column == 0 { len } else { SHORT });
                let words: Vec<_> = (0..count).map(word).collect();
                self.probes.push_back(line_of(&words, separator));
            }
        }
    }

    /// What separates words: the most special byte that is known.
    pub(crate) fn separator(&self) -> u8 {
        self.separators.last().copied().unwrap_or(b' ')
    }

    /// The number of known commands.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// An input whose comparisons are worth observing.
    pub(crate) fn probe(&mut self) -> Option<Vec<u8>> {
        self.probes.pop_front()
    }

    /// Learns from the comparisons that a program made on a line: pairs of operands.
    pub(crate) fn learn<'a>(
        &mut self,
        line: &[u8],
        comparisons: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) {
        let special = self.separators.iter().skip(1);
        let separator = special.copied().find(|it| line.contains(it));
        let words: Vec<&[u8]> = match separator {
            Some(separator) => line
                .split(|byte| *byte == separator)
                .map(<[u8]>::trim_ascii)
                .collect(),
            None => words(line).into_iter().map(|word| &line[word]).collect(),
        };
        if words.is_empty() || words.len() > UNKNOWN.len() {
            return;
        }
        let separator = separator.unwrap_or(b' ');
        for (left, right) in comparisons {
            for (mine, theirs) in [(left, right), (right, left)] {
                let (Some(mine), Some(theirs)) = (name_of(mine), name_of(theirs)) else {
                    continue;
                };
                // Of a longer word, the program may have compared the beginning.
                let is_mine =
                    |word: &&[u8]| *word == mine || mine.len() > 1 && word.starts_with(mine);
                let column = words.iter().position(is_mine);
                let Some(column) = column.filter(|_| !words.contains(&theirs)) else {
                    continue;
                };
                // The program compared as many bytes as my word has: this may be the beginning of a name.
                let is_cut = theirs.len() == words[column].len();
                if !is_cut || !self.is_beginning(&words, column, theirs) {
                    self.learn_name(&words, separator, column, theirs);
                }
            }
        }
    }

    /// Whether a longer name is known that begins like this.
    fn is_beginning(&self, words: &[&[u8]], column: usize, name: &[u8]) -> bool {
        let is_longer = |known: &[u8]| known.len() > name.len() && known.starts_with(name);
        if column == 0 {
            return self.commands.iter().any(|it| is_longer(&it.name));
        }
        let command = self.numbers.get(words[0]).map(|it| &self.commands[*it]);
        let forms = command.iter().flat_map(|command| &command.forms);
        let names = forms.filter_map(|form| form.arguments.get(column - 1));
        names.flatten().any(|known| is_longer(known))
    }

    fn learn_name(&mut self, words: &[&[u8]], separator: u8, column: usize, name: &[u8]) {
        let is_new = if column == 0 {
            self.add_form(name, separator, words.len() - 1)
        } else {
            self.add_argument(words[0], words.len() - 1, column - 1, name)
        };
        if !is_new || self.probed >= PROBES_MAX {
            return;
        }
        // The following words are unknown, whatever they were, and once they are numbers.
        let number = |at: usize| at.to_string().into_bytes();
        let followers: [&dyn Fn(usize) -> Vec<u8>; 3] =
            [&|at| unknown(at, LONG), &|at| unknown(at, SHORT), &number];
        for follower in followers {
            self.probed += 1;
            let line = words
                .iter()
                .enumerate()
                .map(|(at, word)| match at.cmp(&column) {
                    Ordering::Less => word.to_vec(),
                    Ordering::Equal => name.to_vec(),
                    Ordering::Greater => follower(at),
                });
            let line: Vec<_> = line.collect();
            self.probes.push_back(line_of(&line, separator));
        }
    }

    /// Adds a form. Returns whether it is new.
    fn add_form(&mut self, name: &[u8], separator: u8, arguments: usize) -> bool {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.commands.len() == COMMANDS_MAX => return false,
            None => {
                self.numbers.insert(name.into(), self.commands.len());
                self.commands.push(Command {
                    name: name.into(),
                    forms: Vec::new(),
                });
                self.commands.len() - 1
            }
        };
        let forms = &mut self.commands[number].forms;
        if forms.iter().any(|form| form.arguments.len() == arguments) {
            return false;
        }
        forms.push(Form {
            separator,
            arguments: vec![Vec::new(); arguments],
        });
        true
    }

    /// Adds a name for an argument. Returns whether it is new.
    fn add_argument(&mut self, command: &[u8], count: usize, place: usize, name: &[u8]) -> bool {
        let Some(number) = self.numbers.get(command) else {
            return false;
        };
        let mut forms = self.commands[*number].forms.iter_mut();
        let Some(form) = forms.find(|form| form.arguments.len() == count) else {
            return false;
        };
        let names = &mut form.arguments[place];
        let is_new = names.len() < NAMES_MAX && !names.iter().any(|it| **it == *name);
        if is_new {
            names.push(name.into());
        }
        is_new
    }

    /// A line with a command that the program understands. `keys` are numbers that were used before.
    pub(crate) fn line(&self, keys: &[u64], dice: &mut Dice<'_>) -> Option<Vec<u8>> {
        let command = dice.pick(&self.commands)?;
        let form = dice.pick(&command.forms)?;
        Some(command.line(form, |names| name_or_number(names, keys, dice)))
    }

    /// A command that takes keys, with its arguments: the first one is to be replaced.
    pub(crate) fn line_for_key(&self, dice: &mut Dice<'_>) -> Option<Vec<u8>> {
        let takes_keys = |form: &&Form| form.arguments.first().is_some_and(Vec::is_empty);
        let command = dice.pick(&self.commands)?;
        let forms: Vec<&Form> = command.forms.iter().filter(takes_keys).collect();
        let form = dice.pick(&forms)?;
        Some(command.line(form, |names| name_or_number(names, &[], dice)))
    }

    /// A line of each form of each command.
    pub(crate) fn examples(&self) -> impl Iterator<Item = Vec<u8>> {
        self.commands.iter().flat_map(|command| {
            command.forms.iter().map(|form| {
                let mut next = 0;
                command.line(form, |names| {
                    next += 1;
                    let name = names.first().map(|name| name.to_vec());
                    name.unwrap_or_else(|| next.to_string().into_bytes())
                })
            })
        })
    }

    /// The words that are allowed instead of a word of a line.
    pub(crate) fn name_in(
        &self,
        line: &[u8],
        column: usize,
        dice: &mut Dice<'_>,
    ) -> Option<Vec<u8>> {
        let place = column.checked_sub(1)?;
        let number = self.numbers.get(&line[first_word(line)?])?;
        let count = words(line).len() - 1;
        let mut forms = self.commands[*number].forms.iter();
        let form = forms.find(|form| form.arguments.len() == count)?;
        Some(dice.pick(form.arguments.get(place)?)?.to_vec())
    }
}

impl Command {
    fn line(&self, form: &Form, mut fill: impl FnMut(&[Box<[u8]>]) -> Vec<u8>) -> Vec<u8> {
        let mut line = self.name.to_vec();
        for names in &form.arguments {
            line.push(form.separator);
            line.extend(fill(names));
        }
        line.push(b'\n');
        line
    }
}

/// An argument: one of its names, or a number.
fn name_or_number(names: &[Box<[u8]>], keys: &[u64], dice: &mut Dice<'_>) -> Vec<u8> {
    if dice.percent(90)
        && let Some(name) = dice.pick(names)
    {
        return name.to_vec();
    }
    argument(keys, dice).to_string().into_bytes()
}

/// An operand as a word of a line, if it can be one.
fn name_of(operand: &[u8]) -> Option<&[u8]> {
    let end = operand.iter().position(|byte| *byte == 0);
    let word = operand[..end.unwrap_or(operand.len())].trim_ascii();
    let is_name = !word.is_empty()
        && word.len() <= LONGEST_NAME
        && word.iter().all(u8::is_ascii_graphic)
        && words(word).len() == 1;
    is_name.then_some(word)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use libafl_bolts::rands::StdRand;

    use super::*;

    type Comparison = (Vec<u8>, Vec<u8>);

    fn learn(forms: &mut Forms, line: &[u8], compared: &[Comparison]) {
        forms.learn(
            line,
            compared.iter().map(|(left, right)| (&left[..], &right[..])),
        );
    }

    /// The comparisons of a shell with `use btree|hash`, `put KEY VALUE` and `count`.
    fn compare(line: &[u8]) -> Vec<Comparison> {
        let words: Vec<&[u8]> = words(line).into_iter().map(|word| &line[word]).collect();
        let mut compared = Vec::new();
        let mut is = |word: &[u8], name: &str| {
            compared.push((word.to_vec(), [name.as_bytes(), b"\0"].concat()));
            word == name.as_bytes()
        };
        if words.len() == 2 && is(words[0], "use") {
            is(words[1], "btree");
            is(words[1], "hash");
        } else if words.len() == 3 {
            is(words[0], "put");
        } else {
            is(words[0], "count");
        }
        compared
    }

    #[test]
    fn a_shell_is_learnt_from_its_comparisons() {
        let mut forms = Forms::default();
        let mut probes = 0;
        while let Some(probe) = forms.probe() {
            learn(&mut forms, &probe, &compare(&probe));
            probes += 1;
        }
        assert!(probes < 70, "{probes} probes");
        let mut random = StdRand::with_seed(3);
        let lines: BTreeSet<String> = (0..500)
            .filter_map(|_| forms.line(&[7], &mut Dice(&mut random)))
            .map(|line| String::from_utf8(line).unwrap())
            .collect();
        for expected in ["use btree\n", "use hash\n", "count\n"] {
            assert!(lines.contains(expected), "{lines:?}");
        }
        assert!(lines.iter().any(|line| line.starts_with("put 7 ")));
        let name = forms.name_in(b"use 1\n", 1, &mut Dice(&mut random));
        assert!(matches!(name.as_deref(), Some(b"btree" | b"hash")));
        let keyed: BTreeSet<_> = (0..500)
            .filter_map(|_| forms.line_for_key(&mut Dice(&mut random)))
            .filter_map(|line| line.split(|byte| *byte == b' ').next().map(<[u8]>::to_vec))
            .collect();
        assert!(
            !keyed.contains(&b"use"[..]) && keyed.contains(&b"put"[..]),
            "{keyed:?}"
        );
    }

    #[test]
    fn names_are_learnt_from_programs_that_compare_the_shorter_length() {
        let mut forms = Forms::default();
        while let Some(probe) = forms.probe() {
            let word = probe.split(u8::is_ascii_whitespace).next().unwrap();
            let compare = |name: &[u8]| {
                let len = name.len().min(word.len());
                (word[..len].to_vec(), name[..len].to_vec())
            };
            let compared = [b"exchange".as_slice(), b"put"].map(compare);
            learn(&mut forms, &probe, &compared);
        }
        let names: Vec<_> = forms.commands.iter().map(|it| &*it.name).collect();
        assert_eq!(names, [b"exchange".as_slice(), b"put"]);
    }

    #[test]
    fn operands_that_are_no_words_are_left_out() {
        let mut forms = Forms::default();
        let odd: [&[u8]; 4] = [b"two words", b"", b"\xff\xfe", &[b'a'; 40]];
        let compared: Vec<_> = odd.map(|it| (b"zqa".to_vec(), it.to_vec())).into();
        learn(&mut forms, b"zqa\n", &compared);
        let mut random = StdRand::with_seed(3);
        assert_eq!(forms.line(&[], &mut Dice(&mut random)), None);
    }
}
