//! The labels of source lines.

use powerfail_finding::{
    Code, DurableBy, Evidence, Finding, Helper, RecoveryOutcome, Role, SourcePlace, TreeCrash,
};

use crate::text::printable;

/// The words for a place of a finding, and in which operation of a library it is, if it is in one.
pub(crate) fn label(finding: &Finding, place: &SourcePlace) -> String {
    let words = words(finding, place);
    match (operation(place), system_call(place)) {
        (Some(operation), _) => format!("{words}, in {operation}"),
        (None, Some(call)) => format!("{words}, in the system call {}", printable(call)),
        (None, None) => words,
    }
}

/// The system call of a program in a guest that a function of the kernel works for: what its entry point calls. Between the two are
/// functions that only choose it, which depends on the version and on what the compiler has inlined.
fn system_call(place: &SourcePlace) -> Option<&str> {
    const ENTRY: &str = "do_syscall_64";
    const CHOOSERS: [&str; 2] = ["do_syscall_x64", "x64_sys_call"];
    const PREFIXES: [&str; 5] = ["__x64_sys_", "__se_sys_", "__do_sys_", "ksys_", "do_"];
    let mut functions = place.stack.iter().map(|it| it.function.as_deref());
    let entry = functions.position(|name| name == Some(ENTRY))?;
    let called = place.stack[..entry].iter().rev();
    let mut called = called.map(|it| it.function.as_deref().unwrap_or_default());
    let called = called.find(|name| !CHOOSERS.contains(name))?;
    PREFIXES.iter().find_map(|it| called.strip_prefix(it))
}

/// The words for the line of a helper that a place calls.
pub(super) fn helper_label(place: &SourcePlace, helper: &Helper) -> String {
    let does = match (place.operation.as_deref(), place.role) {
        (Some("write"), _) => "writes",
        (Some("fsync" | "fdatasync" | "msync" | "sync"), _) => "syncs",
        (Some(_), _) => "changes the file",
        (None, Role::Flush) => "flushes",
        (None, Role::Fence) => "fences",
        (None, _) => "stores",
    };
    match &helper.function {
        Some(function) => format!("`{}` {does} here, for its caller", printable(function)),
        None => format!("this {does} for its caller"),
    }
}

/// The function of a library with persistent data of its own that was called at a place: the innermost one,
/// because some only call others.
fn operation(place: &SourcePlace) -> Option<&str> {
    const LIBRARIES: [&str; 3] = ["pmemobj_", "pmemlog_", "pmemblk_"];
    let trusted = place.stack.iter().take_while(|frame| frame.trusted);
    let mut functions = trusted.filter_map(|frame| frame.function.as_deref());
    functions.find(|name| LIBRARIES.iter().any(|library| name.starts_with(library)))
}

fn words(finding: &Finding, place: &SourcePlace) -> String {
    let evidence = finding.evidence.as_ref();
    if let Some(operation) = &place.operation
        && let Some(words) = file_words(finding, place, operation)
    {
        return words;
    }
    match place.role {
        Role::Store => store(finding, evidence, place).to_owned(),
        Role::Survivor if finding.code == Code::NotRobust => {
            "recovery reads this store, which came later".to_owned()
        }
        Role::Survivor if is_prefix(evidence) => "this store survives alone".to_owned(),
        Role::Survivor => "this store survives without the other".to_owned(),
        Role::Overwrite => "this store overwrites it".to_owned(),
        Role::Publish => "this store makes it reachable".to_owned(),
        Role::Flush => flush(finding, evidence, place).to_owned(),
        Role::Fence => fence(finding.code, evidence, place).to_owned(),
        Role::Failure => failure(finding, place).to_owned(),
        Role::Recovery => recovery(evidence),
        Role::Load => load(finding.code).to_owned(),
        Role::Commit if finding.code == Code::AddWithoutStore => {
            "the transaction is committed here".to_owned()
        }
        Role::Commit => "this store commits".to_owned(),
        Role::Transaction => "the transaction begins here".to_owned(),
        Role::Add => add(finding, place).to_owned(),
        Role::Allocation => "allocated here".to_owned(),
    }
}

