//! The kernel without its compression. An image unpacks itself when it boots, which takes half of the time that booting takes in
//! QEMU. Here the same happens at the speed of this computer.
//!
//! QEMU starts a kernel that is an ELF file if it has an entry for PVH, as those of distributions have. Every other image boots
//! as it is.

use std::io::Write as _;
use std::process::{Command, Stdio};

use object::LittleEndian;
use object::elf::{FileHeader64, NoteType};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

/// Programs that unpack, by the first bytes of what they unpack.
const PROGRAMS: [(&[u8], &[&str]); 3] = [
    (b"\xfd7zXZ\0", &["xz", "--single-stream"]),
    (b"\x1f\x8b\x08", &["gzip"]),
    (b"\x28\xb5\x2f\xfd", &["zstd"]),
];
/// What the header of an image counts.
const SECTOR: usize = 512;
/// The note that tells where a kernel begins for PVH.
const PVH_ENTRY: NoteType = NoteType(18);

/// The kernel in an image, if it is known how to unpack it, and if QEMU can start it then.
pub(crate) fn unpacked(image: &[u8]) -> Option<Vec<u8>> {
    let packed = payload(image)?;
    let (_, words) = PROGRAMS
        .iter()
        .find(|(magic, _)| packed.starts_with(magic))?;
    let bytes = run(words, packed)?;
    has_pvh_entry(&bytes).then_some(bytes)
}

/// What an image has packed, by the header of the boot protocol (Documentation/x86/boot.rst).
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let setup_sectors = usize::from(*image.get(0x1f1)?).max(1);
    let begin = (setup_sectors + 1) * SECTOR + number(0x248)?;
    image.get(begin..begin.checked_add(number(0x24c)?)?)
}

/// What a program unpacks. Behind the packed kernel are four bytes with its length, about which the programs complain.
fn run(words: &[&str], packed: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .args(["-d", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = input.write_all(packed);
        });
        child.wait_with_output()
    });
    output.ok().map(|output| output.stdout)
}

/// Whether an ELF file has an entry for PVH.
fn has_pvh_entry(bytes: &[u8]) -> bool {
    let endian = LittleEndian;
    let notes = || {
        let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
        // All of it must be there.
        let segments = header.program_headers(endian, bytes).ok()?;
        let mut has_entry = false;
        for segment in segments {
            segment.data(endian, bytes).ok()?;
            let mut notes = segment.notes(endian, bytes).ok().flatten();
            while let Some(note) = notes.as_mut().and_then(|it| it.next().ok().flatten()) {
                has_entry |= note.name() == b"Xen" && note.n_type(endian) == PVH_ENTRY;
            }
        }
        Some(has_entry)
    };
    notes() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image with a payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&3_u32.to_le_bytes());
        let len = u32::try_from(payload.len()).unwrap();
        image[0x24c..0x250].copy_from_slice(&len.to_le_bytes());
        image.extend([1, 2, 3]);
        image.extend(payload);
        image.extend([4, 5]);
        image
    }

    /// An ELF file with one note.
    fn elf(note_type: NoteType) -> Vec<u8> {
        let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        elf.resize(64, 0);
        elf[16..20].copy_from_slice(&[2, 0, 62, 0]);
        elf[20] = 1;
        elf[32] = 64;
        for (at, value) in [(52, 64), (54, 56), (56, 1), (58, 64)] {
            elf[at] = value;
        }
        let mut segment = [0; 56];
        segment[0] = 4;
        segment[8] = 120;
        segment[32] = 24;
        segment[48] = 4;
        elf.extend(segment);
        for word in [4, 8, note_type.0] {
            elf.extend(word.to_le_bytes());
        }
        elf.extend(b"Xen\0\0\0\0\0\0\0\0\0");
        elf
    }

    #[test]
    fn a_kernel_is_unpacked_if_qemu_can_start_it() {
        let pack = |bytes: &[u8]| {
            let mut packed = run_packer(bytes);
            packed.extend((bytes.len() as u32).to_le_bytes());
            packed
        };
        let good = elf(PVH_ENTRY);
        assert_eq!(unpacked(&image(&pack(&good))), Some(good.clone()));
        assert_eq!(unpacked(&image(&pack(&elf(NoteType(1))))), None);
        assert_eq!(unpacked(&image(&pack(&good[..130]))), None);
        assert_eq!(unpacked(&image(b"not packed")), None);
        assert_eq!(unpacked(&image(&pack(&good))[..1100]), None);
        assert_eq!(unpacked(b"no image"), None);
    }

    fn run_packer(bytes: &[u8]) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel");
        std::fs::write(&path, bytes).unwrap();
        let output = Command::new("gzip").arg("-c").arg(path).output().unwrap();
        output.stdout
    }
}
