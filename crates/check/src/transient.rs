//! Data that is never made durable, summarised by the type of the object.
//!
//! An allocator in a pool may have dozens of volatile fields, and each object with virtual functions has a pointer to them:
//! each line of code that stores one would be a finding. They say one thing, so they are one finding.

use std::collections::BTreeMap;
use std::fmt;

use powerfail_finding::{Code, Finding};

/// Where the type is not known, lines of code have something in common from this number on.
const LINES_MIN: usize = 3;
/// How many of the lines are shown.
const LINES_SHOWN: usize = 8;

/// Makes one finding of all that are about transient data in objects of one type.
pub(crate) fn summarise_transient_data(findings: &mut Vec<Finding>) {
    let mut by_owner: BTreeMap<Owner, Vec<usize>> = BTreeMap::new();
    for (number, finding) in findings.iter().enumerate() {
        if let Some(owner) = owner_of(finding) {
            by_owner.entry(owner).or_default().push(number);
        }
    }
    let mut gone = vec![false; findings.len()];
    for (owner, numbers) in by_owner {
        let is_one_object = matches!(owner, Owner::Type(_));
        if numbers.len() < if is_one_object { 2 } else { LINES_MIN } {
            continue;
        }
        let places = numbers
            .iter()
            .filter_map(|number| findings[*number].places.first().cloned());
        let places = places.take(LINES_SHOWN).collect();
        let count = numbers.iter().map(|number| findings[*number].count).sum();
        let message = format!(
            "{} {owner} store data that is never made durable",
            numbers.len()
        );
        let explanation = "data that need not survive can be kept in volatile memory";
        findings[numbers[0]] = Finding {
            count,
            explanation: Some(explanation.to_owned()),
            ..Finding::new(Code::TransientData, message, places)
        };
        for number in &numbers[1..] {
            gone[*number] = true;
        }
    }
    let mut gone = gone.into_iter();
    findings.retain(|_| !gone.next().unwrap_or(false));
}

/// Whose data it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The type whose function stores it.
    Type(String),
    /// Where functions have no type: the file.
    File(String),
    /// Where there is no debug information: the module.
    Module(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        match self {
            Self::Type(name) => write!(f, "lines of code of `{name}`"),
            Self::File(file) => write!(f, "lines of code of {}", name(file)),
            Self::Module(module) => write!(f, "instructions of {}", name(module)),
        }
    }
}

fn owner_of(finding: &Finding) -> Option<Owner> {
    if finding.code != Code::TransientData || finding.evidence.is_some() {
        return None;
    }
    let place = finding.places.first()?;
    let of_type = place.function.as_deref().and_then(type_of);
    let of_type = of_type.map(|name| Owner::Type(name.to_owned()));
    let of_file = || place.file.clone().map(Owner::File);
    let of_module = || place.module.clone().map(Owner::Module);
    of_type.or_else(of_file).or_else(of_module)
}

/// The type of a function: `Pool<int>` of `Pool<int>::init(unsigned long)`.
fn type_of(function: &str) -> Option<&str> {
    let mut depth = 0_u32;
    let mut end = None;
    for (at, letter) in function.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => break,
            ':' if depth == 0 && function[at..].starts_with("::") => end = Some(at),
            _ => {}
        }
    }
    end.map(|end| &function[..end])
}

#[cfg(test)]
mod tests {
    use powerfail_finding::{Role, SourcePlace};

    use super::*;

    fn found(function: &str, line: u32) -> Finding {
        let place = SourcePlace {
            file: Some("src/pool.cc".into()),
            line: Some(line),
            function: Some(function.into()),
            ..SourcePlace::new(Role::Store)
        };
        Finding::new(Code::TransientData, String::new(), vec![place])
    }

    #[test]
    fn functions_belong_to_types() {
        assert_eq!(type_of("Pool<a::B>::init(c::D)"), Some("Pool<a::B>"));
        assert_eq!(type_of("a::Pool::Pool()"), Some("a::Pool"));
        assert_eq!(type_of("init(a::B)"), None);
        assert_eq!(type_of("init"), None);
    }

    #[test]
    fn many_fields_of_a_type_are_one_finding() {
        let mut findings: Vec<Finding> =
            (1..=27).map(|line| found("Arena::Arena()", line)).collect();
        findings.push(found("List::List()", 40));
        findings.push(found("List::push(int)", 41));
        findings.push(found("Queue::Queue()", 50));
        summarise_transient_data(&mut findings);
        let counts: Vec<_> = findings
            .iter()
            .map(|it| (it.count, it.places.len()))
            .collect();
        assert_eq!(counts, [(27, LINES_SHOWN), (2, 2), (1, 1)]);
        assert_eq!(
            findings[0].message,
            "27 lines of code of `Arena` store data that is never made durable"
        );
    }

    #[test]
    fn code_without_debug_information_shares_a_module() {
        let stripped = |module: &str, offset| {
            let place = SourcePlace {
                module: Some(module.into()),
                pool_offset: Some(offset),
                ..SourcePlace::new(Role::Store)
            };
            Finding::new(Code::TransientData, String::new(), vec![place])
        };
        let mut findings: Vec<Finding> = (1..=26)
            .map(|offset| stripped("/usr/bin/memcached", offset))
            .collect();
        findings.push(stripped("/usr/lib/libevent.so.2", 1));
        summarise_transient_data(&mut findings);
        assert_eq!(findings.len(), 2);
        assert_eq!(
            findings[0].message,
            "26 instructions of memcached store data that is never made durable"
        );
        assert_eq!(findings[0].count, 26);
    }

    #[test]
    fn functions_without_a_type_share_a_file() {
        let mut findings = vec![found("create", 1), found("create", 2), found("open", 3)];
        summarise_transient_data(&mut findings);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("of pool.cc store"));
    }
}
