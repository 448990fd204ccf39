//! One finding for one root cause.

use powerfail_finding::{
    Action, Code, Finding, Operation, Role, Severity, SourcePlace, assign_ids,
};

use crate::places::{code_of, is_same_code};
use crate::races::are_about_one_store;
use crate::root_cause::{
    absorb, add_consequence, blames_nothing, fold_root_causes, have_one_cause, is_seen_beside,
    lacks_flush, names_what_is_missing, rank,
};
use crate::transient::summarise_transient_data;

/// A line to blame, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Blamed {
    role: Role,
    file: Option<String>,
    line: Option<u32>,
    function: Option<String>,
    /// Where there is no line: the module.
    module: Option<String>,
    /// Where there is no line: see [`code_of`].
    code: Option<String>,
}

/// What makes two findings the same bug.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BugKey((Code, Vec<Blamed>));

/// What a finding is about, to tell whether another one is about the same.
pub fn bug_key(finding: &Finding) -> BugKey {
    BugKey(key(finding))
}

/// Whether two findings of different runs of a program are the same bug.
pub fn is_same_bug(one: &Finding, other: &Finding) -> bool {
    let mirrored = |finding| pair(finding).map(|(code, lost, survivor)| (code, survivor, lost));
    key(one) == key(other)
        || pair(one).is_some() && pair(one) == mirrored(other)
        || have_one_cause(one, other)
        || are_about_one_store(one, other)
        || is_seen_beside(one, other)
        || is_seen_beside(other, one)
}

/// Whether two bugs are one if this finding is about both of them.
pub fn joins_bugs(finding: &Finding) -> bool {
    names_what_is_missing(finding)
}

/// Whether another finding of the same bug says more about it than the known one: it is worse, it names a line to blame, a
/// crash shows it, or it names the mistake more exactly.
pub fn says_more(other: &Finding, known: &Finding) -> bool {
    let of = |finding: &Finding| {
        let is_unproven = finding.evidence.is_none();
        (
            finding.severity,
            blames_nothing(finding),
            is_unproven,
            rank(finding),
        )
    };
    of(other) < of(known)
}

/// Lists what recovery does in another finding of the same bug. Returns whether that is new.
pub fn list_outcomes(finding: &mut Finding, other: &Finding) -> bool {
    let before = finding.consequences.len();
    let shown = other.evidence.iter().map(|it| &it.recovery);
    for outcome in shown.chain(&other.consequences) {
        add_consequence(finding, outcome);
    }
    finding.consequences.len() > before
}

/// Lists the stores that were seen to be a part of another finding of the same bug. Returns whether there are new ones.
pub fn list_beside(finding: &mut Finding, other: &Finding) -> bool {
    let before = finding.beside.len();
    for place in &other.beside {
        if !finding.beside.iter().any(|it| is_same_code(it, place)) {
            finding.beside.push(place.clone());
        }
    }
    finding.beside.len() > before
}

/// What makes two findings the same bug: the kind, and the lines to blame.
fn key(finding: &Finding) -> (Code, Vec<Blamed>) {
    // One store is to blame, whichever other one shows it.
    let is_of_one_store = matches!(
        finding.code,
        Code::StoreNotFlushed
            | Code::FlushNotFenced
            | Code::StoreNotAdded
            | Code::ObjectNotPersisted
            | Code::NeighbourFlush
            | Code::LateFlush
    );
    let is_of_one_add = matches!(finding.code, Code::DuplicateAdd | Code::AddWithoutStore);
    let is_of_a_read = finding.code.class().is_of_reads();
    let blamed = |place: &&SourcePlace| {
        if is_of_one_store {
            return place.role == Role::Store;
        }
        if finding.code.class().is_of_program() {
            return place.role == Role::Failure;
        }
        if is_of_a_read {
            return matches!(place.role, Role::Store | Role::Allocation | Role::Load);
        }
        matches!(
            place.role,
            Role::Store
                | Role::Survivor
                | Role::Overwrite
                | Role::Publish
                | Role::Flush
                | Role::Fence
        )
    };
    let places = finding
        .places
        .iter()
        .take(if is_of_one_add { 1 } else { usize::MAX });
    // Others of the same kind that are shown with it are not what tells it apart.
    let first_store = finding.places.iter().find(|it| it.role == Role::Store);
    let is_further = |place: &SourcePlace| {
        let has_others = [
            Code::PublishedBeforeDurable,
            Code::StoreNotAdded,
            Code::NeighbourFlush,
            Code::LateFlush,
        ];
        let kept = is_of_a_read || has_others.contains(&finding.code);
        kept && place.role == Role::Store && first_store != Some(place)
    };
    let places = places.filter(|place| is_of_one_add || blamed(place) && !is_further(place));
    let lines = places.map(|place| Blamed {
        role: place.role,
        file: place.file.clone(),
        line: place.line,
        function: place.function.clone(),
        module: place.module.clone().filter(|_| place.line.is_none()),
        code: code_of(place),
    });
    (finding.code, lines.collect())
}

