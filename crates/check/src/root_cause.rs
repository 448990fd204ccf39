//! Findings of different kinds that have one root cause.
//!
//! A missing flush shows itself as a store that is never flushed, as data that is published too early, and as all that
//! recovery does without the data. A store that a transaction does not know shows itself as one that is not flushed, and
//! as a recovery that fails after a rollback. The finding that names the mistake stays; what a crash has shown is its
//! evidence, and what else recovery does is listed with it.

use powerfail_finding::{Code, Finding, NotDurable, RecoveryOutcome, Role, Severity, SourcePlace};

use crate::lint;
use crate::places::{CodeLine, is_same_code, line_of, lines_of};
use crate::symptom::add_outcome;

/// Where findings come from that may have the same root cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One recorded run.
    OneRun,
    /// Several runs: events and offsets in pools mean something else in each of them.
    SeveralRuns,
}

/// Whether two findings of different runs have the same root cause.
pub(crate) fn have_one_cause(one: &Finding, other: &Finding) -> bool {
    let (cause, other) = if order(one) <= order(other) {
        (one, other)
    } else {
        (other, one)
    };
    is_same(cause, other, Scope::SeveralRuns)
        || is_read_again(cause, other)
        || is_in_operation(cause, other)
        || is_in_operation(other, cause)
}

/// Whether a finding names what is missing: two bugs that one of these is a part of are one.
pub(crate) fn names_what_is_missing(finding: &Finding) -> bool {
    let is_it = is_of_missing_flush(finding.code)
        || matches!(finding.code, Code::StoreNotAdded | Code::CrossFailureRace);
    is_it && finding.severity == Severity::Error
}

/// Whether two findings are about reads of a store that both of them show: each test case reads it at other places, and
/// beside other stores that lack the same flush.
fn is_read_again(cause: &Finding, other: &Finding) -> bool {
    let is_race = |finding: &Finding| {
        finding.code == Code::CrossFailureRace && finding.severity == Severity::Error
    };
    let is_store = |store| stores(other).any(|it| is_same_code(store, it));
    is_race(cause) && is_race(other) && stores(cause).any(is_store)
}

/// Whether a finding is a failure of which nothing is known but that it is there: no line is to blame.
pub(crate) fn blames_nothing(finding: &Finding) -> bool {
    let is_blamed = |place: &SourcePlace| matches!(place.role, Role::Store | Role::Survivor);
    is_symptom(finding.code) && !finding.places.iter().any(is_blamed)
}

/// Whether a failure of which nothing is known happened in the function to which another finding points.
fn is_in_operation(cause: &Finding, other: &Finding) -> bool {
    let operation = subject(cause).and_then(function_of);
    let is_known = cause.severity == Severity::Error && !blames_nothing(cause);
    let mut failures = other.places.iter().filter(|it| it.role == Role::Failure);
    let is_in = |failure: &SourcePlace| {
        let mut frames = failure.stack.iter();
        frames.any(|frame| frame.file.clone().zip(frame.function.clone()) == operation)
    };
    is_known && operation.is_some() && blames_nothing(other) && failures.any(is_in)
}

/// The smaller, the better a finding says what is wrong, and shows it.
fn order(finding: &Finding) -> (u32, bool, bool, usize) {
    let is_doubted = finding.code == Code::StoreNotAdded && finding.severity != Severity::Error;
    (
        rank(finding),
        is_doubted,
        is_of_second_failure(finding),
        lost_lines(finding),
    )
}

/// Whether a finding needs a second power failure, during recovery. Of trees, recovery has a trace of its own.
fn is_of_second_failure(finding: &Finding) -> bool {
    let evidence = finding.evidence.as_ref();
    evidence.is_some_and(|it| it.failure.again.is_some() || it.trace.is_some())
}

