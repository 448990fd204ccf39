//! Diagnoses of small traces, with a recovery that is a rule about bytes.

use powerfail_finding::{Code, RecoveryOutcome};
use powerfail_image::{CursorOptions, ImageCursor};
use powerfail_model::{
    CrashState, Event, EventIndex, FenceKind, FlushKind, LineId, LineIndex, Place, PoolIndex,
    PoolOffset, Rules, StoreKind, ThreadIndex,
};
use powerfail_trace::{
    Body, Meta, Pool, PoolKind, StackId, Thread, Trace, TraceWriter, WriterOptions,
};

use super::{Cause, Diagnosis, Failing, TrialJudge, diagnose};
use crate::error::CheckError;
use crate::runner::{Trial, state_at};
use crate::symptom::Symptom;

const DATA: u64 = 0;
const VALID: u64 = 64;
const OTHER: u64 = 128;

#[derive(Clone, Copy)]
enum Op {
    Store(u64),
    Past(u64),
    Flush(u64),
    Fence,
}
use Op::{Fence, Flush, Past, Store};

fn trace_of(ops: &[Op]) -> Trace {
    let mut bytes = Vec::new();
    let mut writer =
        TraceWriter::new(&mut bytes, &Meta::default(), WriterOptions::default()).unwrap();
    let pool = writer
        .define_pool(&Pool {
            path: "/nowhere/pool".into(),
            kind: PoolKind::File,
            len_bytes: 4096,
            address: 0,
        })
        .unwrap();
    let thread = writer
        .define_thread(&Thread {
            os_id: 1,
            name: None,
        })
        .unwrap();
    assert_eq!((pool, thread), (PoolIndex(0), ThreadIndex(0)));
    for op in ops {
        let at = |offset: u64| Place::new(pool, PoolOffset(offset));
        let store = |kind, offset| Event::Store {
            kind,
            at: at(offset),
            bytes: &[1],
        };
        let event = match *op {
            Store(offset) => store(StoreKind::Plain, offset),
            Past(offset) => store(StoreKind::NonTemporal, offset),
            Flush(offset) => Event::Flush {
                kind: FlushKind::Clwb,
                at: at(offset),
            },
            Fence => Event::Fence(FenceKind::Sfence),
        };
        writer
            .append(thread, StackId::NONE, Body::Pm(event))
            .unwrap();
    }
    writer.finish(&[]).unwrap();
    Trace::from_bytes(bytes).unwrap()
}

/// A recovery that fails where a rule says so.
struct Rule<'t, F> {
    trace: &'t Trace,
    is_bad: F,
}

fn symptom() -> Symptom {
    Symptom {
        code: Code::RecoveryRejects,
        outcome: RecoveryOutcome::Exit {
            status: 1,
            command: "recovery".into(),
            output: String::new(),
        },
        backtrace: None,
        difference: None,
        others: Vec::new(),
    }
}

impl<F: Fn(&[u8]) -> bool> TrialJudge for Rule<'_, F> {
    fn judge_all(&mut self, trials: &[Trial]) -> Result<Vec<Option<Symptom>>, CheckError> {
        let judge = |trial: &Trial| {
            let options = CursorOptions {
                rules: Some(Rules::default()),
                ..CursorOptions::default()
            };
            let mut cursor = ImageCursor::new(self.trace, options)?;
            cursor.move_to(trial.at)?;
            let Some(state) = state_at(&cursor, &trial.state) else {
                return Ok(None);
            };
            let mut image = vec![0; 256];
            cursor.read(Place::default(), &mut image);
            for (id, version) in &state.versions {
                let line = cursor.frontier().and_then(|it| it.open_line(*id)).unwrap();
                let start = line.offset().0 as usize;
                image[start..start + 64].copy_from_slice(&line.version(*version));
            }
            Ok((self.is_bad)(&image).then(symptom))
        };
        trials.iter().map(judge).collect()
    }
}

fn line(offset: u64) -> LineId {
    LineId {
        pool: PoolIndex(0),
        line: LineIndex(offset / 64),
    }
}

/// The cause of a failure at an event, with these lines as they surely were.
fn cause(ops: &[Op], at: u64, lost: &[u64], is_bad: impl Fn(&[u8]) -> bool) -> Diagnosis {
    let trace = trace_of(ops);
    let failing = Failing {
        at: EventIndex(at),
        state: CrashState {
            versions: lost.iter().map(|offset| (line(*offset), 0)).collect(),
        },
        symptom: symptom(),
    };
    let mut judge = Rule {
        trace: &trace,
        is_bad,
    };
    let mut all = diagnose(&trace, Rules::default(), &[failing], &mut judge).unwrap();
    all.remove(0)
}

fn is_torn(image: &[u8]) -> bool {
    image[VALID as usize] == 1 && image[DATA as usize] == 0
}