/// Puts findings of the same bug together, sorts them and gives them their ids.
pub(crate) fn group(findings: Vec<Finding>) -> Vec<Finding> {
    let unflushed: Vec<SourcePlace> = findings
        .iter()
        .filter(|it| lacks_flush(it) && it.evidence.is_none())
        .filter_map(|it| it.places.iter().find(|it| it.role == Role::Store).cloned())
        .collect();
    let mut grouped: Vec<Finding> = Vec::new();
    for finding in findings {
        match grouped.iter_mut().find(|known| key(known) == key(&finding)) {
            // What a crash has shown says more than what the trace says alone.
            Some(known) if known.evidence.is_none() && finding.evidence.is_some() => {
                let count = known.count.max(finding.count);
                *known = Finding { count, ..finding };
            }
            Some(known) if known.evidence.is_some() && finding.evidence.is_none() => {}
            Some(known) => {
                let count = known.count + finding.count;
                absorb(known, finding);
                known.count = count;
            }
            None => grouped.push(finding),
        }
    }
    fold_inseparable(&mut grouped, &unflushed);
    fold_mirrored(&mut grouped);
    fold_interleaved(&mut grouped);
    fold_root_causes(&mut grouped);
    summarise_transient_data(&mut grouped);
    drop_opposite(&mut grouped);
    let place_of = |finding: &Finding| {
        let first = finding.places.first();
        (
            finding.severity != Severity::Error,
            finding.severity,
            finding.code,
            first.and_then(|place| place.file.clone()),
            first.and_then(|place| place.line),
            first.and_then(|place| place.event),
        )
    };
    grouped.sort_by_key(place_of);
    assign_ids(&mut grouped);
    grouped
}

/// Removes findings that want less of what another one wants more of, in the same line of the sources: a macro that
/// stores, and flushes something else, is missing a flush, and a flush that lacks a fence is needed. Which of the two is
/// too much is not to be said before.
fn drop_opposite(findings: &mut Vec<Finding>) {
    let mut wanted = Vec::new();
    for finding in findings.iter().filter(|finding| wants_more(finding)) {
        let blamed = finding.places.iter();
        let blamed = blamed.filter(|place| matches!(place.role, Role::Store | Role::Flush));
        wanted.extend(blamed.filter_map(|place| place.file.clone().zip(place.line)));
        let changes = finding.fix.iter().flat_map(|fix| &fix.changes);
        let inserted = changes.filter(|change| change.action == Action::Insert);
        wanted.extend(inserted.filter_map(|change| change.file.clone().zip(change.line)));
    }
    findings.retain(|finding| {
        let first = finding.places.first();
        let line = first.and_then(|it| it.file.clone().zip(it.line));
        !wants_less(finding.code) || line.is_none_or(|line| !wanted.contains(&line))
    });
}

/// Whether a finding wants a flush or fence that is not there.
fn wants_more(finding: &Finding) -> bool {
    let is_named = matches!(
        finding.code,
        Code::StoreNotFlushed
            | Code::FlushNotFenced
            | Code::ObjectNotPersisted
            | Code::PublishedBeforeDurable
            | Code::TransientData
    );
    let changes = finding.fix.iter().flat_map(|fix| &fix.changes);
    let orders = |operation| operation != Operation::Add;
    let mut inserted = changes.filter(|it| it.action == Action::Insert && orders(it.operation));
    is_named || inserted.next().is_some()
}

/// Whether a finding wants a flush or fence to go.
const fn wants_less(code: Code) -> bool {
    matches!(
        code,
        Code::RedundantFlush | Code::RedundantFence | Code::VolatileFlush
    )
}