/// Makes one finding of those that have the same root cause.
pub(crate) fn fold_root_causes(findings: &mut Vec<Finding>) {
    // Those that name the mistake first; of others, those that show it best.
    let mut numbers: Vec<usize> = (0..findings.len()).collect();
    numbers.sort_by_key(|number| (order(&findings[*number]), *number));
    let mut gone = vec![false; findings.len()];
    for (place, &cause) in numbers.iter().enumerate() {
        if gone[cause] {
            continue;
        }
        // What belongs to one of them may belong to another only by it.
        let mut members = vec![cause];
        let mut next = 0;
        while let Some(&member) = members.get(next) {
            next += 1;
            for &other in &numbers[place + 1..] {
                let is_new = !gone[other] && !members.contains(&other);
                let is_it = is_new
                    && (is_same(&findings[cause], &findings[other], Scope::OneRun)
                        || is_beside(&findings[member], &findings[other]));
                if is_it {
                    gone[other] = true;
                    members.push(other);
                    let other = findings[other].clone();
                    absorb(&mut findings[cause], other);
                }
            }
        }
    }
    let mut gone = gone.into_iter();
    findings.retain(|_| !gone.next().unwrap_or(false));
}

/// The smaller, the more exactly a finding names the mistake.
pub(crate) fn rank(finding: &Finding) -> u32 {
    match finding.code {
        Code::StoreNotAdded => 0,
        // What becomes visible too early says where the flush is missing.
        Code::PublishedBeforeDurable if finding.evidence.is_some() => 1,
        Code::StoreNotFlushed | Code::FlushNotFenced | Code::ObjectNotPersisted => 2,
        Code::PublishedBeforeDurable => 3,
        // The worst that recovery does.
        Code::RecoveryCrashes => 4,
        Code::RecoveryHangs => 5,
        Code::NeighbourFlush => 7,
        Code::LateFlush => 8,
        Code::TransientData => 9,
        _ => 6,
    }
}

/// Whether a finding says that a flush or fence is missing.
pub(crate) const fn is_of_missing_flush(code: Code) -> bool {
    matches!(
        code,
        Code::StoreNotFlushed
            | Code::FlushNotFenced
            | Code::ObjectNotPersisted
            | Code::PublishedBeforeDurable
    )
}

/// Whether a finding says that a flush may be missing: it is another one's if that one shows that the store is lost.
const fn is_hint(code: Code) -> bool {
    matches!(code, Code::NeighbourFlush | Code::LateFlush)
}

/// Whether a finding says what recovery does, and not why.
pub(crate) const fn is_symptom(code: Code) -> bool {
    matches!(
        code,
        Code::AcknowledgedLost
            | Code::RecoveryRejects
            | Code::ContentTorn
            | Code::CheckerRejects
            | Code::RecoveryCrashes
            | Code::RecoveryHangs
    )
}

fn is_same(cause: &Finding, other: &Finding, scope: Scope) -> bool {
    let is_one_run = scope == Scope::OneRun;
    if is_hint(other.code) {
        let names_more = is_of_missing_flush(cause.code)
            || is_symptom(cause.code)
            || matches!(cause.code, Code::NeighbourFlush | Code::CrossFailureRace);
        let stores = lines(other, Role::Store);
        let lost = lines(cause, Role::Store);
        let is_same_store = names_more && stores.iter().any(|line| lost.contains(line));
        return is_same_store || is_hint(cause.code) && is_one_run && is_same_record(cause, other);
    }
    if is_repeated_by_recovery(cause, other) {
        return true;
    }
    match cause.code {
        Code::StoreNotAdded => {
            is_not_rolled_back(cause, other, scope)
                || is_added_instead(cause, other)
                || is_not_added_again(cause, other)
                || is_one_run && is_added_together(cause, other)
        }
        Code::DuplicateAdd | Code::AddWithoutStore => is_same_add(cause, other),
        code if code.class().is_of_reads() => {
            is_one_run
                && (is_same_record(cause, other)
                    || is_record_of_same_type(cause, other)
                    || are_fenced_together(cause, other)
                    || are_unflushed_together(cause, other))
        }
        code if is_of_missing_flush(code) => {
            is_missed(cause, other, scope)
                || is_published_together(cause, other)
                || is_committed_together(cause, other)
                || is_flushed_instead(cause, other)
        }
        _ if is_repaired_together(cause, other) => true,
        code if is_symptom(code) && is_symptom(other.code) => {
            are_outcomes(cause, other) || wait_for_one_fence(cause, other)
        }
        code if is_symptom(code) => is_shown_lost(cause, other),
        _ => false,
    }
}

