//! From a pair of reader and writer to a finding.

use powerfail_finding::{Code, Finding, Role, Severity, SourcePlace, UnsafeRead};
use powerfail_model::EventIndex;
use powerfail_oracle::Stage;
use powerfail_races::NotDurable;

use super::confirm::ShownBy;
use super::pairs::Pair;
use super::watch::ReadKind;
use crate::crash::Engine;
use crate::error::CheckError;
use crate::fix::{BadState, Missing};
use crate::lazy::choices;
use crate::places::{Places, hex_prefix};
use crate::remedy::Remedy;

impl Engine<'_, '_> {
    /// The finding of a pair. With `is_strict` it is an error whether or not a run shows that it matters.
    pub(super) fn race_finding(
        &mut self,
        pair: &Pair,
        is_strict: bool,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let first = &pair.first;
        let mut found = Vec::new();
        if let Some(writer) = first.writer {
            let role = match pair.kind {
                ReadKind::Uninitialised => Role::Allocation,
                _ => Role::Store,
            };
            found.push(places.of_event_by(role, writer, pair.writer_user)?);
        }
        let mut reader = pair.reader.clone();
        let pool = self.trace.pools().get(first.pool.0 as usize);
        reader.pool = pool.map(|pool| pool.path.display().to_string());
        reader.pool_offset = Some(first.offset);
        reader.len_bytes = Some(first.len);
        reader.bytes = Some(hex_prefix(&first.bytes));
        found.push(reader);
        for commit in &first.commits {
            found.push(places.of_event(Role::Commit, *commit)?);
        }
        if let Some(flush) = first
            .why
            .and_then(flush_of)
            .filter(|it| Some(*it) != first.writer)
        {
            found.push(places.of_event(Role::Flush, flush)?);
        }
        let at = pair.instances.first().map_or(EventIndex(0), |it| it.at);
        let shown_at = pair.failed.as_ref().map_or(at, |failed| failed.trial.at);
        found.push(places.of_event(Role::Failure, shown_at)?);
        let mut evidence = pair.evidence.clone();
        if let (Some(evidence), Some(failed)) = (&mut evidence, &pair.failed) {
            let rules = self.runner.rules();
            evidence.choices = choices(self.trace, &pair.loads, &failed.state, rules, places)?;
            if let Some(backtrace) = self.backtrace_of(failed)? {
                found.push(places.of_backtrace(Role::Recovery, &backtrace));
            }
        }
        let code = match pair.kind {
            ReadKind::Race | ReadKind::Strict => Code::CrossFailureRace,
            ReadKind::Uncommitted | ReadKind::Stale => Code::CrossFailureSemantic,
            ReadKind::Uninitialised => Code::UninitialisedRead,
        };
        let explanation = explanation(pair, &found);
        let message = message(pair, &found, places.remedy());
        let mut finding = Finding {
            severity: if pair.is_error() || is_strict {
                Severity::Error
            } else {
                Severity::Warning
            },
            count: pair.failure_points,
            explanation,
            consequences: match &pair.failed {
                Some(failed) => failed.symptom.others.clone(),
                None => Vec::new(),
            },
            evidence,
            read: Some(UnsafeRead {
                event: at.0,
                failure_points: pair.failure_points,
                command: command(first.stage).to_owned(),
                bytes: hex_prefix(&first.bytes),
                instead: first
                    .instead
                    .iter()
                    .map(|bytes| hex_prefix(bytes))
                    .collect(),
                not_durable: first.why.map(not_durable),
                trace: None,
                strict: pair.kind == ReadKind::Strict,
                tried: pair.tried.filter(|_| !pair.is_error()),
            }),
            ..Finding::new(code, message, found)
        };
        self.advise_commit(pair, &mut finding, places)?;
        Ok(finding)
    }

    /// Advises to make what a commit makes valid durable before it. What else makes a read safe is not to be verified on
    /// the trace.
    fn advise_commit(
        &self,
        pair: &Pair,
        finding: &mut Finding,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let (ReadKind::Uncommitted, Some(writer), Some(commit)) =
            (pair.kind, pair.first.writer, pair.first.commits.first())
        else {
            return Ok(());
        };
        let Some((at, len_bytes)) = self.store_at(writer)? else {
            return Ok(());
        };
        let remedy = places.remedy();
        let bad = BadState::never_durable(at, len_bytes, writer, remedy.0).until(Some(commit.0));
        let stored = name(with(&finding.places, Role::Store));
        let words = format!(
            "{} before the commit variable is stored at {}",
            remedy.of(&format!("the data stored at {stored}")),
            name(with(&finding.places, Role::Commit))
        );
        Ok(places.advise(finding, Missing::Flush(writer), &bad, words)?)
    }
}

