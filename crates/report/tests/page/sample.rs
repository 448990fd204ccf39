//! A run that never was: a small trace, findings about it, and what was tried.

use std::collections::BTreeMap;

use powerfail_finding::{
    Choice, Code, Coverage, CoverageBuilder, Evidence, FailurePoint, Finding, KeptSources,
    LostFilePage, LostLine, RecoveryOutcome, Report, Role, Severity, Source, SourcePlace,
    StackFrame, Totals, TreeCrash, Tries,
};
use powerfail_model::files::{NodeId, NodeKind};
use powerfail_model::{
    Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, Rules, StoreKind, ThreadIndex,
};
use powerfail_report::page::{PageInput, page};
use powerfail_trace::{
    Body, EntryName, FileOperation, InitialNode, Meta, NewNode, Pool, PoolKind, StackId, Thread,
    Trace, TraceWriter, Tree, WriterOptions,
};

const SOURCE: &str = "/src/map.c";
const TEXT: &str = "\
#include <pm.h>

static void set_count(struct map *map, long n)
{
\tmap->count = n;
}

int main(int argc, char **argv)
{
\tset_count(map, 1);
\tpersist(map);
}
";

pub(crate) struct Sample {
    pub(crate) report: Report,
    pub(crate) trace: Trace,
    coverage: Coverage,
    sources: KeptSources,
}

impl Sample {
    /// With so many findings: every third is one of performance.
    pub(crate) fn new(findings: u32) -> Self {
        let findings = (0..findings).map(finding).collect();
        let files = BTreeMap::from([(SOURCE.to_owned(), TEXT.to_owned())]);
        Self {
            report: Report {
                schema: 1,
                powerfail: "0.1.0".to_owned(),
                command: vec!["./map".to_owned(), "{pool}".to_owned()],
                findings,
                totals: Totals {
                    events: 9,
                    failure_points: 4,
                    failure_point_stacks: 3,
                    failure_points_run: 3,
                    recovery_runs: 12,
                    ..Totals::default()
                },
                notes: vec!["one thing was not tried".to_owned()],
            },
            trace: trace(),
            coverage: coverage(),
            sources: KeptSources {
                schema: 1,
                files,
                left_out: Vec::new(),
            },
        }
    }

    pub(crate) fn page(&self) -> String {
        let input = PageInput {
            report: &self.report,
            rules: Rules::default(),
            trace: Some(&self.trace),
            others: &BTreeMap::new(),
            coverage: Some(&self.coverage),
            sources: Some(&self.sources),
            out: Some("powerfail-out"),
        };
        let mut out = Vec::new();
        page(&mut out, &input).expect("memory");
        String::from_utf8(out).expect("text")
    }

    /// The same for ordinary files.
    pub(crate) fn files() -> Self {
        let mut sample = Self::new(1);
        let store = place(Role::Store, 5, "save", Some(1));
        let survivor = place(Role::Survivor, 6, "save", Some(2));
        let finding = &mut sample.report.findings[0];
        finding.code = Code::NamedBeforeSynced;
        finding.places = vec![store, survivor];
        finding.tree = Some(TreeCrash {
            file_system: "linux".to_owned(),
            pages: vec![LostFilePage {
                node: 1,
                page: 0,
                first_lost: vec![Some(1); 8],
            }],
            ..TreeCrash::default()
        });
        if let Some(evidence) = &mut finding.evidence {
            evidence.failure.event = 3;
            evidence.failure.lost_lines.clear();
            evidence.choices.clear();
        }
        sample.report.totals.events = 4;
        sample.trace = files_trace();
        sample
    }

    /// The link to a finding.
    pub(crate) fn anchor(&self, number: usize) -> String {
        let finding = &self.report.findings[number];
        format!("{}-{}", finding.code, finding.id)
    }

    /// How many findings are no errors.
    pub(crate) fn others(&self) -> u64 {
        let findings = self.report.findings.iter();
        findings.filter(|it| it.severity != Severity::Error).count() as u64
    }
}

fn frame(function: &str, line: u32, trusted: bool) -> StackFrame {
    StackFrame {
        function: Some(function.to_owned()),
        file: (!trusted).then(|| SOURCE.to_owned()),
        line: (!trusted).then_some(line),
        module: Some(if trusted { "libpmem.so.1" } else { "map" }.to_owned()),
        offset: 0x1000 + u64::from(line),
        trusted,
    }
}

fn place(role: Role, line: u32, function: &str, event: Option<u64>) -> SourcePlace {
    SourcePlace {
        file: Some(SOURCE.to_owned()),
        line: Some(line),
        function: Some(function.to_owned()),
        event,
        stack: vec![frame(function, line, false), frame("main", 10, false)],
        ..SourcePlace::new(role)
    }
}

fn finding(number: u32) -> Finding {
    let code = match number % 3 {
        1 => Code::RedundantFlush,
        _ => Code::RecoveryRejects,
    };
    let store = place(Role::Store, 5, "set_count", Some(4));
    let failure = place(Role::Failure, 11, "persist", Some(6));
    let survivor = place(Role::Survivor, 5, "set_count", Some(3));
    let message = format!("recovery fails if the power fails in set_count (unique-{number} )");
    let mut finding = Finding::new(code, message, vec![store.clone(), failure, survivor]);
    finding.id = format!("{number:08x}");
    if code == Code::RedundantFlush {
        return finding;
    }
    let mut load = place(Role::Load, 5, "check", None);
    load.pool_offset = Some(0x40);
    finding.evidence = Some(Evidence {
        failure: FailurePoint {
            event: 6,
            lost_lines: vec![LostLine {
                pool: 0,
                pool_offset: 0x40,
                version: 0,
                stores: None,
            }],
            again: None,
            filled: Vec::new(),
        },
        recovery: RecoveryOutcome::Exit {
            status: 1,
            command: "recovery".to_owned(),
            output: "count is <0>\n".to_owned(),
        },
        last_good_event: Some(4),
        next_good_event: None,
        trace: None,
        difference: Some("-1\n+0".to_owned()),
        torn: false,
        choices: vec![Choice {
            load,
            sources: vec![Source {
                store: Some(store),
                bytes: "01".to_owned(),
                taken: true,
            }],
            decisive: true,
        }],
    });
    finding
}

