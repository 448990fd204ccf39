//! Makes an input as small as possible while it keeps an effect.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::reduce::{lines_of, reduce};
use super::trials::{Judge, Trials};
use super::words::{Words, number};

/// The result of minimising an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minimised {
    /// The smallest input with the effect that was found.
    pub input: Vec<u8>,
    /// Whether nothing more can be removed or simplified. If not, the judge or the limit has stopped the search.
    pub is_minimal: bool,
}

/// Makes an input smaller while `judge` says that it keeps its effect. `judge` is never asked about the input itself. Each
/// input that it accepts is smaller than, or as long and simpler than, those that it accepted before.
///
/// Commands come first: lines are removed, many at a time. Then arguments are removed, numbers are replaced by small
/// ones and words are shortened, each at all of its places at the same time, because an argument often names what another
/// line has made. What is not text is also shortened by single bytes.
pub fn minimise(input: &[u8], trials: &mut Trials, judge: &mut Judge<'_>) -> Minimised {
    let mut search = Search {
        best: input.to_vec(),
        trials,
        judge,
    };
    let is_minimal = search.run().is_continue();
    Minimised {
        input: search.best,
        is_minimal,
    }
}

/// The same, with lines only.
pub fn minimise_lines(input: &[u8], trials: &mut Trials, judge: &mut Judge<'_>) -> Minimised {
    let mut search = Search {
        best: input.to_vec(),
        trials,
        judge,
    };
    let is_minimal = search.lines().is_continue();
    Minimised {
        input: search.best,
        is_minimal,
    }
}

struct Search<'s, 'j> {
    best: Vec<u8>,
    trials: &'s mut Trials,
    judge: &'s mut Judge<'j>,
}

impl Search<'_, '_> {
    fn run(&mut self) -> ControlFlow<()> {
        loop {
            let before = self.best.clone();
            self.lines()?;
            self.arguments()?;
            self.numbers()?;
            self.shorter_words()?;
            if !is_text(&self.best) {
                self.bytes()?;
            }
            if self.best == before {
                return ControlFlow::Continue(());
            }
        }
    }

    /// Accepts another input if it keeps the effect.
    fn accept(&mut self, input: Vec<u8>) -> ControlFlow<(), bool> {
        if input == self.best {
            return ControlFlow::Continue(false);
        }
        let is_accepted = self.trials.ask(&input, self.judge)?;
        if is_accepted {
            self.best = input;
        }
        ControlFlow::Continue(is_accepted)
    }

    fn lines(&mut self) -> ControlFlow<()> {
        let input = self.best.clone();
        let mut lines = lines_of(&input);
        reduce(&mut lines, &mut |rest| self.accept(rest.concat()))
    }

    fn bytes(&mut self) -> ControlFlow<()> {
        let mut bytes = self.best.clone();
        reduce(&mut bytes, &mut |rest| self.accept(rest.to_vec()))
    }

    /// Removes words: first the same argument of all lines of a kind, then words of single lines.
    fn arguments(&mut self) -> ControlFlow<()> {
        self.accept(Words::read(&self.best).tidied().bytes())?;
        for (command, len) in Words::read(&self.best).kinds() {
            for place in (1..len).rev() {
                let without = Words::read(&self.best).without(&command, len, place);
                if self.accept(without.bytes())? {
                    // These lines are of another kind now.
                    break;
                }
            }
        }
        for line in 0..Words::read(&self.best).0.len() {
            let all = Words::read(&self.best);
            let mut words = all.0[line].words.clone();
            reduce(&mut words, &mut |rest| {
                let mut new = all.clone();
                new.0[line].words = rest.to_vec();
                self.accept(new.bytes())
            })?;
        }
        ControlFlow::Continue(())
    }

    /// Replaces numbers by smaller ones: all by their ranks, which keeps their order, then each by itself.
    fn numbers(&mut self) -> ControlFlow<()> {
        let words = Words::read(&self.best);
        let numbers = words.numbers();
        let first = u64::from(numbers.first() != Some(&0));
        let ranks: BTreeMap<u64, u64> = numbers.into_iter().zip(first..).collect();
        self.accept(words.renumbered(|it| ranks.get(&it).copied()).bytes())?;
        for old in Words::read(&self.best).numbers() {
            self.number(old)?;
        }
        ControlFlow::Continue(())
    }

    /// Replaces one number, at all places, by 1, by one that is not in use, or by halves.
    fn number(&mut self, old: u64) -> ControlFlow<()> {
        let words = Words::read(&self.best);
        let used = words.numbers();
        let unused = (1..old).find(|it| !used.contains(it));
        for new in [1].into_iter().filter(|_| old > 1).chain(unused) {
            let renumbered = words.renumbered(|it| (it == old).then_some(new));
            if self.accept(renumbered.bytes())? {
                return ControlFlow::Continue(());
            }
        }
        let (mut from, mut to) = (1, old);
        while from < to {
            let half = from + (to - from) / 2;
            let words = Words::read(&self.best);
            let renumbered = words.renumbered(|it| (it == to).then_some(half));
            if self.accept(renumbered.bytes())? {
                to = half;
            } else {
                from = half + 1;
            }
        }
        ControlFlow::Continue(())
    }

