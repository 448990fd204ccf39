//! Whether recovery can fail at all: it is tried on trees that no crash could leave.

use std::collections::BTreeSet;

use powerfail_image::{FileContent, NodeKey, TreeEntry, TreeImage};
use powerfail_oracle::Verdict;

use super::engine::TreeEngine;
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
}

/// Longer files are not changed: that they are is not what makes the difference.
const CHANGED_BYTES_MAX: u64 = 16 << 20;

impl TreeEngine<'_, '_> {
    /// Tries recovery on the final tree without the files that the workload changes, with zeros in them, and with other bytes.
    /// Other files, such as the program itself, stay.
    pub(super) fn test_oracle(
        &mut self,
        undisturbed: &UndisturbedRecovery,
    ) -> Result<OracleTest, CheckError> {
        let newest = self.recording.newest(self.recording.len()).image();
        let files = self.recording.changed_nodes();
        let files: BTreeSet<NodeKey> = files.iter().map(|it| NodeKey(it.0.into())).collect();
        let of = Change::ALL.len() as u64;
        for (number, change) in (0..).zip(Change::ALL) {
            self.observer.progress(CheckStep::OracleTest, number, of);
            // Made when it is needed: most recoveries reject the first one, and the files may be large.
            let image = changed(&newest, &files, change);
            let observer = &mut *self.observer;
            let ran = self.runner.run_on(&image, &|| observer.is_interrupted())?;
            let (verdict, _) = ran;
            let Verdict::Success { dump } = verdict else {
                return Ok(OracleTest::CanFail);
            };
            if dump != undisturbed.dump {
                return Ok(OracleTest::CanFail);
            }
        }
        Ok(OracleTest::AcceptsAll)
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
