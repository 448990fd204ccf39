//! Dictionaries in AFL's format: a word on each line, `name="value"`, `name@level="value"` or `"value"`.

use thiserror::Error;

/// A line of a dictionary is wrong.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {message}")]
pub struct DictionaryError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: &'static str,
}

/// The words of a dictionary.
///
/// # Errors
/// A line is not an entry.
pub fn dictionary(text: &str) -> Result<Vec<Vec<u8>>, DictionaryError> {
    let mut words = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let error = |message| DictionaryError {
            line: at + 1,
            message,
        };
        let start = line
            .find('"')
            .ok_or(error("an entry is a word in quotes: name=\"value\""))?;
        let name = line[..start].trim_end();
        if !name.is_empty() && !name.ends_with('=') {
            return Err(error("between a name and its word is '='"));
        }
        let quoted = line[start + 1..]
            .strip_suffix('"')
            .ok_or(error("the word has no closing quote"))?;
        let word = unescape(quoted).map_err(error)?;
        if word.is_empty() {
            return Err(error("the word is empty"));
        }
        words.push(word);
    }
    Ok(words)
}

fn unescape(quoted: &str) -> Result<Vec<u8>, &'static str> {
    let mut word = Vec::with_capacity(quoted.len());
    let mut rest = quoted.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => return Err("a quote within a word is written \\\""),
            b'\\' => match rest.next() {
                Some(same @ (b'\\' | b'"')) => word.push(same),
                Some(b'n') => word.push(b'\n'),
                Some(b't') => word.push(b'\t'),
                Some(b'r') => word.push(b'\r'),
                Some(b'x') => {
                    let digits = [rest.next(), rest.next()].map(Option::unwrap_or_default);
                    let text = std::str::from_utf8(&digits).unwrap_or_default();
                    let all = digits.iter().all(u8::is_ascii_hexdigit);
                    let value = u8::from_str_radix(text, 16).ok().filter(|_| all);
                    word.push(value.ok_or("\\x needs two hexadecimal digits")?);
                }
                _ => return Err("there are the escapes \\\\ \\\" \\n \\t \\r and \\x00"),
            },
            _ => word.push(byte),
        }
    }
    Ok(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_and_without_names() {
        let text = "# words\n\nput=\"put \"\nlevel@2 = \"a\\x00\\\\\\\"\"\n  \"plain\"  \n";
        let expected: Vec<Vec<u8>> = vec![b"put ".to_vec(), b"a\0\\\"".to_vec(), b"plain".to_vec()];
        assert_eq!(dictionary(text), Ok(expected));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("put", 1),
            ("\"a\"\nput=\"b", 2),
            ("a \"b\"", 1),
            ("\"\"", 1),
            ("\n\"\\xg0\"", 2),
            ("\"a\"b\"", 1),
        ] {
            assert_eq!(
                dictionary(text).map_err(|error| error.line),
                Err(line),
                "{text}"
            );
        }
    }
}
