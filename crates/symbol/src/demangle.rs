//! Names of functions as they were written, in Rust and in C++.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Longer names do not help a reader, and a few bytes of a mangled name can stand for gigabytes.
const MAX_NAME_BYTES: usize = 64 << 10;

/// The name that a symbol stands for: the symbol itself if it is not mangled, nothing if it is absurdly
/// long or empty.
pub(crate) fn demangle(symbol: &[u8]) -> Option<String> {
    if symbol.is_empty() || symbol.len() > MAX_NAME_BYTES {
        return None;
    }
    let name = String::from_utf8_lossy(symbol);
    Some(
        rust(&name)
            .or_else(|| cpp(symbol))
            .unwrap_or_else(|| name.into_owned()),
    )
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut text = BoundedText::default();
    // The alternate form leaves out the hash.
    write!(text, "{demangled:#}").ok()?;
    Some(text.0)
}

fn cpp(symbol: &[u8]) -> Option<String> {
    // The demangler also takes bare types: without this, a function `i` would be called `int`.
    if !symbol.starts_with(b"_Z") {
        return None;
    }
    let parsed = Symbol::new(symbol).ok()?;
    let mut text = BoundedText::default();
    // Parameters tell overloads apart; the type of the result does not.
    let options = DemangleOptions::new().no_return_type();
    parsed.structured_demangle(&mut text, &options).ok()?;
    Some(text.0)
}

/// Text that refuses to become too long.
#[derive(Default)]
struct BoundedText(String);

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::demangle;

    #[test]
    fn names_of_each_language_are_as_they_were_written() {
        let cases = [
            ("insert", "insert"),
            ("i", "i"),
            ("insert.part.0", "insert.part.0"),
            ("_ZN4Tree6insertEi", "Tree::insert(int)"),
            ("_ZN4TreeC4Ev", "Tree::Tree()"),
            ("_Z5twiceIiET_S0_", "twice<int>(int)"),
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Znonsense", "_Znonsense"),
        ];
        for (symbol, name) in cases {
            assert_eq!(demangle(symbol.as_bytes()).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_name_that_would_fill_the_memory_stays_mangled() {
        // Each parameter is a pair of the one before it, twice: the text doubles with each.
        let doubled = |times: &str| {
            let mut symbol = String::from("_Z1f1X4PairIS_S_E");
            for digit in times.chars() {
                let _ = write!(symbol, "S0_IS{digit}_S{digit}_E");
            }
            symbol
        };
        assert_eq!(
            demangle(doubled("1").as_bytes()).as_deref(),
            Some("f(X, Pair<X, X>, Pair<Pair<X, X>, Pair<X, X> >)")
        );
        let symbol = doubled("123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        assert_eq!(demangle(symbol.as_bytes()), Some(symbol));
    }

    #[test]
    fn what_is_no_name_has_no_name() {
        assert_eq!(demangle(b""), None);
        assert_eq!(demangle(&vec![b'a'; 1 << 20]), None);
        assert_eq!(demangle(b"\xff\xfe").as_deref(), Some("\u{fffd}\u{fffd}"));
    }
}