/// Whether two findings say what recovery does because of one lost store, or because of one store that comes too early.
fn are_outcomes(cause: &Finding, other: &Finding) -> bool {
    let is_of_first_failure = |finding: &Finding| {
        let evidence = finding.evidence.as_ref();
        evidence.is_some_and(|it| it.failure.again.is_none())
    };
    let lost = |finding: &Finding| lost_lines(finding) > 0;
    if !is_of_first_failure(cause) || !is_of_first_failure(other) || lost(cause) != lost(other) {
        return false;
    }
    let stores = |finding| lines(finding, Role::Store);
    let survivors = |finding| lines(finding, Role::Survivor);
    let is_same_store = !stores(cause).is_empty() && stores(cause) == stores(other);
    let is_same_survivor = survivors(cause) == survivors(other);
    if is_same_store && is_same_survivor {
        return true;
    }
    if lost(cause) {
        // The same store of one operation is lost, and another one of that operation shows it.
        let survivor = |finding: &Finding| {
            let places = finding.places.iter();
            let mut survivors = places.filter(|it| it.role == Role::Survivor);
            survivors.next().and_then(function_of)
        };
        let both = survivor(cause).zip(survivor(other));
        is_same_store && both.is_some_and(|(one, other)| one == other)
    } else {
        // The same store comes too early, and what it comes before is in one operation.
        !survivors(cause).is_empty() && is_same_survivor && share_function(cause, other)
    }
}

/// Whether crashes at one fence lose stores of the function that has it, beside others of that function or none: whatever makes recovery
/// rely on them comes too early for all of them.
fn wait_for_one_fence(cause: &Finding, other: &Finding) -> bool {
    let loses = |finding: &Finding| {
        let evidence = finding.evidence.as_ref();
        evidence.is_some_and(|it| !it.failure.lost_lines.is_empty() && it.failure.again.is_none())
    };
    let function = |finding: &Finding| stores(finding).next().and_then(function_of);
    let is_alone = |finding: &Finding| {
        let survivors = finding.places.iter().filter(|it| it.role == Role::Survivor);
        survivors.map(function_of).all(|it| it == function(finding))
    };
    // Where that function is when the power fails.
    let fence = |finding: &Finding| {
        let function = function(finding)?;
        let failure = finding.places.iter().find(|it| it.role == Role::Failure)?;
        let mut frames = failure.stack.iter();
        let frame = frames.find(|frame| {
            frame.file.clone().zip(frame.function.clone()).as_ref() == Some(&function)
        })?;
        Some((function, frame.line?))
    };
    [cause, other].iter().all(|it| loses(it) && is_alone(it))
        && fence(cause).is_some()
        && fence(cause) == fence(other)
}

/// Whether what the lint says about a store without a flush is about one that a crash has lost, and recovery fails then.
fn is_shown_lost(cause: &Finding, other: &Finding) -> bool {
    let evidence = cause.evidence.as_ref();
    let is_by_loss =
        evidence.is_some_and(|it| !it.failure.lost_lines.is_empty() && it.failure.again.is_none());
    let is_lost = |store| stores(cause).any(|lost| is_same_code(store, lost));
    is_by_loss
        && other.evidence.is_none()
        && lacks_flush(other)
        && stores(other).next().is_some_and(is_lost)
}

/// Whether a finding comes from a store that its transaction does not know.
fn is_not_rolled_back(cause: &Finding, other: &Finding, scope: Scope) -> bool {
    let about = is_of_missing_flush(other.code)
        || is_symptom(other.code)
        || matches!(other.code, Code::TransientData | Code::CrossFailureRace);
    if !about {
        return false;
    }
    let stores = lines(cause, Role::Store);
    // What makes lost data reachable does so only because it is not rolled back.
    let named = [Role::Store, Role::Survivor, Role::Publish].map(|role| lines(other, role));
    let named = named.concat();
    if named.iter().any(|line| stores.contains(line)) {
        return true;
    }
    if scope == Scope::SeveralRuns {
        return false;
    }
    // Recovery fails at the end of the transaction, and not without the store.
    let (Some(shown), Some(failing)) = (&cause.evidence, &other.evidence) else {
        return false;
    };
    let is_content = matches!(shown.recovery, RecoveryOutcome::Content { .. });
    let from = failing.last_good_event.unwrap_or(failing.failure.event);
    let to = failing.next_good_event.unwrap_or(failing.failure.event);
    is_symptom(other.code)
        && !is_content
        && failing.failure.lost_lines.is_empty()
        && (from..=to).contains(&shown.failure.event)
}

