//! Inputs as words: a line is a command and its arguments, separated by white space.

use std::collections::BTreeSet;

/// A word, and the white space before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    before: Vec<u8>,
    pub(super) text: Vec<u8>,
}

/// A line: its words, and the white space at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) words: Vec<Word>,
    end: Vec<u8>,
}

impl Line {
    fn read(line: &[u8]) -> Self {
        let mut words = Vec::new();
        let mut rest = line;
        loop {
            let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace());
            let (before, more) = rest.split_at(blanks.count());
            let letters = more.iter().take_while(|byte| !byte.is_ascii_whitespace());
            let (text, more) = more.split_at(letters.count());
            if text.is_empty() {
                let end = before.to_vec();
                return Self { words, end };
            }
            words.push(Word {
                before: before.to_vec(),
                text: text.to_vec(),
            });
            rest = more;
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        for word in &self.words {
            out.extend_from_slice(&word.before);
            out.extend_from_slice(&word.text);
        }
        out.extend_from_slice(&self.end);
    }

    /// The same words with one blank between them.
    fn tidied(mut self) -> Self {
        for (place, word) in self.words.iter_mut().enumerate() {
            word.before = if place == 0 {
                Vec::new()
            } else {
                b" ".to_vec()
            };
        }
        let is_ended = self.end.ends_with(b"\n");
        self.end = if is_ended { b"\n".to_vec() } else { Vec::new() };
        self
    }
}

/// An input, as words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words(pub(super) Vec<Line>);

impl Words {
    pub(super) fn read(input: &[u8]) -> Self {
        let lines = super::reduce::lines_of(input).into_iter();
        Self(lines.map(Line::read).collect())
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for line in &self.0 {
            line.write(&mut out);
        }
        out
    }

    /// The same words, with white space only where it is needed.
    pub(super) fn tidied(&self) -> Self {
        Self(self.0.iter().cloned().map(Line::tidied).collect())
    }

    /// The different words.
    pub(super) fn distinct(&self) -> BTreeSet<Vec<u8>> {
        let words = self.0.iter().flat_map(|line| &line.words);
        words.map(|word| word.text.clone()).collect()
    }

    /// The different numbers.
    pub(super) fn numbers(&self) -> BTreeSet<u64> {
        let all = self.distinct();
        all.iter().filter_map(|word| number(word)).collect()
    }

    /// The same, with other words wherever `other` returns one.
    pub(super) fn replaced(&self, other: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Self {
        let mut new = self.clone();
        for word in new.0.iter_mut().flat_map(|line| &mut line.words) {
            if let Some(text) = other(&word.text) {
                word.text = text;
            }
        }
        new
    }

    /// The same, with other numbers wherever `other` returns one.
    pub(super) fn renumbered(&self, other: impl Fn(u64) -> Option<u64>) -> Self {
        self.replaced(|word| {
            let new = other(number(word)?)?;
            Some(new.to_string().into_bytes())
        })
    }

    /// The lines without one of their words: the word at `place` of all lines that begin with `command` and have `len`
    /// words.
    pub(super) fn without(&self, command: &[u8], len: usize, place: usize) -> Self {
        let mut new = self.clone();
        for line in &mut new.0 {
            if line.words.len() == len && line.words[0].text == command {
                line.words.remove(place);
            }
        }
        new
    }

    /// The kinds of lines: their first words and how many words they have.
    pub(super) fn kinds(&self) -> BTreeSet<(Vec<u8>, usize)> {
        let lines = self.0.iter().filter_map(|line| {
            let command = line.words.first()?;
            Some((command.text.clone(), line.words.len()))
        });
        lines.collect()
    }
}

/// The number that a word is.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(word).ok().filter(|_| is_number)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_written_as_they_were_read() {
        for input in [
            &b""[..],
            b"put 1 2\n",
            b"  put\t1  2 \r\n\n \nlast",
            b"\xff\x00 \xfe\n\n",
        ] {
            assert_eq!(Words::read(input).bytes(), input);
        }
    }

    #[test]
    fn tidied_words_have_one_blank_between_them() {
        let words = Words::read(b"  put\t1  2 \r\n\n \nlast ");
        assert_eq!(words.tidied().bytes(), b"put 1 2\n\n\nlast");
    }
}
