//! Lines from formats of `scanf`: `put %lu %lu` stands for `put`, a number and a number.

use crate::mutate::Dice;
use crate::mutate::numbers::argument;

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// These bytes.
    Text(Vec<u8>),
    /// A decimal number.
    Number,
    /// A hexadecimal number.
    Hexadecimal,
    /// A word, of at most this many bytes.
    Word(usize),
    /// This many bytes out of these.
    Bytes(Vec<u8>, usize),
}

/// A line with places for arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

/// A word has no more bytes than this unless the format says so.
const LONGEST_WORD: usize = 16;

impl Template {
    /// The lines that a format reads, behind a prefix. `None` if it reads nothing.
    pub(crate) fn new(prefix: &[u8], format: &[u8]) -> Option<Self> {
        let mut reader = Reader {
            rest: format,
            parts: Vec::new(),
        };
        reader.text(prefix);
        let before = reader.parts.clone();
        while let Some((first, rest)) = reader.rest.split_first() {
            reader.rest = rest;
            match first {
                b'%' => reader.directive()?,
                byte if byte.is_ascii_whitespace() => reader.space(),
                byte => reader.text(&[*byte]),
            }
        }
        (reader.parts != before).then_some(Self {
            parts: reader.parts,
        })
    }

    /// Whether the program compares some of the line: not every line has this form.
    pub(crate) fn has_words(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Text(text) => text.iter().any(u8::is_ascii_graphic),
            _ => false,
        })
    }

    /// A line with small numbers.
    pub(crate) fn example(&self) -> Vec<u8> {
        let mut next = 0;
        self.render(|part| {
            next += 1;
            match part {
                Part::Word(_) => vec![b'a'],
                Part::Bytes(bytes, count) => vec![bytes[0]; *count],
                _ => next.to_string().into_bytes(),
            }
        })
    }

    /// A line with any arguments. `keys` are numbers that were used before.
    pub(crate) fn line(&self, keys: &[u64], dice: &mut Dice<'_>) -> Vec<u8> {
        self.render(|part| match part {
            Part::Hexadecimal => format!("{:x}", argument(keys, dice)).into_bytes(),
            Part::Word(longest) => {
                let mut word = argument(keys, dice).to_string().into_bytes();
                word.insert(0, b'a' + dice.below(4) as u8);
                word.truncate(*longest);
                word
            }
            Part::Bytes(bytes, count) => (0..*count)
                .filter_map(|_| dice.pick(bytes).copied())
                .collect(),
            _ => argument(keys, dice).to_string().into_bytes(),
        })
    }

    fn render(&self, mut fill: impl FnMut(&Part) -> Vec<u8>) -> Vec<u8> {
        let mut line = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => line.extend_from_slice(text),
                other => line.extend(fill(other)),
            }
        }
        let end = line.iter().rposition(|byte| !byte.is_ascii_whitespace());
        line.truncate(end.map_or(0, |last| last + 1));
        line.push(b'\n');
        line
    }
}

/// Reads a format.
struct Reader<'a> {
    rest: &'a [u8],
    parts: Vec<Part>,
}

impl Reader<'_> {
    fn text(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        match self.parts.last_mut() {
            Some(Part::Text(before)) => before.extend_from_slice(text),
            _ => self.parts.push(Part::Text(text.to_vec())),
        }
    }

    /// White space stands for any amount of it, also for none.
    fn space(&mut self) {
        let is_there = match self.parts.last() {
            Some(Part::Text(text)) => text.last().is_some_and(u8::is_ascii_whitespace),
            Some(_) => false,
            None => true,
        };
        if !is_there {
            self.text(b" ");
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// What follows `%`. `None` if no format has it.
    fn directive(&mut self) -> Option<()> {
        let mut width = 0;
        let mut conversion = self.byte()?;
        // Flags, the width, and the length of the variable.
        while matches!(
            conversion,
            b'*' | b'\'' | b'0'..=b'9' | b'h' | b'l' | b'j' | b'z' | b't' | b'L' | b'q' | b'm'
        ) {
            if conversion.is_ascii_digit() {
                width = usize::min(width * 10 + usize::from(conversion - b'0'), LONGEST_WORD);
            }
            conversion = self.byte()?;
        }
        let longest = if width == 0 { LONGEST_WORD } else { width };
        let part = match conversion {
            b'd' | b'i' | b'u' | b'f' | b'g' | b'e' | b'a' | b'F' | b'G' | b'E' | b'A' | b'o' => {
                self.space_between();
                Part::Number
            }
            b'x' | b'X' | b'p' => {
                self.space_between();
                Part::Hexadecimal
            }
            b's' | b'S' => {
                self.space_between();
                Part::Word(longest)
            }
            b'c' | b'C' => Part::Bytes((b'a'..=b'z').collect(), width.max(1)),
            b'[' => Part::Bytes(self.set()?, longest.min(4)),
            b'n' => return Some(()),
            b'%' => {
                self.text(b"%");
                return Some(());
            }
            _ => return None,
        };
        self.parts.push(part);
        Some(())
    }

    /// Two arguments without anything between them would be read as one.
    fn space_between(&mut self) {
        if !matches!(self.parts.last(), None | Some(Part::Text(_))) {
            self.text(b" ");
        }
    }

    /// The bytes of `[set]`, the printable ones.
    fn set(&mut self) -> Option<Vec<u8>> {
        let is_negated = self.rest.first() == Some(&b'^');
        if is_negated {
            self.byte();
        }
        let mut listed = Vec::new();
        loop {
            match self.byte()? {
                b']' if !listed.is_empty() => break,
                b'-' if !listed.is_empty() && self.rest.first() != Some(&b']') => {
                    let (from, to) = (*listed.last()?, self.byte()?);
                    listed.extend(from..=to);
                }
                byte => listed.push(byte),
            }
        }
        // Letters and digits suffice for what is not excluded.
        let all = b"abc123".iter().copied();
        let set: Vec<u8> = if is_negated {
            all.filter(|byte| !listed.contains(byte)).collect()
        } else {
            listed.into_iter().filter(u8::is_ascii_graphic).collect()
        };
        (!set.is_empty()).then_some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(format: &str) -> Option<String> {
        let template = Template::new(b"", format.as_bytes())?;
        Some(String::from_utf8(template.example()).unwrap())
    }

    #[test]
    fn formats_become_lines() {
        for (format, line) in [
            ("put %lu %lu", "put 1 2\n"),
            ("put %lu %lu\n", "put 1 2\n"),
            (" swap %llu with %hhu%n", "swap 1 with 2\n"),
            ("fill %i,%i", "fill 1,2\n"),
            ("%15s %lu", "a 2\n"),
            ("%d%d", "1 2\n"),
            ("set %[a-z]=%[^,\n]", "set aaaa=aaaa\n"),
            ("%*d%% at %x", "1% at 2\n"),
            ("%c %1[pq]", "a p\n"),
            ("quit", "quit\n"),
        ] {
            assert_eq!(example(format).as_deref(), Some(line), "{format}");
        }
    }

    #[test]
    fn what_is_no_format_is_left_out() {
        for format in ["", "100%", "%k", "%[abc", "%lu %"] {
            assert_eq!(example(format), None, "{format}");
        }
    }

    #[test]
    fn only_some_formats_tell_lines_apart() {
        let has_words = |format: &[u8]| Template::new(b"", format).unwrap().has_words();
        assert!(has_words(b"put %lu"));
        assert!(!has_words(b"%s %lu"));
    }
}
