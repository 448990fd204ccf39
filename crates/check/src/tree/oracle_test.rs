//! Whether recovery can fail at all: it is tried on trees that no crash could leave.

use powerfail_image::{FileContent, TreeEntry, TreeImage};
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
    /// Tries recovery on the final tree without files, with files of zeros, and with other bytes.
    pub(super) fn test_oracle(
        &mut self,
        undisturbed: &UndisturbedRecovery,
    ) -> Result<OracleTest, CheckError> {
        let newest = self.recording.newest(self.recording.len()).image();
        let mut images = vec![without_files(&newest)];
        images.extend([Change::Zero, Change::Scramble].map(|change| changed(&newest, change)));
        images.push(newest);
        let of = images.len() as u64;
        for (number, image) in images.iter().enumerate() {
            self.observer
                .progress(CheckStep::OracleTest, number as u64, of);
            let observer = &mut *self.observer;
            let ran = self.runner.run_on(image, &|| observer.is_interrupted())?;
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
    Zero,
    Scramble,
}

fn without_files(image: &TreeImage) -> TreeImage {
    let mut image = image.clone();
    image
        .entries
        .retain(|_, entry| matches!(entry, TreeEntry::Directory { .. }));
    image
}

fn changed(image: &TreeImage, change: Change) -> TreeImage {
    let mut image = image.clone();
    for file in image.files.values_mut() {
        let len_bytes = file.content.len_bytes();
        if len_bytes > CHANGED_BYTES_MAX {
            continue;
        }
        let mut bytes = file.content.to_vec();
        for (byte, number) in bytes.iter_mut().zip((1_u8..=255).cycle()) {
            match change {
                Change::Zero => *byte = 0,
                Change::Scramble => *byte ^= number.wrapping_mul(0x9d) | 1,
            }
        }
        file.content = FileContent::default();
        file.content.write(0, &bytes);
    }
    image
}