/// The words for an operation on an ordinary file.
fn file_words(finding: &Finding, place: &SourcePlace, operation: &str) -> Option<String> {
    let operation = printable(operation);
    let evidence = finding.evidence.as_ref();
    let is_first = finding.places.first() == Some(place);
    let is_torn = evidence.is_some_and(|it| it.torn) && is_first;
    let is_prefix = finding.tree.as_ref().is_some_and(TreeCrash::is_prefix);
    Some(match place.role {
        Role::Store if evidence.is_none() => format!("this {operation}"),
        Role::Store if is_torn => {
            format!("this {operation} is torn: a part of it survives, the rest is lost")
        }
        Role::Store if is_prefix => format!("the power fails before this {operation}"),
        Role::Store => format!("this {operation} is lost"),
        Role::Survivor if is_prefix => format!("this {operation} survives alone"),
        Role::Survivor => format!("this {operation} survives without the other"),
        Role::Flush => match moment(evidence, place) {
            Moment::Here => format!("power fails before this {operation}"),
            Moment::Later => format!("this {operation} comes too late"),
            Moment::Unknown => format!("this {operation}"),
        },
        Role::Publish | Role::Overwrite => format!("this {operation}"),
        Role::Failure => format!("power fails before this {operation}"),
        _ => return None,
    })
}

fn load(code: Code) -> &'static str {
    match code {
        Code::NotRobust => "recovery reads both here",
        Code::CrossFailureSemantic => "recovery reads it here although it is invalid",
        Code::UninitialisedRead => "recovery reads it here, but it was never written",
        _ => "recovery reads it here",
    }
}

fn add(finding: &Finding, place: &SourcePlace) -> &'static str {
    // The first place is to blame; another one came before it.
    let is_first = finding.places.first() == Some(place);
    match finding.code {
        Code::StoreNotAdded => "this range is added instead, but never stored to",
        _ if !is_first => "added here",
        Code::DuplicateAdd => "added again here",
        Code::AddWithoutStore => "added here, but never stored to",
        _ => "added here",
    }
}

fn store(finding: &Finding, evidence: Option<&Evidence>, place: &SourcePlace) -> &'static str {
    let (code, by) = (finding.code, finding.durable_by);
    // A crash that loses no line keeps all stores before it, and this one may be among them.
    let survives = !code.class().is_of_reads()
        && evidence.is_some_and(|evidence| {
            let failure = &evidence.failure;
            failure.lost_lines.is_empty() && place.event.is_some_and(|event| event < failure.event)
        });
    let is_torn = evidence.is_some_and(|it| it.torn) && finding.places.first() == Some(place);
    let is_later =
        is_prefix(evidence) && matches!(moment(evidence, place), Moment::Here | Moment::Later);
    let is_further = finding.places.first() != Some(place)
        && !code.class().is_of_reads()
        && evidence.is_some_and(|it| !loses(it, place, by));
    match code {
        _ if is_torn => "this store is torn: a part of it is durable, the rest is lost",
        Code::StoreNotAdded => "this store is not undone when the transaction is rolled back",
        _ if survives => "this store is durable, but what follows it is lost",
        _ if is_later => "the power fails before this store",
        _ if is_further => "this store can be lost in the same way",
        Code::StoreNotFlushed if evidence.is_some() => match by {
            DurableBy::Flush => "this store is lost: it is not flushed in time",
            DurableBy::Sync => "this store is lost: no msync or fdatasync writes it back in time",
        },
        Code::StoreNotFlushed | Code::TransientData => match by {
            DurableBy::Flush => "this store is never flushed",
            DurableBy::Sync => "no msync or fdatasync writes this store back",
        },
        Code::FlushNotFenced => "this store may be lost",
        Code::PublishedBeforeDurable if evidence.is_none() => "this store is not durable yet",
        Code::DirtyOverwrite => "this store is overwritten before it is durable",
        Code::SharedFlush => match by {
            DurableBy::Flush => "durable only if it shares the line that is flushed",
            DurableBy::Sync => "durable only if it shares a sector that is written back",
        },
        Code::NeighbourFlush => "no flush is made for this store",
        Code::LateFlush => "this store is flushed late",
        Code::UnorderedFlushes => "this store may become durable before or after the others",
        Code::RedundantFlush => "this store is already durable",
        Code::NotRobust => "recovery misses this store",
        Code::CrossFailureRace => "this store is not surely durable",
        Code::CrossFailureSemantic => "this store is durable but invalid",
        Code::ObjectNotPersisted => "this store is never made durable",
        _ => "this store is lost",
    }
}