    /// Shortens words that are not numbers, each at all places.
    fn shorter_words(&mut self) -> ControlFlow<()> {
        for word in Words::read(&self.best).distinct() {
            if number(&word).is_some() {
                continue;
            }
            let words = Words::read(&self.best);
            let mut letters = word.clone();
            reduce(&mut letters, &mut |rest| {
                if rest.is_empty() {
                    // That would leave its white space behind.
                    return ControlFlow::Continue(false);
                }
                let new = words.replaced(|it| (it == word).then(|| rest.to_vec()));
                self.accept(new.bytes())
            })?;
        }
        ControlFlow::Continue(())
    }
}

/// Whether an input is made of readable characters.
fn is_text(input: &[u8]) -> bool {
    let text = std::str::from_utf8(input);
    let is_readable = |it: char| !it.is_control() || matches!(it, '\n' | '\t' | '\r');
    text.is_ok_and(|text| text.chars().all(is_readable))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result as text, and the number of trials.
    fn minimised(input: &[u8], mut keep: impl FnMut(&str) -> bool) -> (String, u64) {
        let mut trials = Trials::at_most(10_000);
        let result = minimise(input, &mut trials, &mut |input| {
            ControlFlow::Continue(keep(&String::from_utf8_lossy(input)))
        });
        assert!(result.is_minimal);
        let text = String::from_utf8_lossy(&result.input).into_owned();
        (text, trials.made())
    }

    fn lines(text: &str) -> Vec<Vec<&str>> {
        text.lines()
            .map(|line| line.split_whitespace().collect())
            .collect()
    }

    #[test]
    fn only_the_commands_that_are_needed_stay() {
        let puts: Vec<String> = (0..100)
            .map(|key| format!("put {key} value{key}\n"))
            .collect();
        let input = puts.concat() + "resize 64 now\n";
        // Nine keys that differ, and a resize to more than eight.
        let keep = |text: &str| {
            let lines = lines(text);
            let puts = lines.iter().filter(|it| it.len() == 3 && it[0] == "put");
            let keys: std::collections::BTreeSet<_> = puts.map(|it| it[1]).collect();
            let size = lines.last().filter(|it| it[..1] == ["resize"]);
            let size = size.and_then(|it| it.get(1)?.parse::<u64>().ok());
            keys.len() >= 9 && size > Some(8)
        };
        let (text, trials) = minimised(input.as_bytes(), keep);
        let words = lines(&text);
        assert_eq!(words.len(), 10, "{text}");
        assert_eq!(words[9], ["resize", "9"]);
        for (line, key) in words[..9].iter().zip(1..) {
            assert_eq!(line[..2], ["put", &key.to_string()], "{text}");
            assert_eq!(line[2].len(), 1, "{text}");
        }
        assert!(trials < 500, "{trials}");
    }

    #[test]
    fn what_names_the_same_thing_is_changed_together() {
        let keep = |text: &str| {
            let lines = lines(text);
            let [put, del] = &lines[..] else { return false };
            put.len() == 3 && put[0] == "put" && del[..] == ["del", put[1]]
        };
        let input = b"  put\tcustomer-4711   30  \r\nget 2 3\n del customer-4711\n";
        let (text, _) = minimised(input, keep);
        let [put, del] = &lines(&text)[..] else {
            panic!("{text}")
        };
        assert_eq!((put[1].len(), put[2]), (1, "1"), "{text}");
        assert_eq!(del[1], put[1], "{text}");
        assert!(text.starts_with("put ") && text.ends_with('\n'), "{text:?}");
    }

    #[test]
    fn letters_and_bytes_are_removed_where_there_are_no_words() {
        let (text, _) = minimised(b"zzzzzzzzzzaxxxxxxxbxxxxxx", |text| {
            text.contains('a') && text.contains('b')
        });
        assert_eq!(text, "ab");
        let mut trials = Trials::at_most(10_000);
        let input = [0, 1, 255, 3, b' ', 4, 254, 0, 0, 9];
        let result = minimise(&input, &mut trials, &mut |input| {
            ControlFlow::Continue(input.contains(&255) && input.contains(&254))
        });
        assert_eq!(result.input, [255, 254]);
    }

    #[test]
    fn the_best_is_kept_when_time_is_over_and_the_search_can_go_on() {
        let puts: Vec<String> = (0..200).map(|key| format!("put {key} 1\n")).collect();
        let input = puts.concat();
        let keep = |input: &[u8]| input.windows(7).any(|it| it == b"put 77 ");
        let mut trials = Trials::at_most(10_000);
        let mut left = 6;
        let first = minimise(input.as_bytes(), &mut trials, &mut |input| {
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(keep(input)),
            }
        });
        assert!(!first.is_minimal && first.input.len() < input.len() && keep(&first.input));
        let made = trials.made();
        let last = minimise(&first.input, &mut trials, &mut |input| {
            ControlFlow::Continue(keep(input))
        });
        assert!(last.is_minimal && trials.made() > made);
        assert_eq!(String::from_utf8_lossy(&last.input), "put 77 1\n");
    }

    #[test]
    fn nothing_can_be_all_that_is_needed() {
        assert_eq!(minimised(b"a\nb\n", |_| true).0, "");
        assert_eq!(minimised(b"", |_| true).0, "");
        assert_eq!(minimised(b"a\nb\n", |_| false).0, "a\nb\n");
    }
}
