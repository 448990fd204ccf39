//! The summary of a recording, as text and JSON.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use powerfail_protocol::message::SiteTactic;
use powerfail_trace::recording::{IgnoreReason, NoData, RecordingSummary, TargetStatus};
use powerfail_trace::{RecordGroup, RecordKind};
use serde_json::{Value, json};

use crate::text::{STRONG, WARNING, bytes, count, plural};

const TACTICS: [(SiteTactic, &str); 5] = [
    (SiteTactic::Jump, "jump"),
    (SiteTactic::Pun, "pun"),
    (SiteTactic::Eviction, "eviction"),
    (SiteTactic::Trap, "trap"),
    (SiteTactic::System, "system"),
];

/// The summary of a recording, for people.
pub fn summary(out: &mut dyn Write, trace: &Path, summary: &RecordingSummary) -> io::Result<()> {
    let events = summary.events();
    let mut field = |name: &str, value: &str| writeln!(out, "{STRONG}{name:<8}{STRONG:#} {value}");
    field(
        "trace",
        &format!("{}, {}", trace.display(), bytes(summary.trace_bytes)),
    )?;
    let groups: Vec<String> = RecordGroup::ALL
        .into_iter()
        .map(|group| (group, of_group(summary, group)))
        .filter(|(_, number)| *number > 0)
        .map(|(group, number)| format!("{} {}", count(number), group.name()))
        .collect();
    field(
        "events",
        &format!("{}: {}", count(events), groups.join(", ")),
    )?;
    for (name, text) in files(summary) {
        field(name, &text)?;
    }
    let tactics: Vec<String> = TACTICS
        .iter()
        .filter(|(tactic, _)| summary.sites.of(*tactic) > 0)
        .map(|(tactic, name)| format!("{} by {name}", count(summary.sites.of(*tactic))))
        .collect();
    if !tactics.is_empty() {
        let traps = plural(summary.trap_events, "event");
        field("sites", &format!("{}; {traps} trapped", tactics.join(", ")))?;
    }
    field(
        "target",
        &format!(
            "{}, {} in {}, {} s, {} s of CPU time",
            summary.status,
            plural(summary.thread_count.into(), "thread"),
            processes(summary.process_count),
            seconds(summary.wall_time),
            seconds(summary.cpu_time)
        ),
    )?;
    if summary.schedule_steps > 0 {
        let steps = plural(summary.schedule_steps, "operation");
        let lapses = match summary.schedule_lapses {
            0 => "the same seed gives the same order".to_owned(),
            1 => "the scheduler timed out once; the order may not be reproducible".to_owned(),
            lapses => format!(
                "the scheduler timed out {} times; the order may not be reproducible",
                count(lapses)
            ),
        };
        field("schedule", &format!("{steps} of several threads; {lapses}"))?;
    }
    let requests = &summary.client_requests;
    if requests.total() > 0 {
        let others = match requests.of_other_tools {
            0 => String::new(),
            others => format!("; {} of other tools", count(others)),
        };
        field(
            "requests",
            &format!(
                "{} of Valgrind{others}",
                plural(requests.total(), "client request")
            ),
        )?;
    }
    for sentence in &summary.notes {
        writeln!(out, "note: {sentence}")?;
    }
    for sentence in &summary.warnings {
        writeln!(out, "{WARNING}warning{WARNING:#}: {sentence}")?;
    }
    Ok(())
}

/// Which files were taken for pools and which were not, where that is worth a line: several were mapped.
pub fn choice_of_pools(out: &mut dyn Write, summary: &RecordingSummary) -> io::Result<()> {
    if summary.pools.len() + summary.ignored.len() < 2 {
        return Ok(());
    }
    for (name, text) in files(summary) {
        writeln!(out, "{STRONG}{name:<8}{STRONG:#} {text}")?;
    }
    Ok(())
}

/// How many files outside of pools and trees are shown; `--json` shows all.
const ELSEWHERE_SHOWN: usize = 5;

/// The files that were mapped or written: names of fields and their texts.
fn files(summary: &RecordingSummary) -> Vec<(&'static str, String)> {
    let pools = summary.pools.iter().map(|pool| {
        let len = bytes(pool.final_len_bytes);
        ("pool", format!("{}, {len}", pool.path.display()))
    });
    let trees = summary.trees.iter().map(|tree| {
        let names = plural(tree.names, "name");
        ("tree", format!("{}, {names}", tree.path.display()))
    });
    let none = match (summary.pools.as_slice(), summary.ignored.as_slice()) {
        _ if !summary.trees.is_empty() => None,
        ([], []) => Some("none: the target mapped no file shared and writable"),
        ([], _) => Some("none of the files that the target mapped"),
        _ => None,
    };
    let none = none.map(|text| ("pool", text.to_owned()));
    let ignored = summary.ignored.iter().map(|file| {
        let reason = reason_text(file.reason);
        ("ignored", format!("{} ({reason})", file.path.display()))
    });
    let shown = summary.elsewhere.iter().take(ELSEWHERE_SHOWN);
    let elsewhere = shown.map(|path| {
        let text = format!("{} (written, not in a tree)", path.display());
        ("outside", text)
    });
    let more = summary.elsewhere.len().saturating_sub(ELSEWHERE_SHOWN) as u64;
    let more = (more > 0).then(|| ("outside", format!("{} more", plural(more, "file"))));
    pools
        .chain(none)
        .chain(trees)
        .chain(ignored)
        .chain(elsewhere)
        .chain(more)
        .collect()
}