/// Whether a store is in a line that the crash has lost, as far as that is known. A crash that loses no line, or fails a second
/// time, has other words.
fn loses(evidence: &Evidence, store: &SourcePlace, by: DurableBy) -> bool {
    let line_bytes = match by {
        DurableBy::Flush => 64,
        DurableBy::Sync => 512,
    };
    let failure = &evidence.failure;
    let (Some(begin), Some(event)) = (store.pool_offset, store.event) else {
        return true;
    };
    let end = begin + store.len_bytes.unwrap_or(1).max(1);
    let mut lines = failure.lost_lines.iter().map(|line| line.pool_offset);
    let is_in_line = lines.any(|line| begin < line + line_bytes && line < end);
    failure.lost_lines.is_empty() || failure.again.is_some() || is_in_line && event < failure.event
}

fn flush(finding: &Finding, evidence: Option<&Evidence>, place: &SourcePlace) -> &'static str {
    if finding.durable_by == DurableBy::Sync {
        return match (finding.code, moment(evidence, place)) {
            (Code::RedundantFlush, _) => "there is nothing to write back",
            (_, Moment::Here) => "power fails before this msync",
            (_, Moment::Later) => "this msync comes too late",
            (_, Moment::Unknown) => "written back here",
        };
    }
    match (finding.code, moment(evidence, place)) {
        (Code::FlushNotFenced, _) => "no fence follows this flush",
        (Code::RedundantFlush, _) => "this line has nothing to write back",
        (Code::VolatileFlush, _) => "this address is not in a pool",
        (Code::SharedFlush, _) => "this flush serves several stores",
        (Code::UnorderedFlushes, _) => "this flush is not ordered with the others",
        (Code::NeighbourFlush, _) => "this flush is made for other bytes of the line",
        (Code::LateFlush, _) => "flushed only here",
        (_, Moment::Here) => "power fails before this flush",
        (_, Moment::Later) => "this flush comes too late",
        (_, Moment::Unknown) => "flushed here",
    }
}

fn fence(code: Code, evidence: Option<&Evidence>, place: &SourcePlace) -> &'static str {
    match (code, moment(evidence, place)) {
        (Code::RedundantFence, _) => "this fence waits for nothing",
        (Code::UnorderedFlushes, _) => "all of them complete at this fence, in any order",
        (_, Moment::Here) => "power fails before this fence",
        (_, Moment::Later) => "this fence comes too late",
        (_, Moment::Unknown) => "fenced here",
    }
}

/// Whether every store before the failure is durable.
fn is_prefix(evidence: Option<&Evidence>) -> bool {
    evidence.is_some_and(|it| it.failure.lost_lines.is_empty() && it.failure.again.is_none())
}

/// Where an event lies, seen from the failure.
enum Moment {
    Here,
    Later,
    Unknown,
}

fn moment(evidence: Option<&Evidence>, place: &SourcePlace) -> Moment {
    match (evidence, place.event) {
        (Some(evidence), Some(event)) if event == evidence.failure.event => Moment::Here,
        (Some(evidence), Some(event)) if event > evidence.failure.event => Moment::Later,
        _ => Moment::Unknown,
    }
}

/// Another place may tell what the event at the failure is.
fn failure(finding: &Finding, place: &SourcePlace) -> &'static str {
    let same = |role| {
        let mut places = finding.places.iter();
        place.event.is_some()
            && places.any(|other| other.role == role && other.event == place.event)
    };
    if same(Role::Flush) {
        match finding.durable_by {
            DurableBy::Flush => "power fails before this flush",
            DurableBy::Sync => "power fails before this msync",
        }
    } else if same(Role::Fence) {
        "power fails before this fence"
    } else {
        "power fails here"
    }
}

