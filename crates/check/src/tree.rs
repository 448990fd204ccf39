//! Crashes of ordinary files: the same order of things as for pools ([`crate::crash`]), on whole trees.
//!
//! - `recording.rs`: the operations of a trace, and the trees at any moment of the run.
//! - `runner.rs`: recovery on crashed trees, several at a time.
//! - `memory.rs`: what was wrong after the crashes so far, so that no recovery is asked twice.
//! - `undisturbed.rs`, `prefix.rs`, `lossy.rs`, `oracle_test.rs`: the phases. `engine.rs` is what they share.
//! - `second.rs`: power failures during recovery. `races.rs`: what recovery reads and does not check.
//! - `minimal.rs`: the smallest loss. `finding.rs`: what it means. `remedy.rs`: the syncs that would have prevented it. `words.rs`:
//!   operations in words.
//! - `replay.rs`: a finding again.

mod engine;
mod finding;
mod lossy;
mod memory;
mod minimal;
mod oracle_test;
mod prefix;
mod races;
mod recording;
mod remedy;
mod replay;
mod runner;
mod second;
mod undisturbed;
mod words;

pub(crate) use recording::TreeRecording;
pub(crate) use replay::TreeReplay;
pub(crate) use runner::TreeRunner;
pub(crate) use second::RecoveryRecording;

use std::collections::BTreeSet;
use std::time::Instant;

use powerfail_finding::{Class, Code, Finding, NotChecked, Role, Severity, SourcePlace, TreeCrash};
use powerfail_lint::files::DataBeside;
use powerfail_model::files::FileSystem;
use powerfail_trace::Trace;

use crate::content::ExpectedContents;
use crate::crash::{BoundedObserver, Clock, Crashed, suspect_note};
use crate::error::CheckError;
use crate::event::Observer;
use crate::file_lint;
use crate::group::{group, list_outcomes};
use crate::marks::add_marks;
use crate::options::CrashOptions;
use crate::places::Places;
use engine::TreeEngine;
use lossy::Lossy;
use oracle_test::OracleTest;
use prefix::Prefixes;

/// Lets the power fail in the trees of a trace, and groups the findings by root cause.
pub(crate) fn crash(
    trace: &Trace,
    options: &CrashOptions,
    file_system: FileSystem,
    runner: &mut TreeRunner<'_>,
    again: Result<&RecoveryRecording, &str>,
    mut places: Places<'_>,
    observer: &mut dyn Observer,
) -> Result<Crashed, CheckError> {
    let clock = Clock {
        begun: options.begun.unwrap_or_else(Instant::now),
        budget: options.budget,
    };
    let undisturbed = undisturbed::undisturbed(runner, observer)?;
    let ack = options.ack.as_ref();
    let mut contents = ExpectedContents::new(trace, ack, &mut |read| observer.read(trace, read))?;
    contents.refuse_other_dump(undisturbed.dump.as_deref())?;
    let mut crashed = Crashed::default();
    crashed.totals.events = trace.event_count();
    crashed
        .notes
        .extend(contents.note(undisturbed.dump.is_some()));
    let denied = undisturbed.denied.as_ref();
    crashed
        .notes
        .extend(denied.map(|it| format!("recovery was denied {it}")));
    if !runner.recording.unrecorded.is_empty() {
        crashed.notes.push(format!(
            "the content of {} is not recorded, because the workload changes it by a mapping; the newest content is always durable",
            runner.recording.names_of_unrecorded()
        ));
    }
    let mut bounded = BoundedObserver {
        observer,
        end: clock.after(100),
    };
    let mut engine = TreeEngine::new(
        trace,
        runner,
        &mut bounded,
        &mut contents,
        file_system,
        clock,
    );
    engine.allow(30);
    let prefixes = engine.prefixes(options, undisturbed.accepts_initial, &mut places);
    let mut prefixes = engine.unless_interrupted(prefixes)?.unwrap_or_default();
    if prefixes.creation_end > 0 {
        crashed.notes.push(format!(
            "recovery fails before the workload has created its files: {} are left out; --include-create tries them",
            moments(prefixes.creation_end)
        ));
    }
    engine.allow(45);
    let mut explained = Vec::new();
    let outcome = engine.explain_prefixes(&mut prefixes, &mut places, &mut explained);
    if engine.unless_interrupted(outcome)?.is_none() {
        crashed.notes.push(
            "the budget is spent: not every failure of recovery with nothing lost is traced back to an operation; see --budget"
                .to_owned(),
        );
    }
    for finding in &explained {
        engine.announce(finding);
    }
    crashed.findings.extend(explained);
    engine.count_prefixes(&prefixes, &mut crashed.tried);
    crashed.notes.extend(prefixes.note.take());
    let totals = &mut crashed.totals;
    totals.failure_points = prefixes.planned;
    totals.failure_points_run = prefixes.run;
    engine.lose(options, &mut prefixes, again, &mut places, &mut crashed)?;
    let suspects = engine.runner.take_suspects();
    let has_failed = crashed.findings.iter().any(|it| it.evidence.is_some());
    let mut tested = None;
    if !has_failed && !engine.is_interrupted && !options.is_partial() {
        let result = engine.test_oracle(&undisturbed, &prefixes);
        tested = engine.unless_interrupted(result)?;
    }
    let is_stopped = engine.is_interrupted;
    crashed.notes.extend(contents.hidden_losses());
    crashed.is_interrupted = is_stopped && bounded.observer.is_interrupted();
    if is_stopped && crashed.totals.failure_points_run == 0 {
        crashed.totals.not_checked = Some(NotChecked::NoTime);
    }
    if is_stopped && !crashed.is_interrupted {
        crashed.notes.push(
            "the budget is spent: the report covers only what was tried until then; see --budget"
                .to_owned(),
        );
    }
    add_linted(trace, runner.recording, options, &mut places, &mut crashed)?;
    if options.selection.is_none() {
        crashed.coverage = std::mem::take(&mut crashed.tried).named(&mut places);
    }
    crashed.findings = group(std::mem::take(&mut crashed.findings));
    add_marks(trace, &mut crashed.findings, &|| false)?;
    crashed.notes.extend(places.notes());
    crashed
        .notes
        .extend(suspect_note(&suspects, &undisturbed.harmless_words));
    judge_oracle(tested, &mut crashed);
    crashed.totals.recovery_runs = runner.runs;
    Ok(crashed)
}