/// Whether a finding is about the loss of a store that lacks a flush.
fn is_missed(cause: &Finding, other: &Finding, scope: Scope) -> bool {
    let first = stores(other).next();
    let is_same_store =
        first.is_some_and(|lost| stores(cause).any(|store| is_same_code(store, lost)));
    if is_symptom(other.code) {
        let evidence = other.evidence.as_ref();
        let is_by_loss = evidence
            .is_some_and(|it| !it.failure.lost_lines.is_empty() && it.failure.again.is_none());
        return is_same_store && is_by_loss;
    }
    // What is overwritten before it is durable is never durable without a flush.
    if other.code == Code::DirtyOverwrite {
        return is_same_store;
    }
    let is_beside = scope == Scope::OneRun && is_beside(cause, other);
    lacks_flush(other) && (is_same_store || is_beside)
}

/// Whether a finding says that a store is not flushed, whether or not that is a mistake.
pub(crate) fn lacks_flush(finding: &Finding) -> bool {
    is_of_missing_flush(finding.code) || finding.code == Code::TransientData
}

/// Whether a finding that no crash has shown is about a store beside that of another one, by the same function and in the
/// same line of the pool or in the same object: one flush is for both. The two may have been seen in different objects of
/// one type, so that only the lines of code tell.
fn is_beside(cause: &Finding, other: &Finding) -> bool {
    let lack_flushes = lacks_flush(cause) && lacks_flush(other);
    let is_object = [cause, other]
        .iter()
        .any(|it| it.code == Code::ObjectNotPersisted);
    let is_same_object = is_object
        && share_function(cause, other)
        && (are_near(cause, other) || are_next(cause, other));
    let is_same_place = share_line(cause, other) || is_same_object;
    let is_unshown = other.evidence.is_none() || is_same_object && cause.evidence.is_none();
    lack_flushes && is_unshown && is_same_place
}

/// The place that is compared with that of another finding: the first one, or what is missing where the first one is the
/// store that comes too early.
fn subject(finding: &Finding) -> Option<&SourcePlace> {
    let is_missing = |place: &&SourcePlace| place.role == Role::Store;
    match finding.places.first() {
        Some(first) if first.role == Role::Survivor => {
            finding.places.iter().find(is_missing).or(Some(first))
        }
        first => first,
    }
}

/// Whether the subjects of two findings are a few lines of code apart.
fn are_next(one: &Finding, other: &Finding) -> bool {
    const LINES_MAX: u32 = 4;
    let line = |finding: &Finding| subject(finding).and_then(|place| place.line);
    let both = line(one).zip(line(other));
    both.is_some_and(|(one, other)| one.abs_diff(other) <= LINES_MAX)
}

/// Whether the stores of two findings are near each other, as the fields of one object are. Objects of PMDK have at least
/// this distance.
fn are_near(one: &Finding, other: &Finding) -> bool {
    const OBJECT_BYTES: u64 = 128;
    let store = |finding: &Finding| {
        let store = subject(finding).filter(|it| it.role == Role::Store)?;
        Some((store.pool.clone()?, store.pool_offset?))
    };
    match (store(one), store(other)) {
        (Some((pool, at)), Some((other_pool, other_at))) => {
            pool == other_pool && at.abs_diff(other_at) < OBJECT_BYTES
        }
        _ => false,
    }
}

/// Whether two findings of one kind are about one record: their stores are in the same function and line of the pool, so that
/// one flush, fence or commit is for both.
fn is_same_record(cause: &Finding, other: &Finding) -> bool {
    let same = (cause.code, cause.severity) == (other.code, other.severity);
    same && share_line(cause, other)
}

