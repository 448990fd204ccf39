//! What the choices of an execution have ruled out.
//!
//! An execution says at which loads it chose, and what. A content stays possible if it agrees with
//! every choice on the bytes that the load could still observe: those that recovery had not overwritten.
//! Loads that could observe one value only rule out nothing, and are not in the list.

use powerfail_model::{CrashState, EventIndex};
use powerfail_protocol::explore::Choice;
use powerfail_protocol::observe::ByteSet;
use rustc_hash::FxHashMap;

use crate::lazy::robust::ReadLine;
use crate::lazy::table::{Content, CrashTable};

/// A load that could observe several values, as far as it matters to what is possible afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The line, by its place in the table.
    pub line: usize,
    /// The bytes of it that told the values apart.
    pub bytes: ByteSet,
    /// A content that has the value, by its place among those of the line.
    pub content: usize,
}

impl From<&Choice> for Observed {
    fn from(choice: &Choice) -> Self {
        Self {
            line: choice.line as usize,
            bytes: ByteSet::from_words(choice.observed),
            content: choice.content as usize,
        }
    }
}

/// A choice that contradicts the table or the choices before it: the report of the execution is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// Which of the choices.
    pub choice: usize,
}

/// What is known of the lines of a table in the course of an execution.
#[derive(Clone, Debug)]
pub struct Seen<'t> {
    table: &'t CrashTable,
    /// By place in the table, for the lines of which anything was observed.
    known: FxHashMap<usize, KnownLine>,
    choices: usize,
}

#[derive(Clone, Debug)]
struct KnownLine {
    /// In ascending order, so the newest first.
    possible: Vec<usize>,
    bytes: ByteSet,
}

impl<'t> Seen<'t> {
    /// Nothing was observed yet.
    pub fn nothing(table: &'t CrashTable) -> Self {
        Self {
            table,
            known: FxHashMap::default(),
            choices: 0,
        }
    }

    /// What is known after these choices.
    pub fn of(
        table: &'t CrashTable,
        choices: impl IntoIterator<Item = Observed>,
    ) -> Result<Self, Impossible> {
        let mut seen = Self::nothing(table);
        for choice in choices {
            seen.observe(&choice)?;
        }
        Ok(seen)
    }

    /// What is known after these choices, as the runtime reports them.
    pub fn of_choices(table: &'t CrashTable, choices: &[Choice]) -> Result<Self, Impossible> {
        Self::of(table, choices.iter().map(Observed::from))
    }

    /// Another choice was made.
    pub fn observe(&mut self, observed: &Observed) -> Result<(), Impossible> {
        let impossible = Impossible {
            choice: self.choices,
        };
        let line = self.table.lines.get(observed.line).ok_or(impossible)?;
        let chosen = line.contents.get(observed.content).ok_or(impossible)?;
        let known = self
            .known
            .entry(observed.line)
            .or_insert_with(|| KnownLine {
                possible: (0..line.contents.len()).collect(),
                bytes: ByteSet::EMPTY,
            });
        if known.possible.binary_search(&observed.content).is_err() {
            return Err(impossible);
        }
        let whole = ByteSet::range(0, self.table.line_bytes);
        if !observed.bytes.without(&whole).is_empty() {
            return Err(impossible);
        }
        known.possible.retain(|&content| {
            let bytes = &line.contents[content].bytes;
            observed.bytes.agree(bytes, &chosen.bytes)
        });
        known.bytes = known.bytes.union(&observed.bytes);
        self.choices += 1;
        Ok(())
    }

