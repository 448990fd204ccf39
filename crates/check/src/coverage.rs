//! Which failure points were tried, by call stack: collected while a check runs, and put into words at its end.

use std::collections::BTreeMap;
use std::fs;

use powerfail_finding::{Coverage, CoverageBuilder, Finding, KeptSources, SourcePlace, Tries};
use powerfail_trace::StackId;

use crate::places::Places;

/// A longer source file is not kept.
const SOURCE_BYTES_MAX: u64 = 1 << 20;
/// All source files together.
const SOURCES_BYTES_MAX: usize = 8 << 20;

/// What was tried at each call stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct TriedStacks {
    stacks: BTreeMap<StackId, (Tries, Tries)>,
}

impl TriedStacks {
    /// Crashes at which every earlier store was durable.
    pub(crate) fn prefix(&mut self, stack: StackId) -> &mut Tries {
        &mut self.stacks.entry(stack).or_default().0
    }

    /// Moments at which lost and reordered lines were explored.
    pub(crate) fn lost_lines(&mut self, stack: StackId) -> &mut Tries {
        &mut self.stacks.entry(stack).or_default().1
    }

    /// The same in the words of the sources.
    pub(crate) fn named(self, places: &mut Places<'_>) -> Coverage {
        let mut builder = CoverageBuilder::default();
        for (stack, (prefix, lost_lines)) in self.stacks {
            builder.add(places.stack(stack), prefix, lost_lines);
        }
        builder.finish()
    }
}

/// The source files that findings and failure points name, as they are now. Those of trusted libraries are not among
/// them.
pub(crate) fn keep_sources(findings: &[Finding], coverage: &Coverage) -> KeptSources {
    let places = findings.iter().flat_map(|finding| &finding.places);
    let choices = findings.iter().filter_map(|it| it.evidence.as_ref());
    let choices = choices.flat_map(|evidence| &evidence.choices);
    let loads = choices.map(|choice| &choice.load);
    let named = places.chain(loads).flat_map(files_of);
    let tried = coverage.frames.iter().filter(|frame| !frame.trusted);
    let tried = tried.filter_map(|frame| frame.file.as_deref());
    let mut kept = KeptSources {
        schema: 1,
        ..KeptSources::default()
    };
    let mut total = 0;
    for path in named.chain(tried) {
        if kept.files.contains_key(path) || kept.left_out.iter().any(|it| it == path) {
            continue;
        }
        // Asked before reading: reading a FIFO would wait for its other end.
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file);
        let Some(metadata) = metadata else { continue };
        let is_small = metadata.len() <= SOURCE_BYTES_MAX;
        let bytes = is_small.then(|| fs::read(path).ok()).flatten();
        match bytes.filter(|bytes| total + bytes.len() <= SOURCES_BYTES_MAX) {
            Some(bytes) => {
                total += bytes.len();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                kept.files.insert(path.to_owned(), text);
            }
            None => kept.left_out.push(path.to_owned()),
        }
    }
    kept
}

fn files_of(place: &SourcePlace) -> impl Iterator<Item = &str> {
    let helper = place.helper.as_ref();
    let helper = helper.and_then(|helper| helper.file.as_deref());
    let frames = place.stack.iter().filter(|frame| !frame.trusted);
    let frames = frames.filter_map(|frame| frame.file.as_deref());
    place
        .file
        .as_deref()
        .into_iter()
        .chain(helper)
        .chain(frames)
}