/// Whether two findings are about stores of one function to fields of a record that are not valid when they are read, seen in
/// different records of one type: the lines of code are next to each other, and the same stores commit.
fn is_record_of_same_type(cause: &Finding, other: &Finding) -> bool {
    let commits = |finding| lines(finding, Role::Commit);
    cause.code == Code::CrossFailureSemantic
        && (cause.code, cause.severity) == (other.code, other.severity)
        && commits(cause) == commits(other)
        && share_function(cause, other)
        && are_next(cause, other)
}

/// Whether two findings are about reads of data that one function stores to neighbouring lines and flushes, and of which only
/// the fence comes too late: one fence is for both.
fn are_fenced_together(cause: &Finding, other: &Finding) -> bool {
    let lacks_fence = |finding: &Finding| {
        let why = finding.read.as_ref().and_then(|read| read.not_durable);
        why == Some(NotDurable::NotFenced)
    };
    (cause.code, cause.severity) == (other.code, other.severity)
        && lacks_fence(cause)
        && lacks_fence(other)
        && share_function(cause, other)
        && are_near(cause, other)
        && (are_stored_before_flushed(cause, other) || survive_one_store(cause, other))
}

/// Whether two findings are about reads of data that a crash at one moment loses because nothing has flushed it, stored by
/// one thread to one line of the pool or by neighbouring lines of one function: what makes recovery rely on it comes too early
/// for both, and one flush before that is for both.
fn are_unflushed_together(cause: &Finding, other: &Finding) -> bool {
    let moment = |finding: &Finding| {
        let read = finding.read.as_ref()?;
        let is_unflushed = read.not_durable == Some(NotDurable::NeverFlushed);
        is_unflushed.then(|| (read.trace.clone(), read.event))
    };
    let thread = |finding: &Finding| stores(finding).next().and_then(|store| store.thread);
    cause.code == Code::CrossFailureRace
        && (cause.code, cause.severity) == (other.code, other.severity)
        && moment(cause).is_some()
        && moment(cause) == moment(other)
        && thread(cause) == thread(other)
        && (line_in_pool(cause).is_some() && line_in_pool(cause) == line_in_pool(other)
            || share_function(cause, other) && are_next(cause, other))
}

/// Whether two findings show their losses beside one store that survives: a fence before it is for both.
fn survive_one_store(one: &Finding, other: &Finding) -> bool {
    let survivors = |finding| {
        [
            lines(finding, Role::Survivor),
            lines(finding, Role::Publish),
        ]
        .concat()
    };
    let stores = [lines(one, Role::Store), lines(other, Role::Store)].concat();
    !survivors(one).is_empty()
        && survivors(one) == survivors(other)
        && !survivors(one).iter().any(|it| stores.contains(it))
}

/// Whether both stores of two findings come before both flushes. A store after the flush of the other one may publish it: a
/// fence is missing between them, and not behind both.
fn are_stored_before_flushed(one: &Finding, other: &Finding) -> bool {
    let event = |finding: &Finding, role: Role| {
        let mut places = finding.places.iter();
        places.find(|place| place.role == role)?.event
    };
    let both = |role| event(one, role).zip(event(other, role));
    both(Role::Store)
        .zip(both(Role::Flush))
        .is_some_and(|(stores, flushes)| stores.0.max(stores.1) < flushes.0.min(flushes.1))
}

/// Whether two findings are about data that one function stores and publishes by one store: one fence before that is for
/// both.
fn is_published_together(cause: &Finding, other: &Finding) -> bool {
    let is_published = cause.code == Code::PublishedBeforeDurable && cause.code == other.code;
    let publish = |finding: &Finding| lines(finding, Role::Publish);
    is_published
        && cause.severity == other.severity
        && !publish(cause).is_empty()
        && publish(cause) == publish(other)
        && share_function(cause, other)
}

/// Whether crashes show that two stores of one function lack a flush beside one store that survives: they are parts of what that
/// store commits, and one flush before it is for both.
fn is_committed_together(cause: &Finding, other: &Finding) -> bool {
    let is_lost = |finding: &Finding| {
        finding.code == Code::StoreNotFlushed && finding.severity == Severity::Error
    };
    is_lost(cause)
        && is_lost(other)
        && survive_one_store(cause, other)
        && share_function(cause, other)
}

