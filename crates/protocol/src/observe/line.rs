//! One open line: what it can hold, and what is known of it.

use super::bytes::{ByteSet, LINE_BYTES_MAX};

/// How many words [`Knowledge::possible`] needs for a number of contents.
pub const fn words_for(contents: usize) -> usize {
    contents.div_ceil(64)
}

/// What is known of a line in the course of one execution.
#[derive(Debug, PartialEq, Eq)]
pub struct Knowledge<'a> {
    /// One bit for each content: whether the line may have held it when the power came back.
    pub possible: &'a mut [u64],
    /// Bytes that recovery has overwritten: what they held can no longer be observed.
    pub overwritten: &'a mut ByteSet,
}

/// A load can observe more different values than it is allowed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// An open line.
#[derive(Debug)]
pub struct Line<'a> {
    contents: &'a [u8],
    bytes_each: usize,
    knowledge: Knowledge<'a>,
}

/// What a load can observe: for each value one content that has it, the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes<const MAX: usize> {
    firsts: [u32; MAX],
    len: usize,
}

impl<const MAX: usize> Classes<MAX> {
    /// The first content of each class, in ascending order.
    pub fn firsts(&self) -> &[u32] {
        &self.firsts[..self.len]
    }
}

impl<'a> Line<'a> {
    /// A line with these contents, one after the other, the newest first. All of them are different.
    ///
    /// # Panics
    /// If `line_bytes` is zero or above the maximum, if `contents` is not a multiple of it, or if there are
    /// too few words for the possible ones.
    pub fn new(contents: &'a [u8], line_bytes: usize, knowledge: Knowledge<'a>) -> Self {
        assert!(line_bytes > 0 && line_bytes <= LINE_BYTES_MAX);
        assert!(contents.len().is_multiple_of(line_bytes));
        assert!(knowledge.possible.len() >= words_for(contents.len() / line_bytes));
        Self {
            contents,
            bytes_each: line_bytes,
            knowledge,
        }
    }

    /// How many contents there were at first.
    pub fn content_count(&self) -> usize {
        self.contents.len() / self.bytes_each
    }

