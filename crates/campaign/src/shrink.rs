//! Makes an input smaller as long as it stays good for something.
//!
//! Delta debugging (Zeller and Hildebrandt) on lines, and then on bytes of what is left: parts are left out,
//! halves first. Lines first, because inputs are commands more often than not.

/// The smallest input that was found for which `is_good` is true. It is not asked about the input itself.
pub(crate) fn shrink<E>(
    input: Vec<u8>,
    mut is_good: impl FnMut(&[u8]) -> Result<bool, E>,
) -> Result<Vec<u8>, E> {
    if input.is_empty() || is_good(b"")? {
        return Ok(Vec::new());
    }
    let lines: Vec<Vec<u8>> = input
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let lines = without_parts(lines, &mut |lines| is_good(&lines.concat()))?;
    let bytes = lines.concat();
    without_parts(bytes, &mut |bytes| is_good(bytes))
}

/// Leaves out parts, from halves to single ones.
fn without_parts<T: Clone, E>(
    mut items: Vec<T>,
    is_good: &mut dyn FnMut(&[T]) -> Result<bool, E>,
) -> Result<Vec<T>, E> {
    let mut size = items.len().div_ceil(2);
    while size > 0 && items.len() > 1 {
        let mut at = 0;
        while at < items.len() {
            let end = (at + size).min(items.len());
            let rest = [&items[..at], &items[end..]].concat();
            if !rest.is_empty() && is_good(&rest)? {
                items = rest;
            } else {
                at = end;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::shrink;

    #[test]
    fn what_matters_is_left() {
        let matters = |input: &[u8]| {
            let has = |text: &[u8]| input.windows(text.len()).any(|part| part == text);
            Ok::<bool, Infallible>(has(b"put a") && has(b"del a"))
        };
        let input = b"get x\nput a 1\nput b 2\nget b\ndel a\nquit\n".to_vec();
        let Ok(small) = shrink(input, matters);
        assert_eq!(small, b"put adel a");
        let Ok(none) = shrink(b"a\nb\n".to_vec(), |_| Ok::<bool, Infallible>(true));
        assert!(none.is_empty());
        let Ok(all) = shrink(b"ab".to_vec(), |it| Ok::<bool, Infallible>(it == b"ab"));
        assert_eq!(all, b"ab");
    }
}