fn recovery(evidence: Option<&Evidence>) -> String {
    let Some(evidence) = evidence else {
        return "recovery reads it here".to_owned();
    };
    let (command, does) = match &evidence.recovery {
        RecoveryOutcome::Exit { command, .. } => (command.as_str(), "gives up"),
        RecoveryOutcome::Signal { command, .. } => (command.as_str(), "crashes"),
        RecoveryOutcome::Timeout { command, .. } => (command.as_str(), "hangs"),
        RecoveryOutcome::Output { command, .. } => (command.as_str(), "reports a failure"),
        RecoveryOutcome::Content { .. } => ("recovery", "reads wrong content"),
    };
    let who = if command == "checker" {
        "the checker"
    } else {
        "recovery"
    };
    format!("{who} {does} here")
}

#[cfg(test)]
mod tests {
    use powerfail_finding::{FailurePoint, LostLine, StackFrame};

    use super::*;

    fn frame(function: &str, trusted: bool) -> StackFrame {
        StackFrame {
            function: Some(function.into()),
            file: None,
            line: None,
            module: None,
            offset: 0,
            trusted,
        }
    }

    #[test]
    fn only_what_the_crash_has_lost_is_called_lost() {
        let store = |event, offset| SourcePlace {
            event: Some(event),
            pool_offset: Some(offset),
            len_bytes: Some(8),
            ..SourcePlace::new(Role::Store)
        };
        let line = LostLine {
            pool: 0,
            pool_offset: 64,
            version: 0,
            stores: None,
        };
        let evidence = Evidence {
            failure: FailurePoint {
                event: 20,
                lost_lines: vec![line],
                again: None,
                filled: Vec::new(),
            },
            recovery: RecoveryOutcome::Content {
                output: String::new(),
            },
            last_good_event: None,
            next_good_event: None,
            trace: None,
            difference: None,
            torn: false,
            choices: Vec::new(),
        };
        let places = vec![store(3, 64), store(4, 72), store(5, 128), store(30, 80)];
        let finding = Finding {
            evidence: Some(evidence),
            ..Finding::new(Code::PublishedBeforeDurable, String::new(), places)
        };
        let labels: Vec<String> = finding
            .places
            .iter()
            .map(|it| label(&finding, it))
            .collect();
        let further = "this store can be lost in the same way";
        let lost = "this store is lost";
        assert_eq!(labels, [lost, lost, further, further]);
    }

    #[test]
    fn the_system_call_is_what_the_entry_point_of_the_kernel_calls() {
        let call = |functions: &[&str]| {
            let mut place = SourcePlace::new(Role::Store);
            place.stack = functions.iter().map(|it| frame(it, false)).collect();
            system_call(&place).map(str::to_owned)
        };
        let write = Some("write".to_owned());
        assert_eq!(
            call(&["vfs_write", "__x64_sys_write", "do_syscall_64", "entry"]),
            write
        );
        // With debug information there are inlined functions, too.
        let chosen = ["ksys_write", "x64_sys_call", "do_syscall_x64"];
        assert_eq!(call(&[&chosen[..], &["do_syscall_64"]].concat()), write);
        assert_eq!(call(&["do_syscall_x64", "do_syscall_64"]), None);
        assert_eq!(call(&["do_syscall_64"]), None);
        assert_eq!(call(&["vfs_write", "ret_from_fork"]), None);
    }

    #[test]
    fn the_operation_is_the_innermost_one_of_the_library() {
        let mut place = SourcePlace::new(Role::Failure);
        assert_eq!(operation(&place), None);
        place.stack = vec![
            frame("pmem_persist", true),
            frame("pmemobj_tx_commit", true),
            frame("pmemobj_tx_process", true),
            frame("insert", false),
            frame("pmemobj_alloc", true),
        ];
        assert_eq!(operation(&place), Some("pmemobj_tx_commit"));
        // What a constructor of the user's does is not an operation of the library.
        place.stack.drain(..3);
        assert_eq!(operation(&place), None);
    }
}