impl TreeEngine<'_, '_> {
    /// The crashes that lose something, and what recovery reads of what can be lost.
    fn lose(
        &mut self,
        options: &CrashOptions,
        prefixes: &mut Prefixes,
        again: Result<&RecoveryRecording, &str>,
        places: &mut Places<'_>,
        crashed: &mut Crashed,
    ) -> Result<(), CheckError> {
        if options.only_races() {
            // What fails with nothing lost is about no read.
            crashed.findings.clear();
        }
        let loses = options.lazy.is_some() || options.eager.is_some() || options.races.is_some();
        if !loses || self.is_interrupted {
            return Ok(());
        }
        let lossy = self.lossy(options, prefixes, places);
        let Some(mut lossy) = self.unless_interrupted(lossy)? else {
            return Ok(());
        };
        if !options.only_races() {
            self.fail_during_recovery(prefixes, &mut lossy, again, options)?;
        }
        let points = std::mem::take(&mut lossy.taken);
        add_lossy(lossy, crashed);
        let Some(races) = &options.races else {
            return Ok(());
        };
        self.allow(100);
        let found = self.races(&points, races, prefixes, &crashed.findings, places);
        if let Some(found) = self.unless_interrupted(found)? {
            crashed.findings.extend(found.findings);
            crashed.notes.extend(found.notes);
            crashed.totals.races = Some(found.races);
        }
        Ok(())
    }
}

/// Adds what crashes that lose something have shown.
fn add_lossy(lossy: Lossy, crashed: &mut Crashed) {
    for finding in lossy.findings {
        join(finding, &mut crashed.findings);
    }
    for (stack, tries) in lossy.tries {
        crashed.tried.lost_lines(stack).add(tries);
    }
    crashed.notes.extend(lossy.notes);
    crashed.totals.tree = Some(lossy.totals);
    crashed.totals.failure_points += lossy.points;
    crashed.totals.failure_points_run += lossy.points_run;
    crashed.totals.failure_point_stacks = lossy.stacks;
}

/// Adds a finding of a crash that loses something. Where the power must not fail before an operation, that operation must
/// not be lost either: that is one bug. So it is if the creation of a file can be lost, and its data as well, while the same
/// operation survives.
fn join(finding: Finding, findings: &mut Vec<Finding>) {
    if let Some(known) = findings.iter_mut().find(|it| is_same_file(it, &finding)) {
        let count = known.count + finding.count;
        let mut other = finding;
        if other.code.class() == Class::Ordering {
            std::mem::swap(known, &mut other);
        }
        list_outcomes(known, &other);
        known.count = count;
        return;
    }
    let lost = |it: &Finding| {
        let lost = it.places.iter().find(|it| it.role == Role::Store);
        lost.map(|it| {
            (
                it.file.clone(),
                it.line,
                it.function.clone(),
                it.pool.clone(),
            )
        })
    };
    let is_prefix = |it: &Finding| it.tree.as_ref().is_some_and(TreeCrash::is_prefix);
    let same = findings
        .iter_mut()
        .find(|it| is_prefix(it) && lost(it).is_some() && lost(it) == lost(&finding));
    match same {
        Some(known) => {
            list_outcomes(known, &finding);
            known.count += finding.count;
        }
        None => findings.push(finding),
    }
}

