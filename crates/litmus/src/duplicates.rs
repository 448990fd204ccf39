//! Finds a member that an object names twice. JSON allows it and parsers keep the last one in
//! silence; in a litmus file it is a slip that would compare with the wrong set.

use std::collections::BTreeSet;

use crate::fields::FormatError;

/// An object or a list that is being read.
enum Level {
    /// The names so far, and the path of the member whose value comes next.
    Object(BTreeSet<String>, String),
    /// The path of the list, and the index of the value that comes next.
    List(String, usize),
}

/// Refuses duplicate names. `text` must be valid JSON.
pub(crate) fn refuse_duplicates(text: &str) -> Result<(), FormatError> {
    let bytes = text.as_bytes();
    let mut levels: Vec<Level> = Vec::new();
    let mut expects_name = false;
    let mut at = 0;
    while at < bytes.len() {
        let mut end = at + 1;
        match bytes[at] {
            b'{' => {
                levels.push(Level::Object(BTreeSet::new(), path_of_value(&levels)));
                expects_name = true;
            }
            b'[' => levels.push(Level::List(path_of_value(&levels), 0)),
            b'}' | b']' => {
                levels.pop();
                // A name follows the comma, if one does.
                expects_name = false;
            }
            b',' => match levels.last_mut() {
                Some(Level::List(_, index)) => *index += 1,
                _ => expects_name = true,
            },
            b'"' => {
                end = end_of_string(bytes, at);
                if expects_name {
                    read_name(&text[at..end], &mut levels)?;
                    expects_name = false;
                }
            }
            _ => {}
        }
        at = end;
    }
    Ok(())
}

fn read_name(quoted: &str, levels: &mut [Level]) -> Result<(), FormatError> {
    let name: String = serde_json::from_str(quoted).map_err(|error| FormatError::json(&error))?;
    let Some((Level::Object(names, path), outer)) = levels.split_last_mut() else {
        return Ok(());
    };
    let parent = path_of_value(outer);
    *path = if parent.is_empty() {
        name.clone()
    } else {
        format!("{parent}.{name}")
    };
    if names.insert(name) {
        return Ok(());
    }
    Err(FormatError {
        field: path.clone(),
        problem: "is there twice".to_owned(),
    })
}

/// Where the value that comes next stands.
fn path_of_value(levels: &[Level]) -> String {
    match levels.last() {
        None => String::new(),
        Some(Level::Object(_, path)) => path.clone(),
        Some(Level::List(path, index)) => format!("{path}[{index}]"),
    }
}

/// Behind the closing quote of the string that begins at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Option<String> {
        refuse_duplicates(text).err().map(|error| error.field)
    }

    #[test]
    fn a_name_that_stands_twice_is_found_wherever_it_is() {
        assert_eq!(field(r#"{"a": 1, "b": 2, "a": 3}"#).as_deref(), Some("a"));
        assert_eq!(
            field(r#"{"a": [0, {"b": {"c": [], "d": 1, "c": 0}}]}"#).as_deref(),
            Some("a[1].b.c")
        );
        assert_eq!(field(r#"{"x": 1, "\u0078": 2}"#).as_deref(), Some("x"));
        assert_eq!(
            field(r#"{"a": {"b": 1}, "c": [2], "a": 3}"#).as_deref(),
            Some("a")
        );
    }

    #[test]
    fn the_same_name_in_different_objects_is_fine() {
        for text in [
            r#"{"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": 1}}"#,
            r#"{"a": "a", "b": "a\", \"a\": {", "c": ["a", "a"]}"#,
            "[]",
            "3",
        ] {
            assert_eq!(field(text), None, "{text}");
        }
    }
}