/// Two stores of which neither may survive without the other are one bug. What needs fewer lost lines shows it.
fn fold_mirrored(findings: &mut Vec<Finding>) {
    let lost_lines = |finding: &Finding| {
        let evidence = finding.evidence.as_ref();
        evidence.map_or(usize::MAX, |it| it.failure.lost_lines.len())
    };
    let mut number = 0;
    while number < findings.len() {
        let this = pair(&findings[number]);
        let other = this.and_then(|(code, lost, survivor)| {
            let mirrored = Some((code, survivor, lost));
            findings.iter().position(|other| pair(other) == mirrored)
        });
        match other {
            Some(other) if other > number => {
                let keeps = lost_lines(&findings[number]) <= lost_lines(&findings[other]);
                let count = findings[number].count + findings[other].count;
                if !keeps {
                    findings.swap(number, other);
                }
                let other = findings.remove(other);
                absorb(&mut findings[number], other);
                findings[number].count = count;
            }
            _ => {}
        }
        number += 1;
    }
}

/// Of two stores of a function, neither may survive without the other, and one of that needs no lost line: no flush repairs it, and what
/// makes the two reachable comes too early. Of that, a further store of the function that is lost beside one of them is a part,
/// unless it is `unflushed`.
fn fold_inseparable(findings: &mut Vec<Finding>, unflushed: &[SourcePlace]) {
    let mut number = 0;
    while number < findings.len() {
        let mirrored = |other: &Finding| {
            let this = in_one_function(&findings[number]);
            let swapped = in_one_function(other).map(|it| (it.function, it.survivor, it.lost));
            this.is_some() && this.map(|it| (it.function, it.lost, it.survivor)) == swapped
        };
        let needs_no_loss = in_one_function(&findings[number]).is_some_and(|it| !it.loses_lines);
        let other = findings.iter().position(mirrored).filter(|_| needs_no_loss);
        let Some(mut other) = other else {
            number += 1;
            continue;
        };
        let is_excused = |finding: &Finding| {
            let stores = finding.places.iter().filter(|it| it.role == Role::Store);
            { stores }.any(|it| unflushed.iter().any(|known| is_same_code(known, it)))
        };
        let mut lines: Vec<(String, u32)> = Vec::new();
        let function = in_one_function(&findings[number]).map(|it| it.function.to_owned());
        loop {
            let removed = findings.remove(other);
            number -= usize::from(other < number);
            for finding in [&removed, &findings[number]] {
                let pair = in_one_function(finding);
                lines.extend(
                    pair.into_iter()
                        .flat_map(|it| [it.lost, it.survivor])
                        .map(|(file, line)| (file.to_owned(), line)),
                );
            }
            let count = findings[number].count + removed.count;
            absorb(&mut findings[number], removed);
            findings[number].count = count;
            let is_part = |(place, finding): (usize, &Finding)| {
                let pair = in_one_function(finding).filter(|it| {
                    place != number
                        && it.loses_lines
                        && it.fences
                        && Some(it.function) == function.as_deref()
                });
                let mut both = pair.into_iter().flat_map(|it| [it.lost, it.survivor]);
                both.any(|(file, line)| {
                    lines
                        .iter()
                        .any(|known| (known.0.as_str(), known.1) == (file, line))
                }) && !is_excused(finding)
            };
            match findings.iter().enumerate().position(is_part) {
                Some(next) => other = next,
                None => break,
            }
        }
        number += 1;
    }
}

/// A finding about two stores of one function, of which a crash shows that one does not survive without the other.
#[derive(Clone, Copy)]
struct InOneFunction<'a> {
    function: &'a str,
    lost: (&'a str, u32),
    survivor: (&'a str, u32),
    /// Whether lines are lost that hold stores from before the failure.
    loses_lines: bool,
    /// Whether the power fails at a fence of the function.
    fences: bool,
}

fn in_one_function(finding: &Finding) -> Option<InOneFunction<'_>> {
    let failure = &finding.evidence.as_ref()?.failure;
    let (_, lost, survivor) = pair(finding)?;
    let function = |role: Role| {
        let place = finding.places.iter().find(|it| it.role == role)?;
        place.function.as_deref()
    };
    let (lost, survivor) = ((lost.0?, lost.1?), (survivor.0?, survivor.1?));
    let name = function(Role::Store)
        .filter(|it| Some(*it) == function(Role::Survivor) && lost.0 == survivor.0)?;
    let failing = finding.places.iter().find(|it| it.role == Role::Failure);
    let mut frames = failing.iter().flat_map(|it| &it.stack);
    failure.again.is_none().then(|| InOneFunction {
        function: name,
        lost,
        survivor,
        loses_lines: !failure.lost_lines.is_empty(),
        fences: frames.any(|frame| frame.function.as_deref() == Some(name)),
    })
}