const fn flush_of(why: NotDurable) -> Option<EventIndex> {
    match why {
        NotDurable::NeverFlushed => None,
        NotDurable::NotFenced { flush } | NotDurable::FlushedBefore { flush } => Some(flush),
    }
}

const fn not_durable(why: NotDurable) -> powerfail_finding::NotDurable {
    match why {
        NotDurable::NeverFlushed => powerfail_finding::NotDurable::NeverFlushed,
        NotDurable::NotFenced { .. } => powerfail_finding::NotDurable::NotFenced,
        NotDurable::FlushedBefore { .. } => powerfail_finding::NotDurable::FlushedBefore,
    }
}

const fn command(stage: Stage) -> &'static str {
    match stage {
        Stage::Checker => "checker",
        _ => "recovery",
    }
}

/// ` in insert`, where that is known.
fn in_function(place: Option<&SourcePlace>) -> String {
    place.map_or_else(String::new, SourcePlace::in_function)
}

fn with(places: &[SourcePlace], role: Role) -> Option<&SourcePlace> {
    places.iter().find(|place| place.role == role)
}

fn message(pair: &Pair, places: &[SourcePlace], remedy: Remedy) -> String {
    let who = match pair.first.stage {
        Stage::Checker => "the checker",
        _ => "recovery",
    };
    let reads = format!("{who} reads{}", in_function(with(places, Role::Load)));
    let stored = format!("data stored{}", in_function(with(places, Role::Store)));
    match pair.kind {
        // No flush would help.
        ReadKind::Race | ReadKind::Strict if pair.shown_by == Some(ShownBy::EveryStore) => {
            format!("{reads} {stored}, and fails although every store is durable")
        }
        ReadKind::Race | ReadKind::Strict => {
            let lacks = match pair.first.why {
                Some(NotDurable::NeverFlushed) => format!("and not {} yet", remedy.done()),
                Some(NotDurable::NotFenced { .. }) => "and flushed, but not fenced yet".to_owned(),
                Some(NotDurable::FlushedBefore { .. }) => {
                    format!("after its line was {}", remedy.done())
                }
                None => "and possibly not durable".to_owned(),
            };
            format!("{reads} {stored} {lacks}")
        }
        ReadKind::Uncommitted if pair.first.commits.is_empty() => {
            format!("{reads} {stored} and not committed")
        }
        ReadKind::Uncommitted => format!("{reads} {stored} and committed before it was durable"),
        ReadKind::Stale => format!("{reads} {stored}, which a later commit made stale"),
        ReadKind::Uninitialised => format!(
            "{reads} memory allocated{} and never written",
            in_function(with(places, Role::Allocation))
        ),
    }
}

fn name(place: Option<&SourcePlace>) -> String {
    let line = place.and_then(SourcePlace::file_and_line);
    line.unwrap_or_else(|| "its place".to_owned())
}

/// What is known about a read, where that is more than the message says.
fn explanation(pair: &Pair, places: &[SourcePlace]) -> Option<String> {
    let store = name(with(places, Role::Store));
    let load = name(with(places, Role::Load));
    Some(match (pair.kind, pair.shown_by) {
        (ReadKind::Race | ReadKind::Strict, Some(ShownBy::EveryStore)) => format!(
            "recovery fails with every store durable, and succeeds if {load} reads an older value than that stored at \
             {store}"
        ),
        (ReadKind::Race | ReadKind::Strict, Some(ShownBy::Survivor)) => format!(
            "recovery fails if the store at {store} survives while others are lost, and succeeds if it is lost, too"
        ),
        (ReadKind::Race | ReadKind::Strict, Some(ShownBy::OtherValue)) => format!(
            "recovery fails if the store at {store} is lost, so that {load} reads an older value"
        ),
        (ReadKind::Race | ReadKind::Strict, None) => format!(
            "after a crash {load} reads either the data stored at {store} or what was there before"
        ),
        (ReadKind::Uncommitted, _) if pair.first.commits.is_empty() => format!(
            "no store to the commit variable says that the data stored at {store} is valid when {load} reads it"
        ),
        _ => return None,
    })
}
