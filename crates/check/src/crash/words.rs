//! The sentences of crash findings and of notes about failure points that are left out.

use powerfail_explore::Plan;
use powerfail_finding::{Code, Role, SourcePlace};

/// What a plan leaves out.
pub(super) fn notes(plan: &Plan) -> Vec<String> {
    let left_out = plan.left_out;
    let mut notes = Vec::new();
    if left_out.in_creation > 0 {
        notes.push(format!(
            "{} failure points while PMDK creates a pool are left out; --include-create tries them",
            left_out.in_creation
        ));
    }
    notes.extend(scope_note(left_out.out_of_scope, "failure point"));
    notes
}

/// `1 failure point is`, `2 failure points are`.
pub(crate) fn points_are(count: u64) -> String {
    match count {
        1 => "1 failure point is".to_owned(),
        _ => format!("{count} failure points are"),
    }
}

/// What annotations leave out, if they do; `what` is the word for one of them.
pub(crate) fn scope_note(count: u64, what: &str) -> Option<String> {
    let plural = if count == 1 { "" } else { "s" };
    (count > 0).then(|| format!("annotations of the program leave out {count} {what}{plural}"))
}

/// The store of a suggestion.
pub(super) fn name_of(place: &SourcePlace) -> String {
    match (&place.file, place.line) {
        (Some(file), Some(line)) => {
            let name = file.rsplit('/').next().unwrap_or(file);
            format!("the store at {name}:{line}")
        }
        _ => "the store that is lost".into(),
    }
}

/// What a crash finding says: what recovery does, and when the power fails.
pub(super) fn message(code: Code, places: &[SourcePlace]) -> String {
    let failure = places.iter().find(|place| place.role == Role::Failure);
    let function = failure.and_then(|place| place.function.as_deref());
    let moment = function.map_or_else(
        || "if the power fails at this moment".to_owned(),
        |function| format!("if the power fails in {function}"),
    );
    match code {
        Code::RecoveryCrashes => format!("recovery crashes {moment}"),
        Code::RecoveryHangs => format!("recovery hangs {moment}"),
        Code::CheckerRejects => format!("the checker rejects what is recovered {moment}"),
        Code::ContentTorn => {
            format!("what is recovered is neither the old nor the new content {moment}")
        }
        Code::AcknowledgedLost => format!("an acknowledged operation is lost {moment}"),
        _ => format!("recovery fails {moment}"),
    }
}