/// Whether two findings are about stores of one function of recovery that a second failure loses: one fence is for both.
fn is_repaired_together(cause: &Finding, other: &Finding) -> bool {
    let is_second = |finding: &Finding| {
        let evidence = finding.evidence.as_ref();
        evidence.is_some_and(|it| it.failure.again.is_some())
    };
    // What recovery does then depends on the moment.
    is_symptom(cause.code)
        && is_symptom(other.code)
        && is_second(cause)
        && is_second(other)
        && share_function(cause, other)
}

/// Whether recovery makes the mistake of the workload once more, and a second failure shows it: where the workload is its own
/// recovery, both execute the same code.
fn is_repeated_by_recovery(cause: &Finding, other: &Finding) -> bool {
    if is_of_second_failure(cause) || !is_of_second_failure(other) {
        return false;
    }
    let is_same_mistake = cause.code == other.code
        && subject(cause)
            .zip(subject(other))
            .is_some_and(|(one, other)| is_same_code(one, other));
    let lacks_flush = is_of_missing_flush(cause.code) && cause.severity == Severity::Error;
    is_same_mistake
        || is_store_of_recovery(cause, other)
        || lacks_flush && is_symptom(other.code) && share_function(cause, other)
}

/// Whether the first failure has hit recovery itself, because the workload recovers, and comes too early for the same store as the second
/// failure of another recovery: the same line, called in the same way.
fn is_store_of_recovery(cause: &Finding, other: &Finding) -> bool {
    fn functions(store: &SourcePlace) -> impl Iterator<Item = Option<&str>> {
        store.stack.iter().map(|it| it.function.as_deref())
    }
    let is_called_so = |known: &SourcePlace, store: &SourcePlace| {
        is_same_code(known, store) && store.stack.len() > 1 && functions(known).eq(functions(store))
    };
    let mut missing = stores(other);
    is_symptom(cause.code)
        && is_symptom(other.code)
        && missing
            .next()
            .is_some_and(|store| stores(cause).any(|known| is_called_so(known, store)))
}

/// Whether the subject of a finding is worth showing in the one that it is a part of.
fn names_further_place(cause: &Finding, other: &Finding) -> bool {
    let are_stores = cause.code.class().is_of_reads() || is_hint(cause.code);
    let is_one_record = is_same_record(cause, other) || is_record_of_same_type(cause, other);
    are_stores
        && (is_one_record
            || are_fenced_together(cause, other)
            || are_unflushed_together(cause, other))
        || is_added_instead(cause, other)
        || is_added_together(cause, other)
        || is_published_together(cause, other)
        || is_committed_together(cause, other)
        || is_repaired_together(cause, other)
}

/// Whether the subjects of two findings are in the same function.
pub(crate) fn share_function(one: &Finding, other: &Finding) -> bool {
    let function = |finding: &Finding| subject(finding).and_then(function_of);
    function(one).is_some_and(|it| function(other) == Some(it))
}

/// Whether the stores of two findings are in the same function, and in the same line of the pool.
fn share_line(one: &Finding, other: &Finding) -> bool {
    line_in_pool(one).is_some()
        && line_in_pool(one) == line_in_pool(other)
        && share_function(one, other)
}

/// The line of the pool to which the store of a finding is.
fn line_in_pool(finding: &Finding) -> Option<(String, u64)> {
    const LINE_BYTES: u64 = 64;
    let store = subject(finding).filter(|it| it.role == Role::Store)?;
    Some((store.pool.clone()?, store.pool_offset? / LINE_BYTES))
}

fn function_of(place: &SourcePlace) -> Option<(String, String)> {
    // Without lines of the sources, a module tells functions of one name apart.
    let file = place.file.clone().or_else(|| place.module.clone())?;
    Some((file, place.function.clone()?))
}

/// Whether a range that is not stored to, or that was added already, was added a few lines before a store to what was not
/// added: it is the wrong one.
/// Farther away, it may be another mistake.
fn is_added_instead(cause: &Finding, other: &Finding) -> bool {
    cause.code == Code::StoreNotAdded
        && is_of_add(other.code)
        && cause.severity == Severity::Error
        && is_right_before(other, cause)
        && share_function(cause, other)
}

