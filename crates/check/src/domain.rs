//! The persistence domain that a workload was written for, as its trace shows it.

use powerfail_model::{Domain, Event, EventIndex, StoreKind};
use powerfail_trace::{Body, Frame, StackId, Trace, TraceError};

/// A domain, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DetectedDomain {
    /// The domain.
    pub(crate) domain: Domain,
    /// A sentence for people, unless the choice is the usual one.
    pub(crate) reason: Option<String>,
}

/// Chooses the domain of a workload. One that calls msync and its like, and has no flush instruction, was written for the
/// page cache.
pub(crate) fn detect_domain(trace: &Trace) -> Result<DetectedDomain, TraceError> {
    let (mut flushes, mut syncs) = (0_u64, 0_u64);
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
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
            _ => {}
        }
    }
    let calls = match syncs {
        1 => "calls msync, fsync or fdatasync once".to_owned(),
        syncs => format!("calls msync, fsync or fdatasync {syncs} times"),
    };
    Ok(match (flushes, syncs) {
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
                "the domain is {}, in which msync is a flush: the workload {calls} and also flushes \
                 ({flushes} times); if its data is in an ordinary file, use --domain pagecache",
                Domain::default().name()
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
