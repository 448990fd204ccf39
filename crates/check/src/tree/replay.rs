//! Shows the crash of a tree again.

use std::path::Path;

use powerfail_finding::{Evidence, TreeCrash};
use powerfail_image::{TreeImage, write_tree};
use powerfail_model::EventIndex;
use powerfail_model::files::{
    CrashState, FileSystem, Frontier, LostLength, LostPage, NodeId, OperationIndex, PageIndex,
};
use powerfail_oracle::Verdict;

use super::recording::TreeRecording;
use super::runner::{TreeRunner, TreeTrial};
use crate::error::CheckError;

/// The crash of a finding.
pub(crate) struct TreeReplay<'r> {
    recording: &'r TreeRecording,
    trial: TreeTrial,
}

impl<'r> TreeReplay<'r> {
    /// The crash that a finding shows. An error if the trace does not permit it: the report belongs to another one.
    pub(crate) fn new(
        recording: &'r TreeRecording,
        evidence: &Evidence,
        crash: &TreeCrash,
    ) -> Result<Self, CheckError> {
        let file_system: FileSystem =
            { crash.file_system.parse() }.map_err(|_| CheckError::DamagedReport)?;
        let place = recording.place_at(EventIndex(evidence.failure.event));
        let mut frontier = Frontier::new(file_system, &recording.initial);
        for it in &recording.operations[..place] {
            frontier.apply(it.index, &it.operation);
        }
        let state = state_of(crash).ok_or(CheckError::DamagedReport)?;
        if !frontier.permits(&state) {
            return Err(CheckError::DamagedReport);
        }
        Ok(Self {
            recording,
            trial: TreeTrial {
                place,
                difference: frontier.difference(&state),
            },
        })
    }

    fn image(&self) -> TreeImage {
        self.recording
            .image(self.trial.place, &self.trial.difference)
    }

    /// Writes the crashed tree into an existing directory.
    pub(crate) fn write_image(&self, to: &Path) -> Result<(), CheckError> {
        Ok(write_tree(&self.image(), self.recording.roots.len(), to)?)
    }

    /// Runs recovery on it.
    pub(crate) fn run(
        &self,
        runner: &mut TreeRunner<'_>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Verdict>, CheckError> {
        let verdicts = runner.run_in_a_row(&self.trial, 1, is_interrupted)?;
        Ok(verdicts.into_iter().next())
    }
}

/// The state that a report describes.
fn state_of(crash: &TreeCrash) -> Option<CrashState> {
    let page = |it: &powerfail_finding::LostFilePage| {
        let mut first_lost = [LostPage::NOTHING; powerfail_model::files::SECTORS_PER_PAGE];
        if it.first_lost.len() != first_lost.len() {
            return None;
        }
        for (sector, lost) in first_lost.iter_mut().zip(&it.first_lost) {
            *sector = lost.map_or(LostPage::NOTHING, OperationIndex);
        }
        Some(LostPage {
            node: NodeId(it.node),
            page: PageIndex(it.page),
            first_lost,
        })
    };
    let lengths = crash.lengths.iter().map(|it| LostLength {
        node: NodeId(it.node),
        first_lost: OperationIndex(it.first_lost),
        len_bytes: it.len_bytes,
    });
    Some(CrashState {
        lost: crash.lost.iter().copied().map(OperationIndex).collect(),
        lengths: lengths.collect(),
        pages: crash.pages.iter().map(page).collect::<Option<_>>()?,
    })
}
