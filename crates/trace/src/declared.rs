//! What an operation leaves, by the account of the recorder: the payload of the mark at the operation's end.
//!
//! Text. The first line is [`HEAD`], the second says what is durable now, and one line for each name follows: the name, a tab,
//! and a description.

use std::collections::BTreeSet;

/// The first line.
const HEAD: &str = "powerfail content 1";
const NOTHING: &str = "nothing";
const ALL: &str = "all";
const EVERYTHING: &str = "everything";
const PATHS: &str = "paths";

/// What is promised to be durable when an operation has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Nothing new.
    Nothing,
    /// These names, as they are.
    Paths(BTreeSet<String>),
    /// All that there is: the operation was a sync.
    All,
    /// All that there is, because each operation is durable when it returns, and atomic: a crash leaves what there was before
    /// the operation in flight or what there is after it.
    Everything,
}

/// What an operation leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredContent {
    /// What is durable.
    pub durable: Durable,
    /// One line for each name: the name, a tab, a description.
    pub content: String,
}

impl DeclaredContent {
    /// As the payload of a mark.
    pub fn to_bytes(&self) -> Vec<u8> {
        let durable = match &self.durable {
            Durable::Nothing => NOTHING.to_owned(),
            Durable::All => ALL.to_owned(),
            Durable::Everything => EVERYTHING.to_owned(),
            Durable::Paths(paths) => {
                let names = paths.iter().map(String::as_str);
                let words: Vec<&str> = std::iter::once(PATHS).chain(names).collect();
                words.join("\t")
            }
        };
        format!("{HEAD}\n{durable}\n{}", self.content).into_bytes()
    }

    /// Reads a payload; nothing if it is something else.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(payload).ok()?;
        let rest = text.strip_prefix(HEAD)?.strip_prefix('\n')?;
        let (durable, content) = rest.split_once('\n')?;
        let mut words = durable.split('\t');
        let durable = match words.next()? {
            NOTHING => Durable::Nothing,
            ALL => Durable::All,
            EVERYTHING => Durable::Everything,
            PATHS => Durable::Paths(words.map(str::to_owned).collect()),
            _ => return None,
        };
        Some(Self {
            durable,
            content: content.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let paths = ["./a b", "./c"].map(str::to_owned);
        for durable in [
            Durable::Nothing,
            Durable::All,
            Durable::Everything,
            Durable::Paths(paths.into()),
        ] {
            let declared = DeclaredContent {
                durable,
                content: "./a b\tfile\n".to_owned(),
            };
            assert_eq!(DeclaredContent::parse(&declared.to_bytes()), Some(declared));
        }
        assert_eq!(DeclaredContent::parse(b"anything"), None);
        assert_eq!(DeclaredContent::parse(b"powerfail content 1\nelse\n"), None);
    }
}
