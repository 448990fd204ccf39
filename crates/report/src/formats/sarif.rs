//! SARIF 2.1.0: the standard of static analysis, which code scanning of GitHub and many editors read.
//!
//! The first place of a finding is its location, the others are related locations, and call stacks are stacks. What a
//! fix inserts is a comment that names the operation: how a program flushes is its own matter.

use std::io::{self, Write};
use std::path::Path;

use powerfail_finding::{
    Action, Change, Code, Finding, Operation, Report, Severity, SourcePlace, StackFrame,
};
use serde_json::{Map, Value, json};

use super::location::{self, SourcePath};
use crate::explain;
use crate::findings::{TextOptions, label, outcome_sentence, shown};

/// The name under which a result has its fingerprint. A new way to compute it would get a new version.
const FINGERPRINT: &str = "powerfail/v1";

/// The report as one run.
pub fn sarif(out: &mut dyn Write, report: &Report, options: &TextOptions<'_>) -> io::Result<()> {
    let mut codes: Vec<Code> = shown(report, options).map(|it| it.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let results: Vec<Value> = shown(report, options)
        .map(|finding| result(finding, &codes, options.base))
        .collect();
    let notes = report.notes.iter();
    let notes = notes.map(|note| json!({"level": "note", "message": {"text": note}}));
    let mut invocation = Map::new();
    invocation.insert("executionSuccessful".into(), true.into());
    let notes: Vec<Value> = notes.collect();
    if !notes.is_empty() {
        invocation.insert("toolExecutionNotifications".into(), notes.into());
    }
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "powerfail",
                "version": report.powerfail,
                "rules": codes.iter().map(|code| rule(*code)).collect::<Vec<_>>(),
            }},
            "invocations": [invocation],
            "columnKind": "unicodeCodePoints",
            "results": results,
            "properties": {"command": report.command},
        }],
    });
    serde_json::to_writer_pretty(&mut *out, &log)?;
    writeln!(out)
}

const fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Performance => "warning",
        Severity::Warning => "note",
    }
}

fn rule(code: Code) -> Value {
    json!({
        "id": code.as_str(),
        "name": code.class().as_str(),
        "shortDescription": {"text": code.title()},
        "help": {
            "text": format!("powerfail explain {code}"),
            "markdown": explain::page(code),
        },
        "defaultConfiguration": {"level": level(code.severity())},
        "properties": {"tags": [code.class().as_str(), "crash-consistency"]},
    })
}

fn result(finding: &Finding, codes: &[Code], base: &Path) -> Value {
    let mut text = finding.message.clone();
    if let Some(evidence) = &finding.evidence {
        text = format!("{text}\n{}", outcome_sentence(evidence));
    }
    if let Some(explanation) = &finding.explanation {
        text = format!("{text}\nnote: {explanation}");
    }
    let mut result = json!({
        "ruleId": finding.code.as_str(),
        "level": level(finding.severity),
        "message": {"text": text},
        "partialFingerprints": {FINGERPRINT: format!("{}-{}", finding.code, finding.id)},
        "occurrenceCount": finding.count.max(1),
        "properties": {"id": finding.id, "class": finding.class.as_str()},
    });
    if let Ok(index) = codes.binary_search(&finding.code) {
        result["ruleIndex"] = index.into();
    }
    let located = |place: &&SourcePlace| location::of_place(place, base).is_some();
    let primary = finding.places.iter().find(located);
    result["locations"] = primary
        .or(finding.places.first())
        .map(|place| self::location(place, base))
        .into_iter()
        .collect();
    let others = finding.places.iter().filter(|place| {
        // The primary place is not repeated.
        primary.is_none_or(|primary| !std::ptr::eq(*place, primary))
    });
    let related: Vec<Value> = others
        .enumerate()
        .map(|(number, place)| {
            let mut related = self::location(place, base);
            related["id"] = number.into();
            related["message"] = json!({"text": label(finding, place)});
            related
        })
        .collect();
    if !related.is_empty() {
        result["relatedLocations"] = related.into();
    }
    let stacks = finding
        .places
        .iter()
        .filter(|place| !place.stack.is_empty());
    let stacks: Vec<Value> = stacks
        .map(|place| {
            let frames = place.stack.iter().map(|it| frame(it, base));
            json!({
                "message": {"text": label(finding, place)},
                "frames": frames.collect::<Vec<_>>(),
            })
        })
        .collect();
    if !stacks.is_empty() {
        result["stacks"] = stacks.into();
    }
    result["fixes"] = fix(finding, base).into_iter().collect();
    result
}

