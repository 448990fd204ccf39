//! Names of findings that stay: the same bug in the same program has the same id.
//!
//! An id is made of what a bug is and where, in words of the source: code, roles, functions and the
//! names of files. Line numbers move with every edit above them, so only the distances between the
//! places of a finding count. Addresses, event numbers and directories do not: they change with the
//! compiler, the workload and the machine.

use std::collections::BTreeMap;

use crate::code::Code;
use crate::finding::Finding;
use crate::place::{Role, SourcePlace};

/// Digits of an id. Collisions are handled, so it only has to be short enough to be typed.
const DIGITS: usize = 8;

/// The id of a finding with this code at these places: 8 hexadecimal digits.
///
/// Two bugs of one kind in one function can have the same; [`assign_ids`] tells them apart.
pub fn finding_id(code: Code, places: &[SourcePlace]) -> String {
    let mut hasher = blake3::Hasher::new();
    // A length before each text keeps neighbours from running together.
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(code.as_str());
    let places = in_order(places);
    for place in &places {
        if place.role == Role::Load && !code.class().is_of_reads() {
            // Known only if the reads of recovery were watched, too.
            continue;
        }
        add(place.role.as_str());
        match (&place.function, &place.file) {
            // Without any source there is still the place in the module.
            (None, None) => {
                let offset = place.code().map_or(0, |(_, offset)| offset);
                add(place.module.as_deref().map_or("", file_name));
                add(&format!("{offset:x}"));
            }
            (function, file) => {
                add(function.as_deref().unwrap_or_default());
                add(file.as_deref().map_or("", file_name));
            }
        }
        add(&distance(places[0], place).unwrap_or_default());
    }
    let mut id = hasher.finalize().to_hex().to_string();
    id.truncate(DIGITS);
    id
}

/// The places of a finding, the store that is missing before the one that survives: which of them is shown first makes no
/// other bug.
fn in_order(places: &[SourcePlace]) -> Vec<&SourcePlace> {
    let mut places: Vec<&SourcePlace> = places.iter().collect();
    if let [first, second, ..] = &mut places[..]
        && (first.role, second.role) == (Role::Survivor, Role::Store)
    {
        std::mem::swap(first, second);
    }
    places
}

/// Gives every finding its id. Findings that would have the same get `-2`, `-3`, ... in the order of
/// their lines, whatever the order of the findings is.
pub fn assign_ids(findings: &mut [Finding]) {
    let mut same: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, finding) in findings.iter().enumerate() {
        let id = finding_id(finding.code, &finding.places);
        same.entry(id).or_default().push(index);
    }
    for (id, mut indices) in same {
        indices.sort_by_cached_key(|index| {
            let places = &findings[*index].places;
            let position = |place: &SourcePlace| (place.line, place.column, place.event);
            places.iter().map(position).collect::<Vec<_>>()
        });
        for (number, index) in indices.into_iter().enumerate() {
            findings[index].id = match number {
                0 => id.clone(),
                _ => format!("{id}-{}", number + 1),
            };
        }
    }
}

/// Lines from one place to another in the same function.
fn distance(from: &SourcePlace, to: &SourcePlace) -> Option<String> {
    if from.file != to.file || from.function != to.function {
        return None;
    }
    Some((i64::from(to.line?) - i64::from(from.line?)).to_string())
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{assign_ids, finding_id};
    use crate::{Code, Finding, Role, SourcePlace};

    fn place(role: Role, function: &str, file: &str, line: u32) -> SourcePlace {
        SourcePlace {
            file: Some(file.to_owned()),
            line: Some(line),
            function: Some(function.to_owned()),
            ..SourcePlace::new(role)
        }
    }

    fn finding(line: u32) -> Finding {
        let code = Code::StoreNotFlushed;
        Finding {
            id: String::new(),
            code,
            class: code.class(),
            severity: code.severity(),
            message: String::new(),
            count: 1,
            places: vec![place(Role::Store, "insert", "map.c", line)],
            suggestion: None,
            fix: None,
            explanation: None,
            evidence: None,
            consequences: Vec::new(),
            marks: crate::Marks::NONE,
            read: None,
            durable_by: crate::DurableBy::Flush,
            tree: None,
            beside: Vec::new(),
        }
    }

    #[test]
    fn an_id_survives_edits_elsewhere_and_other_directories() {
        let id = |file: &str, store: u32, flush: u32| {
            let places = [
                place(Role::Store, "insert", file, store),
                place(Role::Flush, "insert", file, flush),
            ];
            finding_id(Code::RecoveryRejects, &places)
        };
        let before = id("/home/a/map.c", 10, 12);
        assert_eq!(before.len(), 8);
        assert_eq!(before, id("/build/map.c", 110, 112));
        assert_ne!(before, id("/home/a/map.c", 10, 13));
        assert_ne!(before, id("/home/a/list.c", 10, 12));
    }

    #[test]
    fn an_id_is_the_same_whether_the_survivor_or_the_missing_store_is_shown_first() {
        let survivor = || place(Role::Survivor, "insert", "map.c", 10);
        let missing = || place(Role::Store, "insert", "map.c", 14);
        let failure = || place(Role::Failure, "insert", "map.c", 11);
        let code = Code::RecoveryRejects;
        let id = finding_id(code, &[missing(), survivor(), failure()]);
        assert_eq!(id, finding_id(code, &[survivor(), missing(), failure()]));
    }

    #[test]
    fn code_role_and_function_make_a_difference() {
        let store = |function| [place(Role::Store, function, "a.c", 1)];
        let id = finding_id(Code::StoreNotFlushed, &store("f"));
        assert_ne!(id, finding_id(Code::TransientData, &store("f")));
        assert_ne!(id, finding_id(Code::StoreNotFlushed, &store("g")));
        let flush = [place(Role::Flush, "f", "a.c", 1)];
        assert_ne!(id, finding_id(Code::StoreNotFlushed, &flush));
    }

    #[test]
    fn without_source_the_place_in_the_module_counts() {
        let at = |offset| {
            let mut place = SourcePlace::new(Role::Store);
            place.module = Some("/usr/bin/target".to_owned());
            place.stack = vec![crate::StackFrame {
                function: None,
                file: None,
                line: None,
                module: Some("target".to_owned()),
                offset,
                trusted: false,
            }];
            finding_id(Code::StoreNotFlushed, &[place])
        };
        assert_eq!(at(0x10), at(0x10));
        assert_ne!(at(0x10), at(0x20));
    }

    #[test]
    fn ids_are_unique_and_do_not_depend_on_the_order() {
        let ids = |lines: [u32; 3]| {
            let mut findings = lines.map(finding);
            assign_ids(&mut findings);
            let mut ids = findings.map(|finding| (finding.places[0].line, finding.id));
            ids.sort();
            ids.map(|(_, id)| id)
        };
        let [first, second, third] = ids([10, 20, 30]);
        assert_eq!(second, format!("{first}-2"));
        assert_eq!(third, format!("{first}-3"));
        assert_eq!(ids([30, 10, 20]), [first, second, third]);
    }
}