/// One store must not survive without another one, and does so in two ways: where the power fails between the two, and where
/// one thread makes the first while the second, of another thread, is not durable yet. What makes the two atomic repairs both,
/// and no flush does: so that the power fails between them says what is wrong.
fn fold_interleaved(findings: &mut Vec<Finding>) {
    let mut number = 0;
    while number < findings.len() {
        let is_it = |other: &Finding| is_interleaved(&findings[number], other);
        match findings.iter().position(is_it) {
            Some(other) => {
                let other = findings.remove(other);
                number = findings
                    .iter()
                    .position(|it| is_interleaved(it, &other))
                    .unwrap_or(0);
                let count = findings[number].count + other.count;
                absorb(&mut findings[number], other);
                findings[number].count = count;
            }
            None => number += 1,
        }
    }
}

/// Whether a finding is about two stores between which the power must not fail, and another one about the same two of
/// different threads.
fn is_interleaved(between: &Finding, other: &Finding) -> bool {
    let lost = |finding: &Finding| {
        let evidence = finding.evidence.as_ref();
        evidence.map(|it| (it.failure.lost_lines.len(), it.failure.again.is_some()))
    };
    let thread = |role: Role| {
        let place = other.places.iter().find(|it| it.role == role);
        place.and_then(|it| it.thread)
    };
    let threads = thread(Role::Store).zip(thread(Role::Survivor));
    let stores = |finding| pair(finding).map(|(_, lost, survivor)| (lost, survivor));
    lost(between) == Some((0, false))
        && lost(other).is_some_and(|(lines, again)| lines > 0 && !again)
        && threads.is_some_and(|(store, survivor)| store != survivor)
        && stores(between).is_some()
        && stores(between) == stores(other)
}

/// A line of the sources.
type Line<'a> = (Option<&'a str>, Option<u32>);

/// The store that is lost and the one that survives, where it takes one of each.
fn pair(finding: &Finding) -> Option<(Code, Line<'_>, Line<'_>)> {
    let only = |role: Role| {
        let mut places = finding.places.iter().filter(|place| place.role == role);
        let place = places.next().filter(|place| place.line.is_some())?;
        places
            .next()
            .is_none()
            .then_some((place.file.as_deref(), place.line))
    };
    let (lost, survivor) = (only(Role::Store)?, only(Role::Survivor)?);
    (lost != survivor).then_some((finding.code, lost, survivor))
}

#[cfg(test)]
mod tests {
    use powerfail_finding::{
        Change, Evidence, FailurePoint, Fix, LostLine, RecoveryOutcome, StackFrame,
    };

    use super::*;

    fn place(role: Role, line: u32) -> SourcePlace {
        SourcePlace {
            file: Some("map.c".into()),
            line: Some(line),
            ..SourcePlace::new(role)
        }
    }

    fn codes(findings: Vec<Finding>) -> Vec<Code> {
        group(findings).iter().map(|it| it.code).collect()
    }

    /// A crash at a fence of `log` that loses the store of one line, or none, beside that of another.
    fn shown(code: Code, (lost, survivor): (u32, u32), lost_lines: usize) -> Finding {
        let at = |role, line| SourcePlace {
            function: Some("log".into()),
            ..place(role, line)
        };
        let frame = StackFrame {
            function: Some("log".into()),
            file: Some("map.c".into()),
            line: Some(30),
            module: None,
            offset: 0,
            trusted: false,
        };
        let failure = SourcePlace {
            stack: vec![frame],
            ..at(Role::Failure, 30)
        };
        let places = vec![at(Role::Store, lost), at(Role::Survivor, survivor), failure];
        let line = LostLine {
            pool: 0,
            pool_offset: 0,
            version: 0,
            stores: None,
        };
        Finding {
            evidence: Some(Evidence {
                failure: FailurePoint {
                    event: 5,
                    lost_lines: vec![line; lost_lines],
                    again: None,
                    filled: Vec::new(),
                },
                recovery: RecoveryOutcome::Exit {
                    status: 1,
                    command: "recovery".into(),
                    output: String::new(),
                },
                last_good_event: None,
                next_good_event: None,
                trace: None,
                difference: None,
                torn: false,
                choices: Vec::new(),
            }),
            ..Finding::new(code, String::new(), places)
        }
    }

