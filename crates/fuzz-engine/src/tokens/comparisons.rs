//! Words from comparisons that a program did with its input.

/// Longer operands are contents, not words.
const LONGEST: usize = 64;

/// The operands of comparisons that are not from the input itself: what the program looked for in it.
pub fn of_comparisons<'a>(
    operands: impl IntoIterator<Item = &'a [u8]>,
    input: &[u8],
) -> impl Iterator<Item = Vec<u8>> {
    operands.into_iter().filter_map(move |operand| {
        let end = operand.iter().rposition(|byte| *byte != 0)? + 1;
        let word = &operand[..end];
        let is_input = input.windows(word.len()).any(|part| part == word);
        (word.len() <= LONGEST && !is_input).then(|| word.to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_the_input_is_no_news() {
        let operands: [&[u8]; 5] = [b"put\0\0", b"pxt", b"", b"\0", &[b'a'; 65]];
        let words: Vec<_> = of_comparisons(operands, b"pxt 1\n").collect();
        assert_eq!(words, [b"put"]);
    }
}
