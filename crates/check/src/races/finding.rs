//! An unsafe read, in words.

use powerfail_finding::{Code, Finding, Role, Severity, SourcePlace, UnsafeRead};
use powerfail_oracle::Stage;

use super::pairs::Pair;
use crate::crash::Bench;
use crate::error::CheckError;
use crate::lazy::choices;
use crate::places::{Places, hex};

impl Bench<'_, '_> {
    /// The finding of a pair.
    pub(super) fn race_finding(
        &mut self,
        pair: &Pair,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let first = &pair.first;
        let mut found = Vec::new();
        if let Some(writer) = first.writer {
            found.push(places.of_event_by(Role::Store, writer, pair.writer_user)?);
        }
        let mut reader = pair.reader.clone();
        let pool = self.trace.pools().get(first.pool.0 as usize);
        reader.pool = pool.map(|pool| pool.path.display().to_string());
        reader.pool_offset = Some(first.offset);
        reader.len_bytes = Some(first.len);
        reader.bytes = Some(hex(&first.bytes));
        found.push(reader);
        let at = pair
            .instances
            .first()
            .map_or(powerfail_model::EventIndex(0), |it| it.at);
        let shown_at = pair.failed.as_ref().map_or(at, |failed| failed.trial.at);
        found.push(places.of_event(Role::Failure, shown_at)?);
        let mut evidence = pair.evidence.clone();
        if let (Some(evidence), Some(failed)) = (&mut evidence, &pair.failed) {
            let line_bytes = self.runner.line_bytes();
            evidence.choices = choices(self.trace, &pair.loads, &failed.state, line_bytes, places)?;
            if let Some(backtrace) = self.backtrace_of(failed)? {
                found.push(places.of_backtrace(Role::Recovery, &backtrace));
            }
        }
        let code = Code::CrossFailureRace;
        Ok(Finding {
            id: String::new(),
            code,
            class: code.class(),
            severity: if pair.is_error() {
                Severity::Error
            } else {
                Severity::Warning
            },
            message: message(pair, &found),
            count: pair.failure_points,
            suggestion: Some(suggestion(&found)),
            places: found,
            evidence,
            read: Some(UnsafeRead {
                event: at.0,
                failure_points: pair.failure_points,
                command: command(first.stage).to_owned(),
                bytes: hex(&first.bytes),
                instead: first.instead.iter().map(|bytes| hex(bytes)).collect(),
                not_durable: None,
                trace: None,
                strict: false,
            }),
        })
    }
}

const fn command(stage: Stage) -> &'static str {
    match stage {
        Stage::Checker => "checker",
        _ => "recovery",
    }
}

/// `in insert`, where that is known.
fn whereabouts(place: Option<&SourcePlace>) -> String {
    place
        .and_then(|place| place.function.as_deref())
        .map_or_else(String::new, |function| format!(" in {function}"))
}

fn with(places: &[SourcePlace], role: Role) -> Option<&SourcePlace> {
    places.iter().find(|place| place.role == role)
}

fn message(pair: &Pair, places: &[SourcePlace]) -> String {
    let who = match pair.first.stage {
        Stage::Checker => "the checker",
        _ => "recovery",
    };
    format!(
        "{who} reads{} what is stored{} and not surely durable",
        whereabouts(with(places, Role::Load)),
        whereabouts(with(places, Role::Store)),
    )
}

fn name(place: Option<&SourcePlace>) -> String {
    match place.map(|place| (&place.file, place.line)) {
        Some((Some(file), Some(line))) => {
            format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
        }
        _ => "its place".to_owned(),
    }
}

fn suggestion(places: &[SourcePlace]) -> String {
    format!(
        "flush what is stored at {} and fence before recovery can depend on it, or let a commit variable or \
         checksum decide at {} whether it is there",
        name(with(places, Role::Store)),
        name(with(places, Role::Load)),
    )
}
