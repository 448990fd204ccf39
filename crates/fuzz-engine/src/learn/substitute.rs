//! Inputs with what the program wants to see in the place that it looked at. The place is found by content: what the
//! program looked at occurs in the input.
//!
//! A program that changes its input before it looks at it, for example to lower case, is not understood here.

use super::observation::{Observation, ObservedKind, find, string_of};

/// Inputs to try after an observation.
pub(super) fn substitutions(input: &[u8], observation: &Observation) -> Vec<Vec<u8>> {
    let (text, other) = (string_of(&observation.text), string_of(&observation.other));
    match observation.kind {
        ObservedKind::Compared => {
            let (left, right) = (&observation.text[..], &observation.other[..]);
            // Bytes in memory may contain zeros; of strings, nothing is noted from the first one on.
            let pairs = [(left, right), (right, left)];
            let replaced = pairs.map(|(mine, theirs)| replace(input, mine, theirs));
            replaced.into_iter().flatten().collect()
        }
        ObservedKind::Sought => {
            let Some(at) = find(input, text).filter(|_| find(input, other).is_none()) else {
                return Vec::new();
            };
            vec![spliced(input, at, word_len(text), other)]
        }
        ObservedKind::Split => split_at(input, text, other),
        ObservedKind::Number => {
            let space = text.len() - text.trim_ascii_start().len();
            let is_number = text[space..].first().is_none_or(u8::is_ascii_digit);
            match find(input, text).filter(|_| !is_number) {
                Some(at) => vec![spliced(input, at + space, word_len(&text[space..]), b"1")],
                None => Vec::new(),
            }
        }
        // A format is a template, and options are words.
        ObservedKind::Scanned | ObservedKind::Options => Vec::new(),
    }
}

/// The other operand in the place of mine. Nothing if the input has the other one, too: then both come from it.
fn replace(input: &[u8], mine: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    if theirs.is_empty() || find(input, theirs).is_some() {
        return None;
    }
    let at = find(input, mine)?;
    Some(spliced(input, at, mine.len(), theirs))
}

fn spliced(input: &[u8], at: usize, len: usize, new: &[u8]) -> Vec<u8> {
    [&input[..at], new, &input[at + len..]].concat()
}

/// The length of the first word of a text.
fn word_len(text: &[u8]) -> usize {
    let end = text.iter().position(u8::is_ascii_whitespace);
    end.unwrap_or(text.len())
}

/// The line that was split, with a delimiter instead of all spaces, and of all but the first.
fn split_at(input: &[u8], text: &[u8], delimiters: &[u8]) -> Vec<Vec<u8>> {
    let Some(delimiter) = separator_of(delimiters) else {
        return Vec::new();
    };
    // Without a text, the one before is split further: that is the last line.
    let line = input.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
    let text = match (text, line) {
        (b"", Some(line)) => line,
        (text, _) => text.split(|byte| *byte == b'\n').next().unwrap_or(text),
    };
    let Some(at) = find(input, text).filter(|_| !text.contains(&delimiter)) else {
        return Vec::new();
    };
    let spaces = |kept: usize| {
        let mut seen = 0;
        let changed = text.iter().map(|byte| {
            seen += usize::from(*byte == b' ');
            let is_changed = *byte == b' ' && seen > kept;
            if is_changed { delimiter } else { *byte }
        });
        changed.collect::<Vec<u8>>()
    };
    let changed = [spaces(0), spaces(1)].into_iter().filter(|it| it != text);
    changed
        .map(|changed| spliced(input, at, text.len(), &changed))
        .collect()
}

/// The delimiter that separates words, if spaces do not.
pub(super) fn separator_of(delimiters: &[u8]) -> Option<u8> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    if delimiters.iter().any(is_space) {
        return None;
    }
    let separates = |byte: &&u8| byte.is_ascii_punctuation();
    delimiters.iter().find(separates).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(input: &str, kind: ObservedKind, text: &str, other: &str) -> Vec<String> {
        let observation = Observation {
            kind,
            text: text.into(),
            other: other.into(),
        };
        let inputs = substitutions(input.as_bytes(), &observation).into_iter();
        inputs
            .map(|input| String::from_utf8(input).unwrap())
            .collect()
    }

    #[test]
    fn the_place_is_found_by_content() {
        use ObservedKind::{Compared, Number, Sought};
        assert_eq!(after("a zq b\n", Compared, "zq", "put"), ["a put b\n"]);
        assert_eq!(after("a zq b\n", Compared, "put", "zq"), ["a put b\n"]);
        assert_eq!(after("a zq\n", Number, " zq\n", ""), ["a 1\n"]);
        assert_eq!(after("a zq c\n", Sought, "zq c\n", "key="), ["a key= c\n"]);
        for (text, other) in [("other", "put"), ("zq", "a"), ("zq", ""), ("", "put")] {
            assert!(
                after("a zq b\n", Compared, text, other).is_empty(),
                "{text} {other}"
            );
        }
        assert!(after("a 12\n", Number, "12\n", "").is_empty());
    }

    #[test]
    fn delimiters_replace_spaces() {
        use ObservedKind::Split;
        assert_eq!(
            after("x\na b c\n", Split, "a b c\n", ",\n"),
            ["x\na,b,c\n", "x\na b,c\n"]
        );
        assert_eq!(
            after("x\na b c\n", Split, "", "|"),
            ["x\na|b|c\n", "x\na b|c\n"]
        );
        assert!(after("a b\n", Split, "a b\n", " \n").is_empty());
        assert!(after("a,b c\n", Split, "a,b c\n", ",").is_empty());
    }
}