fn lost_events(diagnosis: &Diagnosis) -> Vec<u64> {
    diagnosis.lost.iter().map(|store| store.event.0).collect()
}

#[test]
fn a_store_that_is_never_flushed() {
    let ops = [
        Store(OTHER),
        Store(DATA),
        Store(OTHER + 1),
        Store(VALID),
        Flush(VALID),
        Fence,
    ];
    let found = cause(&ops, 5, &[DATA, OTHER], is_torn);
    assert_eq!(found.cause, Cause::MissingFlush);
    assert_eq!(found.code(), Code::StoreNotFlushed);
    assert_eq!(
        found.state.versions,
        [(line(DATA), 0)],
        "the other line does not matter"
    );
    assert_eq!(
        (lost_events(&found), found.survivor),
        (vec![1], Some(EventIndex(3)))
    );
    // A flush that is meant for a later store is none for this one.
    let ops = [
        Store(DATA),
        Store(VALID),
        Flush(VALID),
        Fence,
        Store(DATA + 8),
        Flush(DATA),
        Fence,
    ];
    let found = cause(&ops, 3, &[DATA], is_torn);
    assert_eq!(found.cause, Cause::MissingFlush);
}

#[test]
fn a_flush_that_is_never_fenced() {
    let ops = [Store(DATA), Flush(DATA), Store(VALID), Flush(VALID), Fence];
    let found = cause(&ops, 4, &[DATA], is_torn);
    assert_eq!(
        (found.cause, found.code()),
        (Cause::MissingFence, Code::PublishedBeforeDurable)
    );
    assert_eq!(found.lost[0].flush(), Some(EventIndex(1)));
    assert_eq!(found.lost[0].fenced, Some(EventIndex(4)));
    // Without any fence at all.
    let found = cause(&ops[..4], 4, &[DATA], is_torn);
    assert_eq!(
        (found.cause, found.code()),
        (Cause::MissingFence, Code::FlushNotFenced)
    );
    // A store past the cache needs no flush.
    let ops = [Past(DATA), Store(VALID), Flush(VALID), Fence];
    let found = cause(&ops, 3, &[DATA], is_torn);
    assert_eq!(found.cause, Cause::MissingFence);
}

#[test]
fn a_flush_that_comes_too_late() {
    let ops = [
        Store(DATA),
        Store(VALID),
        Flush(VALID),
        Fence,
        Flush(DATA),
        Fence,
    ];
    let found = cause(&ops, 5, &[DATA], is_torn);
    assert_eq!(
        (found.cause, found.code()),
        (Cause::WrongOrder, Code::PublishedBeforeDurable)
    );
    assert_eq!(found.lost[0].flush(), Some(EventIndex(4)));
    assert_eq!(found.survivor, Some(EventIndex(1)));
}

#[test]
fn two_stores_that_belong_together() {
    let ops = [Store(DATA), Store(VALID), Flush(DATA), Flush(VALID), Fence];
    let differ = |image: &[u8]| image[DATA as usize] != image[VALID as usize];
    let found = cause(&ops, 4, &[DATA], differ);
    assert_eq!(
        (found.cause, found.code()),
        (Cause::Atomicity, Code::RecoveryRejects)
    );
    assert_eq!(
        (lost_events(&found), found.survivor),
        (vec![0], Some(EventIndex(1)))
    );
}

#[test]
fn where_nothing_needs_to_be_lost_no_line_is_blamed() {
    let ops = [Store(DATA), Store(VALID), Flush(DATA), Flush(VALID), Fence];
    let found = cause(&ops, 4, &[DATA], |image| image[VALID as usize] == 1);
    assert_eq!(
        (found.cause, found.at),
        (Cause::ProgramOrder, EventIndex(4))
    );
    assert!(found.state.versions.is_empty() && found.lost.is_empty());
    // Losing the second store is being before it.
    let found = cause(&ops, 4, &[VALID], |image| {
        image[..=VALID as usize] == {
            let mut half = [0; VALID as usize + 1];
            half[DATA as usize] = 1;
            half
        }
    });
    assert_eq!(
        (found.cause, found.at),
        (Cause::ProgramOrder, EventIndex(1))
    );
}

#[test]
fn of_a_line_only_the_stores_that_matter_are_lost() {
    let ops = [
        Store(DATA),
        Store(DATA + 1),
        Store(DATA + 2),
        Store(VALID),
        Flush(VALID),
        Fence,
    ];
    let found = cause(&ops, 5, &[DATA], |image| {
        image[VALID as usize] == 1 && image[DATA as usize + 1] == 0
    });
    assert_eq!(found.state.versions, [(line(DATA), 1)]);
    assert_eq!(lost_events(&found), [1]);
}