/// Whether a finding says that a range need not be added.
const fn is_of_add(code: Code) -> bool {
    matches!(code, Code::DuplicateAdd | Code::AddWithoutStore)
}

/// Whether two findings are about one line that adds too much: what is not stored to may also be added already.
fn is_same_add(cause: &Finding, other: &Finding) -> bool {
    let add = |finding: &Finding| finding.places.first().map(line_of).filter(is_known);
    is_of_add(other.code) && add(cause).is_some() && add(cause) == add(other)
}

/// Whether two findings are about stores that are not added, and have one of them in common: each test case stores to other
/// fields of the object.
fn is_not_added_again(cause: &Finding, other: &Finding) -> bool {
    let is_store = |store| stores(other).any(|it| is_same_code(store, it));
    other.code == Code::StoreNotAdded && stores(cause).any(is_store)
}

/// Whether something that needs no flush is flushed some lines after a store that lacks one, in the same function: it is
/// the wrong thing. A fence after that has nothing to wait for.
fn is_flushed_instead(cause: &Finding, other: &Finding) -> bool {
    const LINES_MAX: u32 = 12;
    is_of_missing_flush(cause.code)
        && matches!(
            other.code,
            Code::RedundantFlush | Code::RedundantFence | Code::VolatileFlush
        )
        && cause.severity == Severity::Error
        && is_before(cause, other, LINES_MAX)
        && share_function(cause, other)
}

/// Whether the subject of a finding is at most a few lines of code before that of another one.
fn is_right_before(first: &Finding, then: &Finding) -> bool {
    const LINES_MAX: u32 = 3;
    is_before(first, then, LINES_MAX)
}

fn is_before(first: &Finding, then: &Finding, lines_max: u32) -> bool {
    let line = |finding: &Finding| subject(finding).and_then(|it| it.line);
    let distance = line(first)
        .zip(line(then))
        .and_then(|(first, then)| then.checked_sub(first));
    distance.is_some_and(|distance| (1..=lines_max).contains(&distance))
}

/// Whether two findings are about stores of one function and transaction to memory near each other, which is one object: one
/// add is for both.
fn is_added_together(cause: &Finding, other: &Finding) -> bool {
    let begins = |finding: &Finding| lines(finding, Role::Transaction);
    cause.code == Code::StoreNotAdded
        && cause.code == other.code
        && are_near(cause, other)
        && begins(cause) == begins(other)
        && share_function(cause, other)
}

/// The lines of code of a finding's places with a role.
fn lines(finding: &Finding, role: Role) -> Vec<CodeLine> {
    let places = finding.places.iter();
    let places = places.filter(|place| place.role == role);
    places.map(line_of).filter(is_known).collect()
}

fn is_known((_, line, _, offset): &CodeLine) -> bool {
    line.is_some() || offset.is_some()
}

fn lost_lines(finding: &Finding) -> usize {
    let evidence = finding.evidence.as_ref();
    evidence.map_or(0, |it| it.failure.lost_lines.len())
}

/// Adds what another finding shows to the one that names the mistake.
pub(crate) fn absorb(cause: &mut Finding, mut other: Finding) {
    let beside: Vec<SourcePlace> = { [&*cause, &other].into_iter() }
        .flat_map(unflushed)
        .cloned()
        .collect();
    if loses_another_store(cause, &other) {
        // Only what is lost in its own evidence is called lost.
        std::mem::swap(cause, &mut other);
        let is_same_line = stores(cause).any(|it| stores(&other).any(|of| is_same_code(it, of)));
        if is_same_line && is_symptom(cause.code) {
            // What is missing is known all the same.
            (cause.code, cause.class) = (other.code, other.class);
        }
    }
    blame_helper(cause, &other);
    cause.count = cause.count.max(other.count);
    let is_shown = other.evidence.is_some() && other.severity == Severity::Error;
    if is_shown && cause.code == Code::StoreNotAdded && cause.severity != Severity::Error {
        let what = ", and recovery fails because it is not rolled back";
        cause.message = lint::not_added(&cause.places, what);
    }
    // An error stays one, also under the name of a finding that was only a warning.
    let is_certain = other.severity == Severity::Error;
    if is_certain || cause.evidence.is_none() && cause.code != Code::StoreNotAdded {
        cause.severity = cause.severity.min(other.severity);
    }
    if names_further_place(cause, &other) {
        let known: Vec<CodeLine> = cause.places.iter().map(line_of).collect();
        let further = subject(&other).cloned();
        cause
            .places
            .extend(further.filter(|it| !known.contains(&line_of(it))));
    }
    let mut outcomes = std::mem::take(&mut other.consequences);
    match (&cause.evidence, &other.evidence) {
        (Some(_), Some(evidence)) => outcomes.insert(0, evidence.recovery.clone()),
        (None, Some(_)) => take_evidence(cause, other),
        (_, None) => {}
    }
    for outcome in &outcomes {
        add_consequence(cause, outcome);
    }
    cause.beside = beside;
    let shown: Vec<SourcePlace> = stores(cause).cloned().collect();
    { &mut cause.beside }.retain(|it| !shown.iter().any(|store| is_same_code(store, it)));
}

