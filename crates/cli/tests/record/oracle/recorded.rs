//! The events of a trace, in the form of the oracle.

use std::path::Path;

use powerfail_model::{Event, EventIndex, StoreKind};
use powerfail_trace::{Body, Frame, Mark, Record, Trace};

use super::event::{Seen, Site, What, join_strings};
use super::run::{BEGIN, END, Observed, Part};

/// Stores by instructions, flushes and fences of a trace, joined in the same way as the oracle's.
pub(crate) fn recorded(trace: &Path, observed: &Observed) -> Vec<Seen> {
    let trace = Trace::open(trace).expect("a trace");
    let mut events = Vec::new();
    let mut is_wanted = observed.part == Part::Whole;
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record().expect("a sound trace") {
        if let Body::Mark(Mark { payload, .. }) = record.body
            && observed.part == Part::Marked
        {
            is_wanted = payload == BEGIN || is_wanted && payload != END;
        }
        if let Some(what) = what(record.body).filter(|_| is_wanted) {
            let site = site(&trace, &record);
            events.push(Seen { what, site });
        }
    }
    join_strings(events, &observed.strings)
}

fn what(body: Body<'_>) -> Option<What> {
    let Body::Pm(event) = body else { return None };
    Some(match event {
        Event::Store {
            kind: StoreKind::System,
            ..
        }
        | Event::Sync { .. }
        | Event::Resize { .. } => return None,
        Event::Store { kind, at, bytes } => What::Store {
            kind,
            pool: at.pool.0 as usize,
            offset: at.offset.0,
            bytes: bytes.to_owned(),
        },
        Event::Flush { kind, at } => What::Flush {
            kind,
            pool: at.pool.0 as usize,
            offset: at.offset.0,
        },
        Event::Fence(kind) => What::Fence(kind),
    })
}

fn site(trace: &Trace, record: &Record<'_>) -> Site {
    let node = trace
        .stack_node(record.stack)
        .expect("every event has a site");
    match node.frame {
        Frame::Module { module, offset } => {
            // The loader reports the symbolic link, the kernel the file.
            let path = &trace.modules()[module.0 as usize].path;
            let path = path.canonicalize().expect("a module is a file");
            let name = path.file_name().expect("a file");
            Site {
                module: name.to_string_lossy().into_owned(),
                offset,
            }
        }
        Frame::Absolute { address } => panic!("no module at {address:#x}: {record:?}"),
    }
}
