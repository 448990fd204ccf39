//! Whether recovery can fail at all: it is tried on trees that no crash could leave.

use std::collections::BTreeSet;

use powerfail_image::{FileContent, NodeKey, TreeEntry, TreeImage};
use powerfail_model::files::{NodeKind, Operation};
use powerfail_oracle::Verdict;

use super::engine::TreeEngine;
use super::prefix::Prefixes;
use super::runner::RunOnTree;
use super::undisturbed::UndisturbedRecovery;
use crate::error::CheckError;
use crate::event::CheckStep;

/// What the test of recovery has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OracleTest {
    /// It rejects a changed tree.
    CanFail,
    /// It accepts every changed tree.
    AcceptsAll,
    /// It does the same on every tree, and opens no file of it that the workload changes.
    OpensNothing,
    /// It accepts what was tried, but some files are too long to be changed.
    Unknown,
}

/// Longer files are not changed.
const CHANGED_BYTES_MAX: u64 = 16 << 20;
/// How many files are removed one at a time.
const REMOVED_MAX: usize = 16;

impl TreeEngine<'_, '_> {
    /// Tries recovery on the last tree that has files which the workload changes: without them, with zeros in them, and with
    /// other bytes. Other files, such as the program itself, stay.
    pub(super) fn test_oracle(
        &mut self,
        undisturbed: &UndisturbedRecovery,
        prefixes: &Prefixes,
    ) -> Result<OracleTest, CheckError> {
        let files = self.recording.changed_nodes();
        let files: BTreeSet<NodeKey> = files.iter().map(|it| NodeKey(it.0.into())).collect();
        // A workload may remove what it has made, such as a lock: its final tree shows nothing.
        let end = self.recording.len();
        let accepted = { prefixes.judged.iter().rev() }.filter(|(_, it)| it.is_none());
        let places = std::iter::once(end).chain(accepted.map(|(place, _)| *place));
        let mut found = None;
        for place in places {
            let image = self.recording.newest(place).image();
            if files.iter().any(|it| image.names_of(*it).next().is_some()) {
                found = Some((place, image));
                break;
            }
        }
        let Some((place, newest)) = found else {
            return Ok(OracleTest::Unknown);
        };
        let mut expected = undisturbed.dump.clone();
        if place != end {
            let observer = &mut *self.observer;
            let run = self.runner.run_on(&newest, &|| observer.is_interrupted())?;
            match run.verdict {
                Verdict::Success { dump } => expected = dump,
                Verdict::Failure(_) => return Ok(OracleTest::CanFail),
            }
        }
        let mut runs = Vec::new();
        for change in Change::ALL {
            match self.accepts(&newest, &files, change, expected.as_deref())? {
                Some(run) => runs.push(run),
                None => return Ok(OracleTest::CanFail),
            }
        }
        let is_long = |node: &NodeKey| {
            let file = newest.files.get(node);
            file.is_some_and(|it| it.content.len_bytes() > CHANGED_BYTES_MAX)
        };
        if files.iter().any(is_long) {
            return Ok(OracleTest::Unknown);
        }
        let is_indifferent = |run: &RunOnTree| {
            let opens_some = files.iter().any(|it| run.used.opened.contains(*it));
            run.outputs == runs[0].outputs && !run.used.is_changed && !opens_some
        };
        // It may be about directories or links, which were not changed.
        let mut operations = self.recording.operations.iter();
        let makes_others = operations.any(
            |it| matches!(&it.operation, Operation::Create { kind, .. } if *kind != NodeKind::File),
        );
        if makes_others || !runs.iter().all(is_indifferent) {
            return Ok(OracleTest::AcceptsAll);
        }
        // It may look at names only, and miss one where another one is there.
        for node in files.iter().take(REMOVED_MAX) {
            let one = BTreeSet::from([*node]);
            let accepted = self.accepts(&newest, &one, Change::Remove, expected.as_deref())?;
            if accepted.is_none() {
                return Ok(OracleTest::CanFail);
            }
        }
        Ok(if files.len() > REMOVED_MAX {
            OracleTest::AcceptsAll
        } else {
            OracleTest::OpensNothing
        })
    }

    /// Runs recovery on a changed tree. `None` if it rejects that.
    fn accepts(
        &mut self,
        newest: &TreeImage,
        files: &BTreeSet<NodeKey>,
        change: Change,
        expected: Option<&[u8]>,
    ) -> Result<Option<RunOnTree>, CheckError> {
        let of = Change::ALL.len() as u64;
        self.observer
            .progress(CheckStep::OracleTest, change as u64, of);
        // Made when it is needed: most recoveries reject the first one, and the files may be large.
        let image = changed(newest, files, change);
        let observer = &mut *self.observer;
        let run = self.runner.run_on(&image, &|| observer.is_interrupted())?;
        let is_accepted = match &run.verdict {
            Verdict::Success { dump } => dump.as_deref() == expected,
            Verdict::Failure(_) => false,
        };
        Ok(is_accepted.then_some(run))
    }
}

#[derive(Clone, Copy)]
enum Change {
    Remove,
    Zero,
    Scramble,
    Nothing,
}

impl Change {
    const ALL: [Self; 4] = [Self::Remove, Self::Zero, Self::Scramble, Self::Nothing];
}

fn changed(image: &TreeImage, files: &BTreeSet<NodeKey>, change: Change) -> TreeImage {
    let mut image = image.clone();
    if matches!(change, Change::Remove) {
        image
            .entries
            .retain(|_, entry| !matches!(entry, TreeEntry::File(node) if files.contains(node)));
    }
    // No two neighbours are changed alike, and none stays the same.
    let pattern: Vec<u8> = (1..=255_u8).map(|it| it.wrapping_mul(0x9d) | 1).collect();
    let chosen = image
        .files
        .iter_mut()
        .filter(|(node, _)| files.contains(node));
    for (_, file) in chosen {
        let len_bytes = file.content.len_bytes();
        if len_bytes > CHANGED_BYTES_MAX {
            continue;
        }
        match change {
            Change::Remove | Change::Nothing => {}
            Change::Zero => file.content.zero(0..len_bytes),
            Change::Scramble => {
                let mut bytes = file.content.to_vec();
                for part in bytes.chunks_mut(pattern.len()) {
                    for (byte, other) in part.iter_mut().zip(&pattern) {
                        *byte ^= other;
                    }
                }
                file.content = FileContent::default();
                file.content.write(0, &bytes);
            }
        }
    }
    image
}