    /// A content.
    pub fn content(&self, number: usize) -> &'a [u8] {
        &self.contents[number * self.bytes_each..(number + 1) * self.bytes_each]
    }

    /// Makes every content possible, and no byte overwritten.
    pub fn forget(&mut self) {
        let count = self.content_count();
        for (number, word) in self.knowledge.possible.iter_mut().enumerate() {
            let left = count.saturating_sub(64 * number).min(64);
            *word = if left == 0 {
                0
            } else {
                u64::MAX >> (64 - left)
            };
        }
        *self.knowledge.overwritten = ByteSet::EMPTY;
    }

    /// The contents that are still possible, the newest first.
    pub fn possible(&self) -> impl Iterator<Item = usize> {
        let words = self.knowledge.possible.iter().enumerate();
        words.flat_map(|(number, &word)| {
            core::iter::successors(Some(word), |rest| Some(rest & rest.checked_sub(1)?))
                .take_while(|rest| *rest != 0)
                .map(move |rest| 64 * number + rest.trailing_zeros() as usize)
        })
    }

    /// Of a range of bytes, those that recovery has not overwritten.
    pub fn open_bytes(&self, from: usize, to: usize) -> ByteSet {
        ByteSet::range(from, to.min(self.bytes_each)).without(self.knowledge.overwritten)
    }

    /// What a load of these bytes can observe. One class, or none if nothing is possible: it tells
    /// nothing new.
    pub fn classes<const MAX: usize>(
        &self,
        from: usize,
        to: usize,
    ) -> Result<Classes<MAX>, TooMany> {
        let bytes = self.open_bytes(from, to);
        let mut classes = Classes {
            firsts: [0; MAX],
            len: 0,
        };
        for number in self.possible() {
            let is_known = classes
                .firsts()
                .iter()
                .any(|first| self.agree(*first as usize, number, &bytes));
            if is_known {
                continue;
            }
            let Some(place) = classes.firsts.get_mut(classes.len) else {
                return Err(TooMany);
            };
            *place = u32::try_from(number).unwrap_or(u32::MAX);
            classes.len += 1;
            if bytes.is_empty() {
                break;
            }
        }
        Ok(classes)
    }

    /// The load of these bytes has observed what `content` has there: rules out what disagrees.
    pub fn observe(&mut self, from: usize, to: usize, content: usize) {
        let bytes = self.open_bytes(from, to);
        for number in 0..self.content_count() {
            if !self.agree(content, number, &bytes) {
                self.knowledge.possible[number / 64] &= !(1 << (number % 64));
            }
        }
    }

    /// Recovery has stored to these bytes.
    pub fn overwrite(&mut self, from: usize, to: usize) {
        self.knowledge
            .overwritten
            .insert(from, to.min(self.bytes_each));
    }

    /// Whether nothing is left to observe: all that is possible agrees on all that is not overwritten.
    pub fn is_closed(&self) -> bool {
        let bytes = self.open_bytes(0, self.bytes_each);
        let mut possible = self.possible();
        let Some(first) = possible.next() else {
            return true;
        };
        bytes.is_empty() || possible.all(|other| self.agree(first, other, &bytes))
    }

    /// The newest content that is possible, for what memory is to hold until more is known.
    pub fn newest_possible(&self) -> Option<usize> {
        self.possible().next()
    }

    /// Puts a content into the memory of the line, except where recovery has overwritten it.
    ///
    /// # Panics
    /// If `memory` is not as long as the line.
    pub fn fill(&self, content: usize, memory: &mut [u8]) {
        assert_eq!(memory.len(), self.bytes_each);
        let source = self.content(content);
        for at in 0..self.bytes_each {
            if !self.knowledge.overwritten.contains(at) {
                memory[at] = source[at];
            }
        }
    }

    fn agree(&self, one: usize, other: usize, bytes: &ByteSet) -> bool {
        if one == other {
            return true;
        }
        bytes.agree(self.content(one), self.content(other))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    const BYTES: usize = 8;

    fn with_line(contents: &[[u8; BYTES]], test: impl FnOnce(&mut Line<'_>)) {
        let flat: Vec<u8> = contents.iter().flatten().copied().collect();
        let mut possible = [0; 2];
        let mut overwritten = ByteSet::EMPTY;
        let mut line = Line::new(
            &flat,
            BYTES,
            Knowledge {
                possible: &mut possible,
                overwritten: &mut overwritten,
            },
        );
        line.forget();
        test(&mut line);
    }

    const THREE: [[u8; BYTES]; 3] = [
        [2, 2, 0, 0, 7, 0, 0, 0],
        [2, 0, 0, 0, 7, 0, 0, 0],
        [0, 0, 0, 0, 7, 0, 0, 0],
    ];

    #[test]
    fn contents_that_agree_stay_together() {
        with_line(&THREE, |line| {
            assert_eq!(line.classes::<4>(4, 8).unwrap().firsts(), [0]);
            assert_eq!(line.classes::<4>(0, 1).unwrap().firsts(), [0, 2]);
            line.observe(0, 1, 0);
            assert!(line.possible().eq([0, 1]));
            assert!(!line.is_closed());
            assert_eq!(line.classes::<4>(0, 8).unwrap().firsts(), [0, 1]);
            line.observe(0, 8, 1);
            assert!(line.possible().eq([1]));
            assert!(line.is_closed());
        });
    }

    #[test]
    fn overwritten_bytes_cannot_be_observed() {
        with_line(&THREE, |line| {
            line.overwrite(0, 1);
            assert_eq!(line.classes::<4>(0, 1).unwrap().firsts(), [0]);
            assert_eq!(line.classes::<4>(0, 2).unwrap().firsts(), [0, 1]);
            line.overwrite(1, 2);
            assert!(line.is_closed());
            let mut memory = [9; BYTES];
            line.fill(2, &mut memory);
            assert_eq!(memory, [9, 9, 0, 0, 7, 0, 0, 0]);
        });
    }

    #[test]
    fn more_values_than_allowed_are_said_to_be() {
        with_line(&THREE, |line| {
            assert_eq!(line.classes::<2>(0, 8), Err(TooMany));
            assert!(line.classes::<3>(0, 8).is_ok());
        });
    }
}