fn processes(number: u32) -> String {
    if number == 1 {
        "1 process".to_owned()
    } else {
        format!("{number} processes")
    }
}

fn seconds(time: Duration) -> String {
    format!("{}.{:03}", time.as_secs(), time.subsec_millis())
}

fn of_group(summary: &RecordingSummary, group: RecordGroup) -> u64 {
    RecordKind::ALL
        .into_iter()
        .filter(|kind| kind.group() == group)
        .map(|kind| summary.events_of(kind))
        .sum()
}

/// Why a file was not recorded, for people.
const fn reason_text(reason: IgnoreReason) -> &'static str {
    match reason {
        IgnoreReason::NotSelected => "not selected by --pool",
        IgnoreReason::Excluded => "excluded by --not-pool",
        IgnoreReason::NoData(NoData::JavaCounters) => {
            "counters of a Java virtual machine; --pool takes it"
        }
        IgnoreReason::NoData(NoData::SqliteSharedMemory) => {
            "the index of SQLite's log, which it makes anew; --pool takes it"
        }
        IgnoreReason::NoData(NoData::LmdbLock) => {
            "a lock file of LMDB, which it makes anew; --pool takes it"
        }
        IgnoreReason::NoData(NoData::BerkeleyRegion) => {
            "a region of Berkeley DB, which recovery makes anew; --pool takes it"
        }
        IgnoreReason::NoData(NoData::Semaphore) => "a semaphore; --pool takes it",
        IgnoreReason::NoData(NoData::PostgresMemory) => {
            "shared memory of PostgreSQL, which it makes anew; --pool takes it"
        }
        IgnoreReason::Nameless => "it has no name, so a power failure would remove it",
        IgnoreReason::NotPersistent => "neither a regular file nor a DAX device",
        IgnoreReason::Unreadable => "it cannot be read",
    }
}

/// The same in JSON: these words never change.
const fn reason_name(reason: IgnoreReason) -> &'static str {
    match reason {
        IgnoreReason::NotSelected => "NotSelected",
        IgnoreReason::Excluded => "Excluded",
        IgnoreReason::NoData(NoData::JavaCounters) => "JavaCounters",
        IgnoreReason::NoData(NoData::SqliteSharedMemory) => "SqliteSharedMemory",
        IgnoreReason::NoData(NoData::LmdbLock) => "LmdbLock",
        IgnoreReason::NoData(NoData::BerkeleyRegion) => "BerkeleyRegion",
        IgnoreReason::NoData(NoData::Semaphore) => "Semaphore",
        IgnoreReason::NoData(NoData::PostgresMemory) => "PostgresMemory",
        IgnoreReason::Nameless => "Nameless",
        IgnoreReason::NotPersistent => "NotPersistent",
        IgnoreReason::Unreadable => "Unreadable",
    }
}

/// The summary of a recording, as one JSON object.
pub fn summary_json(trace: &Path, summary: &RecordingSummary, failure: Option<&str>) -> Value {
    let counts: serde_json::Map<String, Value> = RecordKind::ALL
        .into_iter()
        .map(|kind| (kind.name().to_owned(), json!(summary.events_of(kind))))
        .collect();
    let sites: serde_json::Map<String, Value> = TACTICS
        .iter()
        .map(|(tactic, name)| ((*name).to_owned(), json!(summary.sites.of(*tactic))))
        .collect();
    let pools: Vec<Value> = summary
        .pools
        .iter()
        .map(|pool| {
            json!({
                "path": pool.path.to_string_lossy(),
                "initial_len_bytes": pool.initial_len_bytes,
                "final_len_bytes": pool.final_len_bytes,
            })
        })
        .collect();
    let trees: Vec<Value> = summary
        .trees
        .iter()
        .map(|tree| json!({"path": tree.path.to_string_lossy(), "names": tree.names}))
        .collect();
    let ignored: Vec<Value> = summary
        .ignored
        .iter()
        .map(
            |file| json!({"path": file.path.to_string_lossy(), "reason": reason_name(file.reason)}),
        )
        .collect();
    let (exit_code, signal) = match summary.status {
        TargetStatus::Exited(code) => (Some(code), None),
        TargetStatus::Killed(signal) => (None, Some(signal)),
    };
    json!({
        "trace": trace.to_string_lossy(),
        "trace_bytes": summary.trace_bytes,
        "events": summary.events(),
        "counts": counts,
        "pools": pools,
        "trees": trees,
        "outside": summary
            .elsewhere
            .iter()
            .map(|path| path.to_string_lossy())
            .collect::<Vec<_>>(),
        "ignored": ignored,
        "sites": sites,
        "trap_events": summary.trap_events,
        "uncommitted_records": summary.uncommitted_records,
        "exit_code": exit_code,
        "signal": signal,
        "threads": summary.thread_count,
        "processes": summary.process_count,
        "wall_time_ms": summary.wall_time.as_millis() as u64,
        "cpu_time_ms": summary.cpu_time.as_millis() as u64,
        "schedule_steps": summary.schedule_steps,
        "schedule_lapses": summary.schedule_lapses,
        "client_requests": {
            "understood": summary.client_requests.understood,
            "of_other_tools": summary.client_requests.of_other_tools,
            "unknown": summary.client_requests.unknown,
        },
        "warnings": summary.warnings,
        "fatal": summary.fatal,
        "unrecorded": summary.unrecorded,
        "notes": summary.notes,
        "timed_out": summary.timed_out,
        "waiting": summary.waiting,
        "self_check_failure": failure,
    })
}
