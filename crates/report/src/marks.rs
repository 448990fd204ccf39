//! Annotations in a trace, by name: what the program, or a library of it, says about its work.

use powerfail_model::{Place, PoolIndex, PoolOffset};
use powerfail_protocol::mark::{self, Range};
use powerfail_protocol::request::pmemcheck;
use serde_json::{Value, json};

/// Bytes of a payload that a line of text shows; `--json` shows all.
const PAYLOAD_SHOWN: usize = 60;

/// An annotation as text: its name, what it is about, and what else it says.
pub(crate) fn text(code: u32, value: u64, payload: &[u8]) -> String {
    let name = mark::name(code).map_or_else(|| format!("code {code:#x}"), str::to_owned);
    let mut parts = vec![name];
    match said(code, value) {
        Said::Nothing => {}
        Said::Number => parts.push(value.to_string()),
        Said::Words(words) => parts.extend(words.into_iter().map(str::to_owned)),
    }
    if code & mark::HAS_RANGES != 0 {
        let ranges: Vec<String> = Range::all(payload).map(range_text).collect();
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
pub(crate) fn add_json(record: &mut Value, code: u32, value: u64, payload: &[u8]) {
    record["code"] = json!(code);
    if let Some(name) = mark::name(code) {
        record["name"] = json!(name);
    }
    if let Said::Words(words) = said(code, value) {
        if matches!(code, mark::LIBRARY_ENTER | mark::LIBRARY_LEAVE) {
            record["function"] = json!(words.first());
        } else if code == mark::CLIENT_REQUEST {
            record["request"] = json!(words.first());
        } else {
            record["flags"] = json!(words);
        }
    }
    if code & mark::HAS_RANGES != 0 {
        record["ranges"] = Range::all(payload).map(range_json).collect();
    }
}

/// What the value of an annotation says.
enum Said {
    Nothing,
    Number,
    Words(Vec<&'static str>),
}

fn said(code: u32, value: u64) -> Said {
    let flags: &[(u64, &'static str)] = match code {
        mark::LIBRARY_ENTER | mark::LIBRARY_LEAVE => {
            return match mark::function_name(value) {
                Some(function) => Said::Words(vec![function]),
                None => Said::Number,
            };
        }
        mark::CLIENT_REQUEST => {
            return match pmemcheck::name(value) {
                Some(request) => Said::Words(vec![request]),
                None => Said::Number,
            };
        }
        mark::TRANSACTION_ADD => &[
            (mark::add::NO_SNAPSHOT, "no-snapshot"),
            (mark::add::NO_FLUSH, "no-flush"),
        ],
        mark::TRANSACTION_ALLOCATE | mark::ALLOCATE => &[
            (mark::allocation::ZEROED, "zeroed"),
            (mark::allocation::WRITTEN, "written"),
            (mark::allocation::NO_FLUSH, "no-flush"),
            (mark::allocation::RESERVED, "reserved"),
        ],
        mark::USER => return Said::Number,
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

fn range_text(range: Range) -> String {
    let Range { pool, offset, len } = range;
    match pool {
        Some(pool) => {
            let at = Place::new(PoolIndex(pool), PoolOffset(offset));
            format!("{at} +{len}")
        }
        None => format!("{offset:#x} +{len} in no pool"),
    }
}

fn range_json(range: Range) -> Value {
    let Range { pool, offset, len } = range;
    match pool {
        Some(pool) => json!({ "pool": pool, "offset": offset, "len_bytes": len }),
        None => json!({ "address": offset, "len_bytes": len }),
    }
}

#[cfg(test)]
mod tests {
    use super::{add_json, text};
    use powerfail_protocol::mark::{self, Range};
    use serde_json::json;

    fn ranges(ranges: &[Range]) -> Vec<u8> {
        ranges.iter().flat_map(|range| range.to_bytes()).collect()
    }

    #[test]
    fn annotations_have_names_places_and_flags() {
        let here = Range {
            pool: Some(1),
            offset: 64,
            len: 8,
        };
        let nowhere = Range { pool: None, ..here };
        assert_eq!(text(mark::FAILURE_POINT, 0, &[]), "failure-point");
        assert_eq!(text(mark::USER, 0, b"hello"), "mark 0 \"hello\"");
        assert_eq!(text(0x7777, 5, &[]), "code 0x7777 5");
        assert_eq!(
            text(mark::COMMIT_RANGE, 0, &ranges(&[here, nowhere])),
            "commit-range 1:0x40 +8, 0x40 +8 in no pool"
        );
        assert_eq!(
            text(mark::TRANSACTION_ADD, mark::add::NO_FLUSH, &ranges(&[here])),
            "transaction-add no-flush 1:0x40 +8"
        );
        assert_eq!(
            text(mark::CLIENT_REQUEST, 5, &ranges(&[here])),
            "client-request flush 1:0x40 +8"
        );
        assert_eq!(
            text(mark::LIBRARY_ENTER, 0, &[]),
            format!("library-enter {}", mark::FUNCTIONS[0])
        );
        assert_eq!(
            text(mark::LIBRARY_ENTER, 1 << 40, &[]),
            "library-enter 1099511627776"
        );
    }

    #[test]
    fn machines_get_the_same() {
        let here = Range {
            pool: Some(1),
            offset: 64,
            len: 8,
        };
        let nowhere = Range { pool: None, ..here };
        let mut record = json!({});
        add_json(
            &mut record,
            mark::COMMIT_RANGE,
            0,
            &ranges(&[here, nowhere]),
        );
        assert_eq!(
            record,
            json!({
                "code": mark::COMMIT_RANGE,
                "name": "commit-range",
                "ranges": [
                    { "pool": 1, "offset": 64, "len_bytes": 8 },
                    { "address": 64, "len_bytes": 8 },
                ],
            })
        );
        let mut record = json!({});
        add_json(&mut record, mark::LIBRARY_LEAVE, 1, &[]);
        assert_eq!(record["function"], mark::FUNCTIONS[1]);
        let mut record = json!({});
        let value = mark::allocation::ZEROED | mark::allocation::NO_FLUSH;
        add_json(&mut record, mark::ALLOCATE, value, &[]);
        assert_eq!(record["flags"], json!(["zeroed", "no-flush"]));
    }
}
