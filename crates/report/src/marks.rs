//! Annotations in a trace, by name: what the program, or a library of it, says about its work.

use powerfail_model::{Place, PoolOffset};
use powerfail_protocol::mark;
use powerfail_protocol::request::pmemcheck;
use powerfail_trace::annotation::{self, AnnotatedRange, Annotation};
use serde_json::{Value, json};

/// Bytes of a payload that a line of text shows; `--json` shows all.
const PAYLOAD_SHOWN: usize = 60;

/// An annotation as text: its name, what it is about, and what else it says.
pub(crate) fn text(annotation: Annotation, value: u64, payload: &[u8]) -> String {
    let name = annotation
        .name()
        .map_or_else(|| format!("code {:#x}", annotation.code()), str::to_owned);
    let mut parts = vec![name];
    match said(annotation, value) {
        Said::Nothing => {}
        Said::Number => parts.push(value.to_string()),
        Said::Words(words) => parts.extend(words.into_iter().map(str::to_owned)),
    }
    if annotation.has_ranges() {
        let ranges: Vec<String> = AnnotatedRange::all(payload).map(range_text).collect();
        parts.push(ranges.join(", "));
    } else if !payload.is_empty() {
        parts.push(payload_text(payload));
    }
    parts.join(" ")
}

/// The beginning of a payload, as text in quotes.
pub(crate) fn payload_text(payload: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&payload[..payload.len().min(PAYLOAD_SHOWN)]);
    format!("{shown:?}")
}

/// Adds what an annotation says to a record in JSON.
pub(crate) fn add_json(record: &mut Value, annotation: Annotation, value: u64, payload: &[u8]) {
    record["code"] = json!(annotation.code());
    if let Some(name) = annotation.name() {
        record["name"] = json!(name);
    }
    if let Said::Words(words) = said(annotation, value) {
        if matches!(
            annotation,
            Annotation::LibraryEnter | Annotation::LibraryLeave
        ) {
            record["function"] = json!(words.first());
        } else if annotation == Annotation::ClientRequest {
            record["request"] = json!(words.first());
        } else {
            record["flags"] = json!(words);
        }
    }
    if annotation.has_ranges() {
        record["ranges"] = AnnotatedRange::all(payload).map(range_json).collect();
    }
}

/// What the value of an annotation says.
enum Said {
    Nothing,
    Number,
    Words(Vec<&'static str>),
}

fn said(annotation: Annotation, value: u64) -> Said {
    let flags: &[(u64, &'static str)] = match annotation {
        Annotation::LibraryEnter | Annotation::LibraryLeave => {
            return match mark::function_name(value) {
                Some(function) => Said::Words(vec![function]),
                None => Said::Number,
            };
        }
        Annotation::ClientRequest => {
            return match pmemcheck::name(value) {
                Some(request) => Said::Words(vec![request]),
                None => Said::Number,
            };
        }
        Annotation::TransactionAdd => &[
            (annotation::add::NO_SNAPSHOT, "no-snapshot"),
            (annotation::add::NO_FLUSH, "no-flush"),
        ],
        Annotation::TransactionAllocate | Annotation::Allocate => &[
            (annotation::allocation::ZEROED, "zeroed"),
            (annotation::allocation::WRITTEN, "written"),
            (annotation::allocation::NO_FLUSH, "no-flush"),
            (annotation::allocation::RESERVED, "reserved"),
        ],
        Annotation::User => return Said::Number,
        _ if value == 0 => return Said::Nothing,
        _ => return Said::Number,
    };
    let words: Vec<&str> = flags
        .iter()
        .filter(|(bit, _)| value & bit != 0)
        .map(|(_, word)| *word)
        .collect();
    if words.is_empty() {
        Said::Nothing
    } else {
        Said::Words(words)
    }
}

fn range_text(range: AnnotatedRange) -> String {
    let AnnotatedRange { pool, offset, len } = range;
    match pool {
        Some(pool) => {
            let at = Place::new(pool, PoolOffset(offset));
            format!("{at} +{len}")
        }
        None => format!("{offset:#x} +{len} in no pool"),
    }
}

fn range_json(range: AnnotatedRange) -> Value {
    let AnnotatedRange { pool, offset, len } = range;
    match pool {
        Some(pool) => json!({ "pool": pool.0, "offset": offset, "len_bytes": len }),
        None => json!({ "address": offset, "len_bytes": len }),
    }
}

#[cfg(test)]
mod tests {
    use super::{add_json, text};
    use powerfail_model::PoolIndex;
    use powerfail_protocol::mark;
    use powerfail_trace::annotation::{self, AnnotatedRange, Annotation};
    use serde_json::json;

    fn ranges(ranges: &[AnnotatedRange]) -> Vec<u8> {
        ranges.iter().flat_map(|range| range.to_bytes()).collect()
    }

    #[test]
    fn annotations_have_names_places_and_flags() {
        let here = AnnotatedRange {
            pool: Some(PoolIndex(1)),
            offset: 64,
            len: 8,
        };
        let nowhere = AnnotatedRange { pool: None, ..here };
        assert_eq!(text(Annotation::FailurePoint, 0, &[]), "failure-point");
        assert_eq!(text(Annotation::User, 0, b"hello"), "mark 0 \"hello\"");
        assert_eq!(text(Annotation::from_code(0x7777), 5, &[]), "code 0x7777 5");
        assert_eq!(
            text(Annotation::CommitRange, 0, &ranges(&[here, nowhere])),
            "commit-range 1:0x40 +8, 0x40 +8 in no pool"
        );
        assert_eq!(
            text(
                Annotation::TransactionAdd,
                annotation::add::NO_FLUSH,
                &ranges(&[here])
            ),
            "transaction-add no-flush 1:0x40 +8"
        );
        assert_eq!(
            text(Annotation::ClientRequest, 5, &ranges(&[here])),
            "client-request flush 1:0x40 +8"
        );
        assert_eq!(
            text(Annotation::LibraryEnter, 0, &[]),
            format!("library-enter {}", mark::FUNCTIONS[0])
        );
        assert_eq!(
            text(Annotation::LibraryEnter, 1 << 40, &[]),
            "library-enter 1099511627776"
        );
    }

    #[test]
    fn machines_get_the_same() {
        let here = AnnotatedRange {
            pool: Some(PoolIndex(1)),
            offset: 64,
            len: 8,
        };
        let nowhere = AnnotatedRange { pool: None, ..here };
        let mut record = json!({});
        add_json(
            &mut record,
            Annotation::CommitRange,
            0,
            &ranges(&[here, nowhere]),
        );
        assert_eq!(
            record,
            json!({
                "code": Annotation::CommitRange.code(),
                "name": "commit-range",
                "ranges": [
                    { "pool": 1, "offset": 64, "len_bytes": 8 },
                    { "address": 64, "len_bytes": 8 },
                ],
            })
        );
        let mut record = json!({});
        add_json(&mut record, Annotation::LibraryLeave, 1, &[]);
        assert_eq!(record["function"], mark::FUNCTIONS[1]);
        let mut record = json!({});
        let value = annotation::allocation::ZEROED | annotation::allocation::NO_FLUSH;
        add_json(&mut record, Annotation::Allocate, value, &[]);
        assert_eq!(record["flags"], json!(["zeroed", "no-flush"]));
    }
}
