//! The sentences of crash findings and of notes about failure points that are left out.

use std::collections::BTreeMap;

use powerfail_explore::{FailurePoint, Plan};
use powerfail_finding::{Code, Role, SourcePlace};
use powerfail_model::EventIndex;
use powerfail_trace::StackId;

use crate::error::CheckError;
use crate::places::Places;

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

/// `1 suspicion of the lint is`, `2 suspicions of the lint are`.
pub(super) fn suspicions_are(count: u64) -> String {
    match count {
        1 => "1 suspicion of the lint is".to_owned(),
        _ => format!("{count} suspicions of the lint are"),
    }
}

/// That there was no time to trace failures back to the stores that cause them: those are findings where the power fails.
pub(super) fn untraced_note(count: u64) -> Option<String> {
    let failures = if count == 1 {
        "1 failure of recovery is".to_owned()
    } else {
        format!("{count} failures of recovery are")
    };
    (count > 0).then(|| {
        format!("the budget is spent: {failures} shown where the power fails, not traced back to stores; see --budget")
    })
}

/// That the power failed at one moment only, and what that leaves out.
pub(super) fn single_note(at: EventIndex, suspicions: u64) -> String {
    let left_out = match suspicions {
        0 => String::new(),
        count => format!("; {} not tried", suspicions_are(count)),
    };
    format!("--at: the power fails only before event {}{left_out}", at.0)
}

/// Where failure points were not tried, by call stack.
pub(super) fn untried_note(
    untried: &BTreeMap<StackId, (EventIndex, u64)>,
    places: &mut Places<'_>,
) -> Result<Option<String>, CheckError> {
    if untried.is_empty() {
        return Ok(None);
    }
    let listed = list_places(untried, places)?;
    Ok(Some(format!(
        "failure points that were not tried: {listed}"
    )))
}

/// The same for points that were chosen: `2 after map.c:7, 1 after map.c:9`.
pub(super) fn untried_places<'p>(
    points: impl Iterator<Item = &'p FailurePoint>,
    places: &mut Places<'_>,
) -> Result<String, CheckError> {
    let mut untried: BTreeMap<StackId, (EventIndex, u64)> = BTreeMap::new();
    for point in points {
        untried.entry(point.stack).or_insert((point.at, 0)).1 += 1;
    }
    list_places(&untried, places)
}

fn list_places(
    untried: &BTreeMap<StackId, (EventIndex, u64)>,
    places: &mut Places<'_>,
) -> Result<String, CheckError> {
    const NAMED_MAX: usize = 8;
    let mut by_place: BTreeMap<String, u64> = BTreeMap::new();
    let mut moments: Vec<&(EventIndex, u64)> = untried.values().collect();
    moments.sort_unstable();
    for (at, count) in &moments {
        let before = EventIndex(at.0.saturating_sub(1));
        let place = places.of_event(Role::Failure, before)?;
        *by_place.entry(short_name(&place)).or_default() += count;
    }
    let mut named: Vec<(String, u64)> = by_place.into_iter().collect();
    named.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    let others = named.split_off(named.len().min(NAMED_MAX));
    let listed = named
        .iter()
        .map(|(place, count)| format!("{count} after {place}"));
    let mut listed = listed.collect::<Vec<_>>().join(", ");
    if !others.is_empty() {
        let count: u64 = others.iter().map(|(_, count)| count).sum();
        let plural = if others.len() == 1 { "" } else { "s" };
        listed = format!(
            "{listed}, and {count} after {} other line{plural}",
            others.len()
        );
    }
    Ok(listed)
}

/// A place in a few words.
fn short_name(place: &SourcePlace) -> String {
    match (&place.file, place.line, &place.function) {
        (Some(file), Some(line), _) => {
            let name = file.rsplit('/').next().unwrap_or(file);
            format!("{name}:{line}")
        }
        (_, _, Some(function)) => function.clone(),
        _ => "code without a name".to_owned(),
    }
}

/// What annotations leave out, if they do; `what` is the word for one of them.
pub(crate) fn scope_note(count: u64, what: &str) -> Option<String> {
    let plural = if count == 1 { "" } else { "s" };
    (count > 0).then(|| format!("annotations of the program leave out {count} {what}{plural}"))
}

/// Between which stores recovery fails, with all that came before them durable. `succeeds` says whether it succeeds after
/// the store that comes first among the places.
pub(super) fn between(places: &[SourcePlace], succeeds: bool) -> Option<String> {
    let line = |role: Role| {
        let place = places.iter().find(|place| place.role == role);
        place.and_then(SourcePlace::file_and_line)
    };
    let (survivor, lost) = (line(Role::Survivor)?, line(Role::Store)?);
    let until = if succeeds {
        format!("until the store at {lost}")
    } else {
        "at least until the next store".to_owned()
    };
    Some(format!(
        "recovery fails from the store at {survivor} {until}, with every store before the failure durable"
    ))
}

/// The function in which the power fails: that of a store to blame if it is on the call stack, or else the innermost one.
/// `persist` is never the place to look for a bug.
fn operation<'p>(failure: &'p SourcePlace, places: &'p [SourcePlace]) -> Option<&'p str> {
    let is_called = |function: &&String| {
        let mut frames = failure.stack.iter();
        frames.any(|frame| frame.function.as_ref() == Some(*function))
    };
    let to_blame = places
        .iter()
        .filter(|it| matches!(it.role, Role::Survivor | Role::Store));
    let mut functions = to_blame.filter_map(|place| place.function.as_ref());
    let operation = functions.find(is_called).or(failure.function.as_ref());
    operation.map(String::as_str)
}

/// What a crash finding says: what recovery does, and when the power fails.
pub(super) fn message(code: Code, places: &[SourcePlace]) -> String {
    let failure = places.iter().find(|place| place.role == Role::Failure);
    let function = failure.and_then(|failure| operation(failure, places));
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

#[cfg(test)]
mod tests {
    use powerfail_finding::StackFrame;

    use super::*;

    #[test]
    fn what_was_not_traced_back_is_said() {
        assert_eq!(untraced_note(0), None);
        let said = untraced_note(1).unwrap();
        assert!(said.contains("1 failure of recovery is shown where the power fails"));
        assert!(said.contains("--budget"));
    }

    #[test]
    fn the_power_fails_in_the_function_that_calls_the_helper() {
        let place = |role: Role, function: &str| SourcePlace {
            function: Some(function.into()),
            ..SourcePlace::new(role)
        };
        let frame = |function: &str| StackFrame {
            function: Some(function.into()),
            file: None,
            line: None,
            module: None,
            offset: 0,
            trusted: false,
        };
        let failure = SourcePlace {
            stack: ["persist", "put", "transfer", "main"].map(frame).to_vec(),
            ..place(Role::Failure, "persist")
        };
        let says = |places: &[SourcePlace]| message(Code::RecoveryRejects, places);
        let known = [place(Role::Survivor, "transfer"), failure.clone()];
        assert_eq!(
            says(&known),
            "recovery fails if the power fails in transfer"
        );
        let elsewhere = [place(Role::Survivor, "create"), failure];
        assert_eq!(
            says(&elsewhere),
            "recovery fails if the power fails in persist"
        );
    }
}
