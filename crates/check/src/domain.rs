//! The persistence domain that a workload was written for, as its trace shows it.

use powerfail_model::{Domain, Event, StoreKind};
use powerfail_trace::{
    Annotation, Body, DIRECTORY_NOTE, DOMAIN_NOTE, Frame, MarkKind, StackId, Trace, TraceError,
};

use crate::error::CheckError;
use crate::reading::WatchedRecords;

/// In long traces, what a workload does is counted up to here.
const COUNTED_EVENTS: u64 = 1 << 22;

/// A domain, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DetectedDomain {
    /// The domain.
    pub(crate) domain: Domain,
    /// A sentence for people, unless the choice is the usual one.
    pub(crate) reason: Option<String>,
}

/// The persistence domain that a workload was written for: what the recording was told, or what the workload does.
pub fn domain_of(trace: &Trace) -> Result<Domain, CheckError> {
    let noted = trace.meta().note(DOMAIN_NOTE).and_then(Domain::from_name);
    match noted {
        Some(domain) => Ok(domain),
        None => Ok(detect_domain(trace, &mut |_| ())?.domain),
    }
}

/// Chooses the domain of a workload. One that calls msync and its like, or works in `{dir}`, and has no flush instruction, was
/// written for the page cache. `progress` hears how many bytes of the trace were read.
pub(crate) fn detect_domain(
    trace: &Trace,
    progress: &mut dyn FnMut(u64),
) -> Result<DetectedDomain, TraceError> {
    let (mut flushes, mut syncs) = (0_u64, 0_u64);
    let mut is_cut = false;
    let mut records = WatchedRecords::of(trace, progress);
    while let Some(record) = records.next_record()? {
        // One flush decides; what follows would only be counted.
        if flushes > 0 && record.index.0 >= COUNTED_EVENTS {
            is_cut = true;
            break;
        }
        match record.body {
            Body::Pm(
                Event::Flush { .. }
                | Event::Store {
                    kind: StoreKind::NonTemporal,
                    ..
                },
            ) => flushes += 1,
            // libpmem calls msync for headers of pools, whatever the program does.
            Body::Pm(Event::Sync { .. }) if !is_of_libpmem(trace, record.stack) => syncs += 1,
            // It was meant to make data durable.
            Body::Mark(mark) if mark.kind == MarkKind::Annotation(Annotation::AsynchronousSync) => {
                syncs += 1;
            }
            _ => {}
        }
    }
    let times = |count: u64| match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let counted = if is_cut {
        format!(" in its first {COUNTED_EVENTS} events")
    } else {
        String::new()
    };
    let calls = format!("calls msync, fsync or fdatasync {}{counted}", times(syncs));
    Ok(match (flushes, syncs) {
        (0, 0) if trace.meta().note(DIRECTORY_NOTE).is_some() && !trace.pools().is_empty() => {
            DetectedDomain {
                domain: Domain::PageCache,
                reason: Some(
                    "the domain is pagecache: the workload maps files in {dir} and never flushes; --domain overrides it"
                        .to_owned(),
                ),
            }
        }
        (_, 0) => DetectedDomain {
            domain: Domain::default(),
            reason: None,
        },
        (0, _) => DetectedDomain {
            domain: Domain::PageCache,
            reason: Some(format!(
                "the domain is pagecache: the workload {calls} and never flushes; --domain overrides it"
            )),
        },
        (flushes, _) => DetectedDomain {
            domain: Domain::default(),
            reason: Some(format!(
                "the domain is {}, in which msync is a flush: the workload {calls} and also flushes {}; if its data \
                 is in an ordinary file, use --domain pagecache",
                Domain::default().name(),
                times(flushes)
            )),
        },
    })
}

/// Whether a call comes from a library of PMDK.
fn is_of_libpmem(trace: &Trace, stack: StackId) -> bool {
    trace.stack(stack).any(|frame| match frame {
        Frame::Module { module, .. } => {
            let module = trace.modules().get(module.0 as usize);
            let name = module.and_then(|module| module.path.file_name());
            name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"libpmem"))
        }
        Frame::Absolute { .. } => false,
    })
}