    /// The table.
    pub const fn table(&self) -> &'t CrashTable {
        self.table
    }

    /// The lines that were chosen from, by their places in the table, in ascending order.
    pub fn observed_lines(&self) -> Vec<usize> {
        let mut lines: Vec<usize> = self.known.keys().copied().collect();
        lines.sort_unstable();
        lines
    }

    /// The bytes of a line that choices have observed.
    pub fn observed_bytes(&self, line: usize) -> ByteSet {
        self.known
            .get(&line)
            .map_or(ByteSet::EMPTY, |known| known.bytes)
    }

    /// The contents that are still possible for a line, the newest first.
    pub fn possible(&self, line: usize) -> Vec<usize> {
        match self.known.get(&line) {
            Some(known) => known.possible.clone(),
            None => (0..self.table.lines[line].contents.len()).collect(),
        }
    }

    /// The newest content that is still possible for a line.
    pub fn newest(&self, line: usize) -> usize {
        self.known.get(&line).map_or(0, |known| known.possible[0])
    }

    /// The oldest content that is still possible for a line.
    pub fn oldest(&self, line: usize) -> usize {
        self.known
            .get(&line)
            .and_then(|known| known.possible.last().copied())
            .unwrap_or(self.table.lines[line].contents.len() - 1)
    }

    /// A crash state that shows recovery what it saw, everything as new as it can be. For a table of
    /// the recorded run: names the lines that do not hold their newest version.
    pub fn newest_state(&self) -> CrashState {
        let mut lines = self.observed_lines();
        lines.retain(|line| self.newest(*line) != 0);
        self.state(
            lines.into_iter().map(|line| (line, self.newest(line))),
            Content::newest_version,
        )
    }

    /// A crash state that shows recovery what it saw, everything as old as it can be: what was not read
    /// is lost.
    pub fn oldest_state(&self) -> CrashState {
        let lines = 0..self.table.lines.len();
        self.state(
            lines.map(|line| (line, self.oldest(line))),
            Content::oldest_version,
        )
    }

    /// A crash state in which some lines, by their places in the table, hold the given contents, and
    /// all others are as new as they can be.
    pub fn state_with(&self, chosen: &[(usize, usize)]) -> CrashState {
        let mut lines: Vec<(usize, usize)> = chosen.to_vec();
        let others = self.known.keys().map(|&line| (line, self.newest(line)));
        lines.extend(others.filter(|(line, _)| chosen.iter().all(|(named, _)| named != line)));
        lines.retain(|(_, content)| *content != 0);
        lines.sort_unstable();
        self.state(lines.into_iter(), Content::newest_version)
    }

    fn state(
        &self,
        lines: impl Iterator<Item = (usize, usize)>,
        version: fn(&Content) -> usize,
    ) -> CrashState {
        let named = lines.map(|(line, content)| {
            let line = &self.table.lines[line];
            (line.id, version(&line.contents[content]))
        });
        CrashState {
            versions: named.collect(),
        }
    }

    /// All crash states of different content that show recovery what it saw, with the newest first. Each
    /// names all lines of the table.
    pub fn states(&self) -> SeenStates<'_> {
        let lines = 0..self.table.lines.len();
        let possible: Vec<Vec<usize>> = lines.map(|line| self.possible(line)).collect();
        SeenStates {
            table: self.table,
            wheels: Some(vec![0; possible.len()]),
            possible,
        }
    }

    /// The lines that were chosen from, for [`robust`](crate::lazy::robust), in a table of the recorded run
    /// whose power failed before event `crash`. Takes a durable floor as if it had always been there; a
    /// [`History`](crate::lazy::History) knows since when it was.
    pub fn read_lines(&self, crash: EventIndex) -> Vec<ReadLine> {
        let lines = self.observed_lines().into_iter().map(|number| {
            let line = &self.table.lines[number];
            ReadLine::open(line, self.possible(number), None, crash)
        });
        lines.collect()
    }

    /// The decimal logarithm of the number of [`Self::states`].
    #[allow(
        clippy::cast_precision_loss,
        reason = "a logarithm needs no more than 52 bits"
    )]
    pub fn log10_states(&self) -> f64 {
        let contents = (0..self.table.lines.len()).map(|line| match self.known.get(&line) {
            Some(known) => known.possible.len(),
            None => self.table.lines[line].contents.len(),
        });
        contents.map(|count| (count as f64).log10()).sum()
    }
}

/// See [`Seen::states`]. Counts like an odometer, the first line fastest.
#[derive(Clone, Debug)]
pub struct SeenStates<'t> {
    table: &'t CrashTable,
    possible: Vec<Vec<usize>>,
    wheels: Option<Vec<usize>>,
}

