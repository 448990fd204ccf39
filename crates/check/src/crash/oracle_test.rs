//! Whether recovery can fail at all: it is tried on pools that no crash could leave.
//!
//! A recovery that accepts an empty pool and changed data accepts every crash image, too. That proves nothing, because a
//! program may create what it does not find, and need not read every line. So it is a note, not an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use powerfail_model::{Event, EventIndex, LineId, LineIndex};
use powerfail_oracle::Verdict;
use powerfail_trace::Trace;

use super::undisturbed::UndisturbedRecovery;
use crate::error::CheckError;
use crate::event::Observer;
use crate::runner::{Runner, Trial};

/// How many of the last events are looked through for stores.
const EVENTS_MAX: u64 = 4096;

/// A note if recovery accepts everything.
pub(super) fn oracle_test(
    trace: &Trace,
    runner: &mut Runner<'_>,
    undisturbed: &UndisturbedRecovery,
    observer: &dyn Observer,
) -> Result<Option<String>, CheckError> {
    let end = Trial::prefix(EventIndex(trace.event_count()));
    let is_interrupted = || observer.is_interrupted();
    let accepts = |verdict: Option<Verdict>| match verdict {
        Some(Verdict::Success { dump }) => dump == undisturbed.dump,
        Some(Verdict::Failure(_)) | None => false,
    };
    if !accepts(runner.run_changed(&end, &empty, &is_interrupted)?) {
        return Ok(None);
    }
    let line_bytes = runner.line_bytes();
    let lines = stored_lines(trace, line_bytes)?;
    for line in &lines {
        let change = |paths: &[Option<PathBuf>]| invert(paths, *line, line_bytes);
        if !accepts(runner.run_changed(&end, &change, &is_interrupted)?) {
            return Ok(None);
        }
    }
    Ok((!lines.is_empty()).then(|| {
        "this recovery cannot fail: it also accepts an empty pool, and data that was changed; let it check what it \
         recovers, or give a --checker"
            .to_owned()
    }))
}

/// Makes all bytes of all pools zero.
fn empty(paths: &[Option<PathBuf>]) -> io::Result<()> {
    for path in paths.iter().flatten() {
        let file = File::options().write(true).open(path)?;
        let len_bytes = file.metadata()?.len();
        file.set_len(0)?;
        file.set_len(len_bytes)?;
    }
    Ok(())
}

/// Inverts all bits of a line.
fn invert(paths: &[Option<PathBuf>], line: LineId, line_bytes: u64) -> io::Result<()> {
    let Some(Some(path)) = paths.get(line.pool.0 as usize) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let file = File::options().read(true).write(true).open(path)?;
    let mut bytes = vec![0; line_bytes as usize];
    let offset = line.line.0 * line_bytes;
    file.read_exact_at(&mut bytes, offset)?;
    for byte in &mut bytes {
        *byte = !*byte;
    }
    file.write_all_at(&bytes, offset)
}

/// Some lines that the last stores of the workload wrote: the first of them, the last, and one in between.
fn stored_lines(trace: &Trace, line_bytes: u64) -> Result<Vec<LineId>, CheckError> {
    let first = trace.event_count().saturating_sub(EVENTS_MAX);
    let mut records = trace.records_from(EventIndex(first));
    let mut lines: Vec<LineId> = Vec::new();
    while let Some(record) = records.next_record()? {
        let Some(step) = record.step() else { continue };
        if let Event::Store { at, .. } = step.event {
            let line = LineId {
                pool: at.pool,
                line: LineIndex(at.offset.0 / line_bytes),
            };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let chosen = [0, lines.len() / 2, lines.len().saturating_sub(1)];
    let mut chosen: Vec<LineId> = chosen
        .iter()
        .filter_map(|it| lines.get(*it))
        .copied()
        .collect();
    chosen.dedup();
    Ok(chosen)
}
