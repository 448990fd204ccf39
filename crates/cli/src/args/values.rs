//! Values of flags that are written in a way of their own: sizes, ranges, kinds of events.

use powerfail_finding::Code;
use powerfail_trace::{RecordGroup, RecordKind};

/// A kind of record or a group of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindFilter {
    Kind(RecordKind),
    Group(RecordGroup),
}

impl KindFilter {
    pub(crate) fn admits(self, kind: RecordKind) -> bool {
        match self {
            Self::Kind(wanted) => wanted == kind,
            Self::Group(wanted) => wanted == kind.group(),
        }
    }
}

pub(super) fn parse_kind(text: &str) -> Result<KindFilter, String> {
    let group = RecordGroup::ALL
        .into_iter()
        .find(|group| group.name() == text);
    let kind = RecordKind::ALL.into_iter().find(|kind| kind.name() == text);
    group
        .map(KindFilter::Group)
        .or(kind.map(KindFilter::Kind))
        .ok_or_else(|| {
            let groups = RecordGroup::ALL.map(RecordGroup::name).join(", ");
            let kinds = RecordKind::ALL.map(RecordKind::name).join(", ");
            format!("no such kind of event; there are {groups}, and one by one {kinds}")
        })
}

pub(super) fn parse_code(text: &str) -> Result<Code, String> {
    let list = "`powerfail explain` lists them";
    text.parse().map_err(|error| format!("{error}; {list}"))
}

pub(super) fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let (start, end) = text
        .split_once("..")
        .ok_or("a range looks like 0x1000..0x2000")?;
    match (number(start), number(end)) {
        (Some(start), Some(end)) if start < end => Ok((start, end)),
        (Some(_), Some(_)) => Err("the range is empty".to_owned()),
        _ => Err("a range looks like 0x1000..0x2000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_decimal_or_hexadecimal() {
        assert_eq!(parse_range("64..0x80"), Ok((64, 128)));
        assert!(parse_range("1..1").is_err());
        assert!(parse_range("0x..4").is_err());
        assert!(parse_range("12").is_err());
    }

    #[test]
    fn kinds_and_groups_have_different_names() {
        assert_eq!(parse_kind("store"), Ok(KindFilter::Kind(RecordKind::Store)));
        assert_eq!(
            parse_kind("stores"),
            Ok(KindFilter::Group(RecordGroup::Stores))
        );
        assert!(parse_kind("sfences").is_err());
    }
}