/// The stores without a flush that a finding stands for, as far as no crash shows them.
fn unflushed(finding: &Finding) -> impl Iterator<Item = &SourcePlace> {
    let is_it = finding.evidence.is_none() && lacks_flush(finding);
    let first = is_it.then(|| stores(finding).next()).flatten();
    first.into_iter().chain(&finding.beside)
}

/// Whether what the lint says about a store without a flush was seen to be a part of another finding.
pub(crate) fn is_seen_beside(cause: &Finding, other: &Finding) -> bool {
    let is_it = |store| cause.beside.iter().any(|it| is_same_code(it, store));
    other.evidence.is_none() && lacks_flush(other) && stores(other).next().is_some_and(is_it)
}

/// Whether a crash that lost other stores than that of a missing flush would become its evidence.
fn loses_another_store(cause: &Finding, other: &Finding) -> bool {
    // One line of code stores many times: the store that is shown is the one that the crash lost.
    let is_lost = |store: &SourcePlace| {
        stores(other).any(|lost| is_same_code(store, lost) && store.event == lost.event)
    };
    cause.evidence.is_none()
        && lost_lines(other) > 0
        && lacks_flush(cause)
        && stores(other).next().is_some()
        && !stores(cause).any(is_lost)
}

/// The stores that a finding is about.
fn stores(finding: &Finding) -> impl Iterator<Item = &SourcePlace> {
    let places = finding.places.iter();
    places.filter(|place| place.role == Role::Store)
}

/// Blames the helper and not the line that calls it, if the lint has found that it never flushes what it stores.
fn blame_helper(cause: &mut Finding, other: &Finding) {
    let (Some(store), Some(helper)) = (cause.places.first_mut(), other.places.first()) else {
        return;
    };
    let is_it = helper.helper.is_none() && lines_of(store)[1..].contains(&line_of(helper));
    if is_it && lacks_flush(other) && other.evidence.is_none() {
        store.file.clone_from(&helper.file);
        store.line = helper.line;
        store.function.clone_from(&helper.function);
        store.helper = None;
    }
}

/// What a crash has shown, and what makes that impossible: a fix belongs to a crash state.
fn take_evidence(cause: &mut Finding, other: Finding) {
    cause.evidence = other.evidence;
    cause.marks = other.marks;
    if cause.code != Code::StoreNotAdded {
        cause.fix = other.fix;
        cause.suggestion = other.suggestion;
        cause.explanation = other.explanation;
    }
    for place in other.places.into_iter().filter(|it| shows(it.role)) {
        if cause.places.iter().all(|it| it.role != place.role) {
            cause.places.push(place);
        }
    }
}

/// Lists something else that recovery does, once.
pub(crate) fn add_consequence(finding: &mut Finding, outcome: &RecoveryOutcome) {
    let shown = finding.evidence.as_ref().map(|it| &it.recovery);
    add_outcome(&mut finding.consequences, shown, outcome);
}

/// Whether a place is a part of what a crash showed.
const fn shows(role: Role) -> bool {
    matches!(
        role,
        Role::Survivor | Role::Publish | Role::Failure | Role::Recovery
    )
}

#[cfg(test)]
pub(crate) mod tests;
