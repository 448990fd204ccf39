//! JSON output.

use std::path::Path;

use powerfail_finding::Report;
use powerfail_report::findings::{json, report_schema};

use powerfail_test_support::expected::assert_file;

use crate::common::{lost_store, recovery_crash, report};

#[test]
fn a_report_survives_json() {
    let mut subject = report(vec![lost_store(), recovery_crash()]);
    subject
        .notes
        .push("a \"note\" with \u{1b} and \u{fffd}".to_owned());
    let mut out = Vec::new();
    json(&mut out, &subject).expect("memory");
    let back: Report = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(back, subject);
    assert!(!out.contains(&0x1b), "no control characters");
}

#[test]
fn fields_come_in_the_order_of_the_documentation() {
    let mut out = Vec::new();
    json(&mut out, &report(vec![lost_store()])).expect("memory");
    let text = String::from_utf8(out).expect("text");
    let at = |field: &str| text.find(&format!("\"{field}\"")).expect(field);
    assert!(at("schema") < at("command") && at("command") < at("findings"));
    assert!(at("id") < at("code") && at("code") < at("places") && at("places") < at("totals"));
}

#[test]
fn the_schema_in_the_documentation_is_up_to_date() {
    let schema = serde_json::to_string_pretty(&report_schema()).expect("JSON");
    assert_file(&reference().join("findings-schema.json"), &(schema + "\n"));
}

/// The page has a line for every field of every type, and for no removed field.
#[test]
fn every_field_is_explained() {
    let schema = serde_json::to_value(report_schema()).expect("JSON");
    let page = std::fs::read_to_string(reference().join("json.md")).expect("the page");
    let mut fields = std::collections::BTreeSet::new();
    collect_fields(&schema, &mut fields);
    for field in &fields {
        assert!(
            page.contains(&format!("| `{field}` |")),
            "{field} is not explained"
        );
    }
    for line in page.lines() {
        if let Some(field) = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split('`').next())
        {
            assert!(
                fields.contains(field),
                "{field} is explained, and is no field"
            );
        }
    }
}

fn collect_fields(value: &serde_json::Value, fields: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => {
            if let Some(serde_json::Value::Object(properties)) = object.get("properties") {
                fields.extend(properties.keys().cloned());
            }
            for inner in object.values() {
                collect_fields(inner, fields);
            }
        }
        serde_json::Value::Array(items) => {
            for inner in items {
                collect_fields(inner, fields);
            }
        }
        _ => {}
    }
}

fn reference() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}