fn coverage() -> Coverage {
    let mut builder = CoverageBuilder::default();
    let tries = |tried, failed| Tries {
        points: 2,
        tried,
        sampled: 0,
        failed,
    };
    let stack = |function: &str, line| {
        vec![
            frame("pmem_persist", 1, true),
            frame(function, line, false),
            frame("main", 10, false),
        ]
    };
    builder.add(stack("set_count", 5), tries(2, 1), Tries::default());
    builder.add(stack("persist", 11), tries(2, 0), Tries::default());
    builder.add(stack("close", 12), tries(0, 0), Tries::default());
    builder.finish()
}

fn writer() -> TraceWriter<Vec<u8>> {
    let options = WriterOptions::default();
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default(), options).expect("memory");
    let pool = Pool {
        path: "/mnt/pmem/map.pool".into(),
        kind: PoolKind::File,
        len_bytes: 1 << 20,
        address: 0x1000_0000,
    };
    writer.define_pool(&pool).expect("memory");
    let thread = Thread {
        os_id: 1,
        name: None,
    };
    writer.define_thread(&thread).expect("memory");
    writer
}

fn at(offset: u64) -> Place {
    Place::new(PoolIndex(0), PoolOffset(offset))
}

fn store(offset: u64, bytes: &[u8]) -> Event<'_> {
    Event::Store {
        kind: StoreKind::Plain,
        at: at(offset),
        bytes,
    }
}

fn flush(offset: u64) -> Event<'static> {
    let kind = FlushKind::Clwb;
    Event::Flush {
        kind,
        at: at(offset),
    }
}

const FENCE: Event<'static> = Event::Fence(FenceKind::Sfence);

fn read(writer: TraceWriter<Vec<u8>>) -> Trace {
    let (bytes, _) = writer.finish_into(&[]).expect("memory");
    Trace::from_bytes(bytes).expect("a trace")
}

/// Line 0x80 is stored and made durable; 0x40 is stored, and flushed too late.
fn trace() -> Trace {
    let mut writer = writer();
    for event in [
        store(0x80, &[1; 8]),
        flush(0x80),
        FENCE,
        store(0x80, &[2; 8]),
        store(0x40, &[1; 8]),
        flush(0x80),
        FENCE,
        flush(0x40),
        FENCE,
    ] {
        let appended = writer.append(ThreadIndex(0), StackId::NONE, Body::Pm(event));
        appended.expect("memory");
    }
    read(writer)
}

/// `settings.new` is written, renamed to `settings`, and only then synced.
fn files_trace() -> Trace {
    let options = WriterOptions::default();
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default(), options).expect("memory");
    let (root, file) = (NodeId(0), NodeId(1));
    let path = "/srv/app".into();
    let directory = InitialNode {
        node: root,
        kind: NodeKind::Directory,
        mode: 0o755,
        len_bytes: 0,
    };
    writer.define_node(&directory).expect("memory");
    writer.define_tree(&Tree { path, root }).expect("memory");
    let thread = Thread {
        os_id: 1,
        name: None,
    };
    writer.define_thread(&thread).expect("memory");
    let (new, old) = (
        EntryName::new(root, b"settings.new"),
        EntryName::new(root, b"settings"),
    );
    for operation in [
        FileOperation::Create {
            node: file,
            kind: NewNode::File,
            mode: 0o644,
            entry: Some(new),
        },
        FileOperation::Write {
            node: file,
            offset: 0,
            bytes: b"starts=1",
        },
        FileOperation::Rename {
            node: file,
            from: new,
            to: old,
            replaced: None,
        },
        FileOperation::SyncFile {
            node: file,
            data_only: false,
        },
    ] {
        let appended = writer.append(ThreadIndex(0), StackId::NONE, Body::File(operation));
        appended.expect("memory");
    }
    read(writer)
}

/// One line is stored and flushed, and then so many.
pub(crate) fn wide_trace(lines: u64) -> Trace {
    let mut writer = writer();
    let mut append = |event| {
        let appended = writer.append(ThreadIndex(0), StackId::NONE, Body::Pm(event));
        appended.expect("memory");
    };
    for (lines, value) in [(1, &[1; 8]), (lines, &[2; 8])] {
        for line in 0..lines {
            append(store(line * 64, value));
        }
        for line in 0..lines {
            append(flush(line * 64));
        }
        append(FENCE);
    }
    read(writer)
}

/// The same lines, and others, again and again.
pub(crate) fn long_trace(events: u64) -> Trace {
    let mut writer = writer();
    for number in 0..events {
        let offset = number / 5 % 4096 * 64;
        let event = match number % 5 {
            0 | 1 => store(offset, &[7; 8]),
            3 if number % 35 == 3 => FENCE,
            3 => store(offset + 8, &[9; 8]),
            _ => flush(offset),
        };
        let appended = writer.append(ThreadIndex(0), StackId::NONE, Body::Pm(event));
        appended.expect("memory");
    }
    read(writer)
}
