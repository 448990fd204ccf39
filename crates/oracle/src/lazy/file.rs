//! The file that the oracle, its zygotes and recovering processes share. It is read and written here, and mapped
//! only by the runtime.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use powerfail_protocol::explore::{
    CHOICES_AT, CHOICES_MAX, Choice, FILE_LEN, LOG_AT, LOG_MAX, NOTES_AT, NOTES_MAX, Note,
    OUTPUT_MARK_BYTES, RecoveryControl, SITES_AT, SITES_MAX,
};
use rustix::fs::MemfdFlags;

/// The shared file of one slot.
#[derive(Debug)]
pub(crate) struct SharedFile(File);

/// A field of [`RecoveryControl`], by its place.
macro_rules! control {
    ($field:ident) => {
        offset_of!(RecoveryControl, $field) as u64
    };
}
pub(super) use control;

impl SharedFile {
    pub(crate) fn create() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("powerfail-explore", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, FILE_LEN)?;
        Ok(Self(file.into()))
    }

    pub(crate) fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    pub(super) fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    pub(super) fn word(&self, at: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    pub(super) fn long(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn set_word(&self, at: u64, value: u32) -> io::Result<()> {
        self.write(at, &value.to_ne_bytes())
    }

    /// From here on executions run on the image as it is.
    pub(crate) fn just_run(&self) -> io::Result<()> {
        self.set_word(control!(flags), 0)
    }

    /// An execution or a command begins, and no other process runs.
    pub(crate) fn reset_processes(&self) -> io::Result<()> {
        // Three words, side by side.
        const {
            assert!(
                offset_of!(RecoveryControl, attached) == offset_of!(RecoveryControl, active) + 8
            );
        };
        self.write(control!(active), &[0; 12])
    }

    /// The next process that starts is the first of its command.
    pub(crate) fn forget_root(&self) -> io::Result<()> {
        self.set_word(control!(root), 0)
    }

    /// The process that runs now, if one has registered.
    pub(crate) fn active(&self) -> Option<i32> {
        let active = self.word(control!(active)).ok()?;
        i32::try_from(active).ok().filter(|pid| *pid > 1)
    }

    /// The number of processes that wait in branches.
    pub(crate) fn waiting(&self) -> io::Result<u32> {
        self.word(control!(waiting))
    }

    /// What a branch writes when it is about to fork.
    pub(crate) fn output_mark(&self) -> io::Result<[u8; OUTPUT_MARK_BYTES]> {
        let mut mark = [0; OUTPUT_MARK_BYTES];
        self.0.read_exact_at(&mut mark, control!(output_mark))?;
        Ok(mark)
    }

    /// Whether a process that runs with the runtime has opened a pool.
    pub(crate) fn has_begun(&self) -> io::Result<bool> {
        Ok(self.word(control!(begun))? != 0)
    }

    pub(crate) fn choice_count(&self) -> io::Result<u32> {
        Ok(self.word(control!(choice_count))?.min(CHOICES_MAX))
    }

    /// The choices of the execution that ended last, as they are in the file.
    pub(crate) fn choices(&self) -> io::Result<Vec<u8>> {
        let count = self.choice_count()? as usize;
        self.read(CHOICES_AT, count * size_of::<Choice>())
    }

    pub(crate) fn note_count(&self) -> io::Result<u32> {
        Ok(self.word(control!(note_count))?.min(NOTES_MAX))
    }

    /// Its notes, as they are in the file.
    pub(crate) fn notes(&self) -> io::Result<Vec<u8>> {
        let count = self.note_count()? as usize;
        self.read(NOTES_AT, count * size_of::<Note>())
    }

    /// Its log, as it is in the file.
    pub(crate) fn log(&self) -> io::Result<Vec<u8>> {
        let len = self.long(control!(log_len))?.min(LOG_MAX);
        self.read(LOG_AT, usize::try_from(len).unwrap_or(0))
    }

    /// The instructions that were noted in processes so far.
    pub(crate) fn sites(&self) -> io::Result<Vec<u8>> {
        let count = self.word(control!(site_count))?.min(SITES_MAX);
        self.read(SITES_AT, 8 * count as usize)
    }

    /// Writes the instructions that were noted in processes of the program that runs next.
    pub(crate) fn set_sites(&self, sites: &[u8]) -> io::Result<()> {
        self.write(SITES_AT, sites)?;
        self.set_word(control!(site_count), (sites.len() / 8) as u32)
    }

    pub(crate) fn traps(&self) -> io::Result<u64> {
        self.long(control!(traps))
    }

    pub(crate) fn steps(&self) -> io::Result<u64> {
        self.long(control!(steps))
    }
}