    #[test]
    fn what_becomes_reachable_before_it_is_stored_is_one_finding() {
        // The journal is valid before its content is there: number, image, count, in any order.
        let number = || shown(Code::StoreNotFlushed, (7, 8), 1);
        let image = || shown(Code::StoreNotFlushed, (8, 10), 1);
        let order = || shown(Code::ContentTorn, (10, 8), 0);
        assert_eq!(codes(vec![number(), image(), order()]), [Code::ContentTorn]);
        assert_eq!(codes(vec![order(), image(), number()]), [Code::ContentTorn]);
        // Without the proof that both orders are wrong, flushes may be missing.
        assert_eq!(codes(vec![number(), image()]).len(), 2);
        assert_eq!(codes(vec![number(), order()]).len(), 2);
        // A store that nothing flushes lacks a flush of its own.
        let store = number().places[0].clone();
        let never = Finding::new(Code::StoreNotFlushed, String::new(), vec![store]);
        let found = codes(vec![number(), image(), order(), never]);
        assert_eq!(found, [Code::StoreNotFlushed, Code::ContentTorn]);
        // Another function stores the third.
        let mut other = number();
        for place in &mut other.places {
            place.function = Some("other".into());
        }
        assert_eq!(codes(vec![other, image(), order()]).len(), 2);
    }

    #[test]
    fn a_flush_that_lacks_a_fence_is_not_to_be_removed() {
        let redundant = |line| {
            let places = vec![place(Role::Flush, line)];
            Finding::new(Code::RedundantFlush, String::new(), places)
        };
        let places = vec![place(Role::Store, 7), place(Role::Flush, 8)];
        let unfenced = Finding::new(Code::FlushNotFenced, String::new(), places);
        let found = codes(vec![redundant(8), unfenced.clone(), redundant(9)]);
        assert_eq!(found, [Code::FlushNotFenced, Code::RedundantFlush]);
        assert_eq!(codes(vec![redundant(8)]), [Code::RedundantFlush]);
    }

    #[test]
    fn without_lines_the_stores_of_a_function_are_one_place() {
        let copied = |function: &str, offset| {
            let mut place = SourcePlace::new(Role::Store);
            place.module = Some("toydir".into());
            place.function = Some(function.into());
            place.stack = vec![StackFrame {
                function: place.function.clone(),
                file: None,
                line: None,
                module: place.module.clone(),
                offset,
                trusted: false,
            }];
            Finding::new(Code::StoreNotFlushed, String::new(), vec![place])
        };
        let found = vec![
            copied("log_images", 0x10),
            copied("log_images", 0x18),
            copied("apply", 0x90),
        ];
        let grouped = group(found);
        let functions: Vec<_> = grouped.iter().map(|it| &it.places[0].function).collect();
        assert_eq!(
            functions,
            [&Some("log_images".into()), &Some("apply".into())]
        );
        assert_eq!(grouped[0].count, 2);
    }

    #[test]
    fn what_a_fix_inserts_is_not_removed_by_another() {
        let fence = Change {
            action: Action::Insert,
            operation: Operation::Fence,
            event: 3,
            file: Some("map.c".into()),
            line: Some(12),
            pool: None,
            pool_offset: None,
            len_bytes: None,
        };
        let fixed = Finding {
            fix: Some(Fix::verified(vec![fence])),
            ..Finding::new(
                Code::RecoveryRejects,
                String::new(),
                vec![place(Role::Store, 7)],
            )
        };
        let places = vec![place(Role::Fence, 12)];
        let redundant = Finding::new(Code::RedundantFence, String::new(), places);
        assert_eq!(codes(vec![fixed, redundant]), [Code::RecoveryRejects]);
    }
}
