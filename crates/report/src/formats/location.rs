//! Where a finding is shown: a file that the reader of the report has, and a line.

use std::path::Path;

use powerfail_finding::{Finding, SourcePlace};

/// A line of a source file.
pub(super) struct Location<'a> {
    pub(super) path: SourcePath<'a>,
    pub(super) line: u32,
    pub(super) column: Option<u32>,
}

/// A path: below the working directory as it is from there, else absolute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SourcePath<'a> {
    Relative(&'a str),
    Absolute(&'a str),
}

impl<'a> SourcePath<'a> {
    pub(super) fn new(path: &'a str, base: &Path) -> Self {
        let below = Path::new(path).strip_prefix(base).ok();
        match below.and_then(Path::to_str) {
            Some(below) if !below.is_empty() => Self::Relative(below),
            _ if path.starts_with('/') => Self::Absolute(path),
            _ => Self::Relative(path.strip_prefix("./").unwrap_or(path)),
        }
    }

    pub(super) const fn as_str(self) -> &'a str {
        match self {
            Self::Relative(path) | Self::Absolute(path) => path,
        }
    }

    /// As a URI: relative, or `file:///...`.
    pub(super) fn uri(self) -> String {
        let mut uri = match self {
            Self::Relative(_) => String::new(),
            Self::Absolute(_) => "file://".to_owned(),
        };
        for byte in self.as_str().bytes() {
            if byte.is_ascii_alphanumeric() || b"/-._~+,@=()".contains(&byte) {
                uri.push(char::from(byte));
            } else {
                uri.push('%');
                uri.push(hex_digit(byte >> 4));
                uri.push(hex_digit(byte & 15));
            }
        }
        uri
    }
}

/// A digit of a number below 16.
fn hex_digit(number: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(number & 15)])
}

/// The source line of a place, if it is known.
pub(super) fn of_place<'a>(place: &'a SourcePlace, base: &Path) -> Option<Location<'a>> {
    Some(Location {
        path: SourcePath::new(place.file.as_deref()?, base),
        line: place.line?,
        column: place.column.filter(|column| *column > 0),
    })
}

/// The first source line of a finding: that of the first place that has one.
pub(super) fn of_finding<'a>(finding: &'a Finding, base: &Path) -> Option<Location<'a>> {
    finding
        .places
        .iter()
        .find_map(|place| of_place(place, base))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::SourcePath;

    #[test]
    fn a_path_below_the_base_is_relative() {
        let base = Path::new("/home/a b/kv");
        let uri = |path| SourcePath::new(path, base).uri();
        assert_eq!(uri("/home/a b/kv/src/map 1.c"), "src/map%201.c");
        assert_eq!(uri("/usr/include/ä.h"), "file:///usr/include/%C3%A4.h");
        assert_eq!(uri("./src/map.c"), "src/map.c");
        assert_eq!(uri("/home/a b/kvx/map.c"), "file:///home/a%20b/kvx/map.c");
    }
}
