//! The commands that a program understands, learnt from the values that it compares its input with.
//!
//! A program that reads a line of unknown words compares the first one with all commands that take this number of
//! words. After a known command, it compares the next words with the names that are allowed there. None of that is
//! visible in its accesses to the pool, so random mutation would take long.

use std::cmp::Ordering;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::dice::Dice;
use super::text::{first_word, words};

/// Words that no program knows.
const UNKNOWN: [&[u8]; 4] = [b"zqa", b"zqb", b"zqc", b"zqd"];
/// Limits: a larger set does not consist of commands.
const COMMANDS_MAX: usize = 128;
const NAMES_MAX: usize = 64;
const PROBES_MAX: usize = 512;
const LONGEST_NAME: usize = 32;

/// An operand, and the value that the program compares it with.
pub type Comparison = (Vec<u8>, Vec<u8>);

/// A command with a given number of arguments: the names allowed for each. It is empty for numbers and keys.
#[derive(Debug, Default)]
struct Form {
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
    probes: VecDeque<Vec<u8>>,
    /// The number of probes so far.
    probed: usize,
}

impl Default for Forms {
    fn default() -> Self {
        let probe = |count: usize| [UNKNOWN[..count].join(&b' '), b"\n".to_vec()].concat();
        Self {
            commands: Vec::new(),
            numbers: FxHashMap::default(),
            probes: (1..=UNKNOWN.len()).map(probe).collect(),
            probed: 0,
        }
    }
}

impl Forms {
    /// An input whose comparisons are worth observing.
    pub(crate) fn probe(&mut self) -> Option<Vec<u8>> {
        self.probes.pop_front()
    }

    /// Learns from the comparisons that a program made on a line.
    pub(crate) fn learn(&mut self, line: &[u8], comparisons: &[Comparison]) {
        let words: Vec<&[u8]> = words(line).into_iter().map(|word| &line[word]).collect();
        if words.is_empty() || words.len() > UNKNOWN.len() {
            return;
        }
        for (left, right) in comparisons {
            for (mine, theirs) in [(left, right), (right, left)] {
                let (mine, theirs) = (name_of(mine), name_of(theirs));
                let column = words.iter().position(|word| Some(*word) == mine);
                if let (Some(column), Some(theirs)) = (column, theirs)
                    && !words.contains(&theirs)
                {
                    self.learn_name(&words, column, theirs);
                }
            }
        }
    }

    fn learn_name(&mut self, words: &[&[u8]], column: usize, name: &[u8]) {
        let is_new = if column == 0 {
            self.add_form(name, words.len() - 1)
        } else {
            self.add_argument(words[0], words.len() - 1, column - 1, name)
        };
        if !is_new || self.probed >= PROBES_MAX {
            return;
        }
        self.probed += 1;
        // The following words are unknown, whatever they were.
        let line = words
            .iter()
            .enumerate()
            .map(|(at, word)| match at.cmp(&column) {
                Ordering::Less => word,
                Ordering::Equal => name,
                Ordering::Greater => UNKNOWN[at],
            });
        let mut probe = line.collect::<Vec<_>>().join(&b' ');
        probe.push(b'\n');
        self.probes.push_back(probe);
    }

    /// Adds a form. Returns whether it is new.
    fn add_form(&mut self, name: &[u8], arguments: usize) -> bool {
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
        let mut line = command.name.to_vec();
        for names in &form.arguments {
            line.push(b' ');
            line.extend_from_slice(&argument(names, keys, dice));
        }
        line.push(b'\n');
        Some(line)
    }

    /// A command that takes keys, with its arguments: the first one is to be replaced.
    pub(crate) fn line_for_key(&self, dice: &mut Dice<'_>) -> Option<Vec<u8>> {
        let takes_keys = |form: &&Form| form.arguments.first().is_some_and(Vec::is_empty);
        let command = dice.pick(&self.commands)?;
        let forms: Vec<&Form> = command.forms.iter().filter(takes_keys).collect();
        let form = dice.pick(&forms)?;
        let mut line = command.name.to_vec();
        for names in &form.arguments {
            line.push(b' ');
            line.extend_from_slice(&argument(names, &[], dice));
        }
        line.push(b'\n');
        Some(line)
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

/// An argument: one of its names, a number that was used, or any number.
fn argument(names: &[Box<[u8]>], keys: &[u64], dice: &mut Dice<'_>) -> Vec<u8> {
    if dice.percent(90)
        && let Some(name) = dice.pick(names)
    {
        return name.to_vec();
    }
    let key = dice.pick(keys).copied().filter(|_| dice.percent(60));
    let most = [8, 64, 300][dice.below(3)];
    let number = key.unwrap_or_else(|| dice.below(most) as u64);
    number.to_string().into_bytes()
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
            forms.learn(&probe, &compare(&probe));
            probes += 1;
        }
        assert!(probes < 20, "{probes} probes");
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
    fn operands_that_are_no_words_are_left_out() {
        let mut forms = Forms::default();
        let odd: [&[u8]; 4] = [b"two words", b"", b"\xff\xfe", &[b'a'; 40]];
        let compared: Vec<_> = odd.map(|it| (b"zqa".to_vec(), it.to_vec())).into();
        forms.learn(b"zqa\n", &compared);
        let mut random = StdRand::with_seed(3);
        assert_eq!(forms.line(&[], &mut Dice(&mut random)), None);
    }
}