/// A place as a location: without a source line it is at least a function of a module.
fn location(place: &SourcePlace, base: &Path) -> Value {
    let mut all = Map::new();
    if let Some(found) = location::of_place(place, base) {
        let mut region = json!({"startLine": found.line.max(1)});
        if let Some(column) = found.column {
            region["startColumn"] = column.into();
        }
        all.insert(
            "physicalLocation".into(),
            json!({"artifactLocation": {"uri": found.path.uri()}, "region": region}),
        );
    }
    let (function, module) = (place.function.as_deref(), place.module.as_deref());
    if let Some(name) = function.or(module) {
        let kind = if function.is_some() {
            "function"
        } else {
            "module"
        };
        let mut logical = json!({"name": name, "kind": kind});
        if let (Some(module), Some(function)) = (module, function) {
            let module = module.rsplit('/').next().unwrap_or(module);
            logical["fullyQualifiedName"] = format!("{module}!{function}").into();
        }
        all.insert("logicalLocations".into(), json!([logical]));
    }
    all.into()
}

fn frame(frame: &StackFrame, base: &Path) -> Value {
    let mut place = Map::new();
    if let Some(file) = &frame.file {
        let mut physical = json!({"artifactLocation": {"uri": SourcePath::new(file, base).uri()}});
        if let Some(line) = frame.line.filter(|line| *line > 0) {
            physical["region"] = json!({"startLine": line});
        }
        place.insert("physicalLocation".into(), physical);
    }
    if let Some(function) = &frame.function {
        place.insert(
            "logicalLocations".into(),
            json!([{"name": function, "kind": "function"}]),
        );
    }
    let mut all = json!({"location": place});
    if let Some(module) = &frame.module {
        all["module"] = module.as_str().into();
    }
    all
}

/// What to change, if that was verified and its lines are known.
fn fix(finding: &Finding, base: &Path) -> Option<Value> {
    let fix = finding.fix.as_ref().filter(|fix| fix.verified)?;
    let mut files: Vec<(&str, Vec<Value>)> = Vec::new();
    for change in &fix.changes {
        let (file, replacement) = (change.file.as_deref()?, replacement(change)?);
        match files.iter_mut().find(|(known, _)| *known == file) {
            Some((_, all)) if all.contains(&replacement) => {}
            Some((_, all)) => all.push(replacement),
            None => files.push((file, vec![replacement])),
        }
    }
    let changes = files.into_iter().map(|(file, replacements)| {
        json!({
            "artifactLocation": {"uri": SourcePath::new(file, base).uri()},
            "replacements": replacements,
        })
    });
    let changes: Vec<Value> = changes.collect();
    let text = finding.suggestion.as_deref();
    (!changes.is_empty()).then(|| {
        json!({
            "description": {"text": text.unwrap_or("change the marked lines")},
            "artifactChanges": changes,
        })
    })
}

/// A comment at the line of a change: nothing is deleted.
fn replacement(change: &Change) -> Option<Value> {
    let line = change.line.filter(|line| *line > 0)?;
    let is_hash = change.file.as_deref().is_some_and(|file| {
        let extension = Path::new(file).extension().unwrap_or_default();
        ["py", "sh", "rb", "pl"].iter().any(|it| extension == *it)
    });
    let comment = if is_hash { "#" } else { "//" };
    let operation = match change.operation {
        Operation::Flush => "flush",
        Operation::Fence => "fence",
        Operation::Sync => "msync",
        Operation::SyncFile => "fsync the file",
        Operation::SyncDirectory => "fsync the directory",
        Operation::Add => "add to the transaction",
    };
    // An operation is added after the line of its event, or before it if it is an add.
    let (words, at) = match (change.action, change.operation) {
        (Action::Insert, Operation::Add) => {
            (format!("{operation}: what the next line stores"), line)
        }
        (Action::Insert, Operation::Fence | Operation::SyncFile | Operation::SyncDirectory) => {
            (format!("{operation} here"), line + 1)
        }
        (Action::Insert, _) => (format!("{operation} what the line above stores"), line + 1),
        (Action::Remove, _) => (format!("remove the {operation} of the next line"), line),
    };
    Some(json!({
        "deletedRegion": {"startLine": at, "startColumn": 1, "endLine": at, "endColumn": 1},
        "insertedContent": {"text": format!("{comment} powerfail: {words}\n")},
    }))
}
