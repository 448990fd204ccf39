//! What the script of the page is given. It is internal: page and data are always of the same version.
//!
//! A picture has rows, and events that change them. A row is a line of a pool, or a name, a block or a length of a
//! file: the script knows only labels and states.

use std::collections::BTreeMap;

use powerfail_finding::{Coverage, Report};
use serde::Serialize;

/// All of it.
#[derive(Serialize)]
pub(super) struct PageData<'a> {
    pub(super) schema: u32,
    pub(super) report: &'a Report,
    pub(super) summary: String,
    pub(super) coverage_sentence: String,
    pub(super) not_checked: Option<String>,
    /// What is known of each finding besides, in the order of the report.
    pub(super) findings: Vec<PageFinding<'a>>,
    pub(super) trace: Option<PageTrace>,
    pub(super) coverage: Option<&'a Coverage>,
    pub(super) sources: BTreeMap<&'a str, PageSource<'a>>,
    pub(super) out: Option<&'a str>,
    pub(super) codes: BTreeMap<&'static str, &'static str>,
}

/// What is known of a finding besides.
#[derive(Serialize)]
pub(super) struct PageFinding<'a> {
    pub(super) places: Vec<PagePlace>,
    pub(super) outcome: Option<String>,
    /// Names, and what they say.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) moment: Option<Moment<'a>>,
}

/// What is known of a place besides.
#[derive(Serialize)]
pub(super) struct PagePlace {
    pub(super) label: String,
}

/// A source file.
#[derive(Serialize)]
pub(super) struct PageSource<'a> {
    pub(super) text: &'a str,
}

/// A picture of the moment of failure.
#[derive(Serialize)]
pub(super) struct Moment<'a> {
    /// What the rows are: `lines` of pools, or `files`: names, blocks and lengths.
    pub(super) of: &'static str,
    pub(super) rows: Vec<Row>,
    /// Rows for which there is no room.
    pub(super) rows_left_out: usize,
    pub(super) marks: Vec<MarkOnRows>,
    /// Events on these rows for which there is no room.
    pub(super) marks_left_out: u64,
    /// The power fails just before this event.
    pub(super) failure: Option<u64>,
    /// What recovery reads after it.
    pub(super) reads: Vec<ReadOfRow<'a>>,
}

/// What becomes durable as a whole.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) outcome: Outcome,
    /// How many changes of it were not surely durable when the power failed, and how many of them survive.
    pub(super) open: usize,
    pub(super) kept: usize,
}

/// What the failure does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// Everything stored to it is durable.
    Durable,
    /// Something stored to it was not surely durable, and survives.
    Survives,
    /// Something stored to it is lost.
    Lost,
}

/// An event on some rows.
#[derive(Clone, Serialize)]
pub(super) struct MarkOnRows {
    pub(super) event: u64,
    pub(super) kind: &'static str,
    /// How it is drawn: `store`, `flush`, `fence` (also a sync), `name` (a change of names).
    pub(super) shape: &'static str,
    pub(super) thread: u32,
    /// For each row: its number, and how many changes of it are not surely durable after the event.
    pub(super) rows: Vec<(usize, usize)>,
    /// Where it is in the sources.
    pub(super) place: String,
    /// What is stored.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) text: String,
}

/// A read of recovery.
#[derive(Serialize)]
pub(super) struct ReadOfRow<'a> {
    pub(super) row: usize,
    pub(super) place: String,
    pub(super) bytes: &'a str,
    /// The event of the store that it sees, if it is known.
    pub(super) saw: Option<u64>,
    /// It sees what was surely there before.
    pub(super) saw_floor: bool,
    /// Recovery would have succeeded with another value.
    pub(super) decisive: bool,
}

/// The trace as a whole.
#[derive(Serialize)]
pub(super) struct PageTrace {
    pub(super) events: u64,
    /// What crashes: `lines` of pools, or `files`.
    pub(super) of: &'static str,
    /// The persistence domain, or the file system whose rules decide what survives.
    pub(super) rules: &'static str,
    /// The directories whose files are crashed.
    pub(super) trees: Vec<String>,
    pub(super) pools: Vec<PagePool>,
    pub(super) threads: usize,
    /// How many events a bucket has.
    pub(super) bucket_events: u64,
    pub(super) buckets: usize,
    /// For each bucket, base64 of little-endian numbers: the most open lines (u32), the decimal logarithm of the most
    /// crash states (f32), the number of stores, flushes and fences (u32 each). Of files: the most operations that are not
    /// surely durable, nothing, and the number of changes of data, changes of names, and syncs.
    pub(super) open: String,
    pub(super) states: String,
    pub(super) stores: String,
    pub(super) flushes: String,
    pub(super) fences: String,
    pub(super) total_stores: u64,
    pub(super) total_flushes: u64,
    pub(super) total_fences: u64,
    /// Moments that cover all crash states, by the decimal logarithm of the number of states: [exponent, moments].
    pub(super) state_space: Vec<(u64, u64)>,
    /// The moment with the most states: event and decimal logarithm.
    pub(super) largest: Option<(u64, f64)>,
    pub(super) is_whole: bool,
}

/// A pool.
#[derive(Serialize)]
pub(super) struct PagePool {
    pub(super) path: String,
    pub(super) bytes: u64,
}