impl Iterator for SeenStates<'_> {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        let wheels = self.wheels.as_mut()?;
        let lines = self
            .table
            .lines
            .iter()
            .zip(&self.possible)
            .zip(wheels.iter());
        let versions = lines
            .map(|((line, possible), &wheel)| {
                let content = &line.contents[possible[wheel]];
                (line.id, content.newest_version())
            })
            .collect();
        let mut turned = false;
        for (wheel, possible) in wheels.iter_mut().zip(&self.possible) {
            *wheel += 1;
            if *wheel < possible.len() {
                turned = true;
                break;
            }
            *wheel = 0;
        }
        if !turned {
            self.wheels = None;
        }
        Some(CrashState { versions })
    }
}

#[cfg(test)]
mod tests {
    use powerfail_model::{LineId, LineIndex};

    use super::*;
    use crate::lazy::table::CrashLine;

    const BYTES: usize = 64;

    /// Three contents: 7 7, 7 0 and 0 0; the versions of the second one surround that of the first.
    fn table() -> CrashTable {
        let content = |bytes: [u8; 2], versions: &[usize]| {
            let mut line = vec![0; BYTES];
            line[..2].copy_from_slice(&bytes);
            Content {
                bytes: line,
                versions: versions.to_vec(),
            }
        };
        let line = |number| CrashLine {
            id: LineId {
                line: LineIndex(number),
                ..LineId::default()
            },
            contents: vec![
                content([7, 7], &[2, 4]),
                content([7, 0], &[1, 3]),
                content([0, 0], &[0]),
            ],
            ..CrashLine::default()
        };
        CrashTable {
            line_bytes: BYTES,
            lines: vec![line(0), line(1)],
            ..CrashTable::default()
        }
    }

    fn observed(line: usize, at: usize, content: usize) -> Observed {
        Observed {
            line,
            bytes: ByteSet::range(at, at + 1),
            content,
        }
    }

    fn versions(state: &CrashState) -> Vec<(u64, usize)> {
        let versions = state.versions.iter();
        versions
            .map(|(id, version)| (id.line.0, *version))
            .collect()
    }

    #[test]
    fn what_agrees_stays_possible_and_states_show_it() {
        let table = table();
        let mut seen = Seen::nothing(&table);
        assert!(versions(&seen.newest_state()).is_empty());
        assert_eq!(versions(&seen.oldest_state()), [(0, 0), (1, 0)]);
        seen.observe(&observed(0, 0, 0)).unwrap();
        assert_eq!(seen.possible(0), [0, 1]);
        assert_eq!(versions(&seen.oldest_state()), [(0, 1), (1, 0)]);
        seen.observe(&observed(0, 1, 1)).unwrap();
        assert_eq!(seen.possible(0), [1]);
        assert_eq!(versions(&seen.newest_state()), [(0, 3)]);
        assert_eq!(versions(&seen.state_with(&[(1, 2)])), [(0, 3), (1, 0)]);
        assert_eq!(seen.states().count(), 3);
        assert_eq!(seen.observed_lines(), [0]);
        assert!(seen.observed_bytes(0).iter().eq([0, 1]));
    }

    #[test]
    fn choices_that_cannot_be_are_refused() {
        let table = table();
        let of = |choices: &[Observed]| Seen::of(&table, choices.iter().copied()).err();
        let impossible = |choice| Some(Impossible { choice });
        assert_eq!(of(&[observed(2, 0, 0)]), impossible(0));
        assert_eq!(of(&[observed(0, 0, 3)]), impossible(0));
        assert_eq!(of(&[observed(0, 64, 0)]), impossible(0));
        assert_eq!(of(&[observed(0, 0, 2), observed(0, 1, 1)]), impossible(1));
        assert_eq!(of(&[observed(0, 0, 1), observed(0, 1, 1)]), None);
    }

    #[test]
    fn a_choice_of_the_runtime_is_taken_with_its_bytes() {
        let mut choice = Choice {
            line: 1,
            from: 0,
            to: 2,
            content: 1,
            ..Choice::default()
        };
        // Recovery had overwritten the first byte.
        choice.observed[0] = 0b10;
        let table = table();
        let seen = Seen::of_choices(&table, &[choice]).unwrap();
        assert_eq!(seen.possible(1), [1, 2]);
    }
}