/// Whether both are about one file that is lost while the same operation survives.
fn is_same_file(one: &Finding, other: &Finding) -> bool {
    let survivor = |it: &Finding| {
        let place = it.places.iter().find(|it| it.role == Role::Survivor)?;
        Some((
            place.file.clone(),
            place.line,
            place.function.clone(),
            place.pool.clone(),
        ))
    };
    let lost = |it: &Finding| {
        let place = it.places.iter().find(|it| it.role == Role::Store)?;
        place.pool.clone()
    };
    let is_creation = |it: &Finding| {
        let place = it.places.iter().find(|it| it.role == Role::Store);
        let operation = place.and_then(|it| it.operation.as_deref());
        operation.is_some_and(|it| it.starts_with(words::CREATION))
    };
    is_creation(one) != is_creation(other)
        && lost(one).is_some()
        && lost(one) == lost(other)
        && survivor(one).is_some()
        && survivor(one) == survivor(other)
}

/// Adds what the lint has proved: syncs that are useless, or retried after an error. A useless one that was made once may be needed in other runs, so it is only there if
/// warnings are wanted. So are candidates, which no crash has confirmed, if no finding is about the same operation.
fn add_linted(
    trace: &Trace,
    recording: &TreeRecording,
    options: &CrashOptions,
    places: &mut Places<'_>,
    crashed: &mut Crashed,
) -> Result<(), CheckError> {
    if options.is_partial() || options.only_races() {
        return Ok(());
    }
    let warnings = options.warnings;
    let findings = &mut crashed.findings;
    let key = |it: &SourcePlace| (it.file.clone(), it.line, it.function.clone());
    let known: BTreeSet<_> = findings.iter().flat_map(|it| &it.places).map(key).collect();
    for hit in file_lint::hits(trace, warnings)? {
        let mut finding = file_lint::finding(&hit, places)?;
        if let Some(beside) = hit.beside
            && blame_range(beside, &finding, recording, findings)
        {
            continue;
        }
        let is_candidate = finding.severity == Severity::Warning;
        let is_shown = match finding.code {
            Code::RedundantSync => finding.count > 1 && !is_candidate,
            Code::SyncRetried => true,
            // It is the reason of what a crash shows about the copy.
            Code::TemporaryElsewhere => warnings,
            _ => {
                finding.severity = Severity::Warning;
                false
            }
        };
        let is_known = || finding.places.iter().any(|it| known.contains(&key(it)));
        if is_shown || (warnings && !is_known()) {
            findings.push(finding);
        }
    }
    Ok(())
}

/// Adds to a bug whose data is lost which range was synced instead. Whether there is such a bug: the sync is no waste then.
fn blame_range(
    beside: DataBeside,
    sync: &Finding,
    recording: &TreeRecording,
    findings: &mut [Finding],
) -> bool {
    let Some(path) = recording.path_of(beside.node, recording.len()) else {
        return false;
    };
    let path = path.display().to_string();
    let is_lost = |it: &&SourcePlace| {
        it.role == Role::Store && it.pool.as_ref() == Some(&path) && it.pool_offset.is_some()
    };
    let line = { sync.places.iter() }.find_map(SourcePlace::file_and_line);
    let line = line.map_or_else(String::new, |line| format!(" at {line}"));
    let mut is_blamed = false;
    for bug in findings
        .iter_mut()
        .filter(|it| it.severity == Severity::Error)
    {
        let Some(at) = { bug.places.iter().find(is_lost) }.and_then(|it| it.pool_offset) else {
            continue;
        };
        is_blamed = true;
        bug.explain(format!(
            "the msync{line} covers {:#x}-{:#x}, the write is at {at:#x}",
            beside.range.offset,
            beside.range.end()
        ));
    }
    is_blamed
}

/// Says what it means for the result that recovery accepts changed trees.
fn judge_oracle(tested: Option<OracleTest>, crashed: &mut Crashed) {
    match tested.filter(|_| !crashed.is_interrupted) {
        Some(OracleTest::AcceptsAll) => crashed.notes.push(
            "this recovery cannot fail: it also accepts missing files, files of zeros, and data that was changed; let it \
             check what it recovers, or give a --checker"
                .to_owned(),
        ),
        Some(OracleTest::OpensNothing) => {
            crashed.totals.not_checked = Some(NotChecked::FilesNotOpened);
        }
        Some(OracleTest::CanFail | OracleTest::Unknown) | None => {}
    }
}

/// `1 moment`, `2 moments`.
fn moments(count: usize) -> String {
    match count {
        1 => "1 moment".to_owned(),
        _ => format!("{count} moments"),
    }
}
