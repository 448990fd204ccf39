//! Build-ids: which build of a program a file is.

use std::fmt;
use std::path::Path;

use object::elf;

use crate::elf::Elf;
use crate::problem::Problem;

/// The build-id of a file: the linker's hash of its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BuildId(pub Vec<u8>);

impl BuildId {
    /// Whether the file has no build-id.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The build-id that a file has now; an empty one if it has none.
    ///
    /// # Errors
    ///
    /// Why the file cannot be read.
    pub fn of(path: &Path) -> Result<Self, Problem> {
        Elf::open(path)?.build_id()
    }

    /// The build-id among the notes of a section or segment.
    ///
    /// Notes are padded to `align_bytes`, four or eight.
    pub(crate) fn from_notes(notes: &[u8], align_bytes: u64) -> Option<Self> {
        let align = if align_bytes == 8 { 8 } else { 4 };
        let mut rest = notes;
        loop {
            let name_len = read_u32(rest, 0)? as usize;
            let description_len = read_u32(rest, 4)? as usize;
            let kind = read_u32(rest, 8)?;
            let name_end = 12usize.checked_add(name_len)?;
            let name = rest.get(12..name_end)?;
            let description_start = name_end.checked_next_multiple_of(align)?;
            let description_end = description_start.checked_add(description_len)?;
            let description = rest.get(description_start..description_end)?;
            let is_gnu = name.strip_suffix(b"\0").unwrap_or(name) == elf::ELF_NOTE_GNU;
            if is_gnu && kind == elf::NT_GNU_BUILD_ID.0 && !description.is_empty() {
                return Some(Self(description.to_vec()));
            }
            rest = rest.get(description_end.checked_next_multiple_of(align)?..)?;
        }
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((description.len() as u32).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(description);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let mut notes = note(b"GNU\0", 1, &[9; 7]);
        notes.extend(note(b"stapsdt\0", 3, &[1]));
        notes.extend(note(b"GNU\0", 3, &[0xab, 0xcd, 0x01]));
        assert_eq!(
            BuildId::from_notes(&notes, 4),
            Some(BuildId(vec![0xab, 0xcd, 0x01]))
        );
    }

    #[test]
    fn notes_that_are_cut_have_no_build_id() {
        let notes = note(b"GNU\0", 3, &[0xab; 20]);
        for len in 0..notes.len() {
            assert_eq!(BuildId::from_notes(&notes[..len], 4), None);
        }
        assert_eq!(BuildId::from_notes(&[0xff; 64], 4), None);
    }

    #[test]
    fn build_ids_are_shown_in_hexadecimal() {
        assert_eq!(BuildId(vec![0, 0x1f, 0xa0]).to_string(), "001fa0");
        assert_eq!(BuildId::default().to_string(), "none");
    }
}
