//! Lines that fill a pool, so that other commands find something to work on: a command that deletes or swaps does nothing
//! to an empty pool.

use crate::mutate::text::{first_word, is_text, lines, numbers, value};

/// The first commands that have an effect are the most useful ones. Others may undo what these do.
const COMMANDS_MAX: usize = 2;
const LONGEST_LINE: usize = 64;

/// Lines that had an effect, each of them twice, with different numbers.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// The names of their commands.
    commands: Vec<Box<[u8]>>,
    /// All lines, and those that are in use.
    known: Vec<u8>,
    used: Vec<u8>,
}

impl Context {
    /// Adds an input that did something new, if it is one line with a new command and with numbers.
    pub(super) fn add(&mut self, input: &[u8]) {
        let is_line = is_text(input) && lines(input).len() == 1 && input.len() <= LONGEST_LINE;
        let Some(name) = first_word(input).filter(|_| is_line) else {
            return;
        };
        let name = &input[name];
        if numbers(input).is_empty()
            || self.commands.len() == COMMANDS_MAX
            || self.commands.iter().any(|it| **it == *name)
        {
            return;
        }
        self.commands.push(name.into());
        let line = input.trim_ascii_end();
        self.known.extend_from_slice(line);
        self.known.push(b'\n');
        self.known.extend(with_next_numbers(line));
        self.known.push(b'\n');
    }

    /// The lines in use.
    pub(super) fn lines(&self) -> &[u8] {
        &self.used
    }

    /// Uses all known lines. Returns whether there are new ones.
    pub(super) fn renew(&mut self) -> bool {
        let is_new = self.used.len() < self.known.len();
        self.used.clone_from(&self.known);
        is_new
    }
}

/// A line with each number larger by one.
fn with_next_numbers(line: &[u8]) -> Vec<u8> {
    let mut next = line.to_vec();
    for number in numbers(line).into_iter().rev() {
        let larger = value(&line[number.clone()]).map_or(0, |value| value.wrapping_add(1));
        next.splice(number, larger.to_string().into_bytes());
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_numbers_of_two_commands() {
        let mut context = Context::default();
        for input in [
            "clear\n",
            "put 1 9\n",
            "put 3 4\n",
            "a 1\nb 2\n",
            "fill(1,2)",
            "del 1\n",
        ] {
            context.add(input.as_bytes());
        }
        assert!(context.lines().is_empty() && context.renew() && !context.renew());
        let expected = "put 1 9\nput 2 10\nfill(1,2)\nfill(2,3)\n";
        assert_eq!(String::from_utf8_lossy(context.lines()), expected);
    }
}
