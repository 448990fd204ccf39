//! The files of code of the target: what the host is told of them, and their unwind tables.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use powerfail_protocol::message::MessageKind;
use powerfail_unwind::{Description, Row, cie_distance, row_at};

use crate::host;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const EXECUTABLE: u32 = 1;
const PAGE: u64 = 4096;

/// A segment of a file.
#[derive(Clone, Copy, Debug)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_len: u64,
    memory_len: u64,
}

/// A file of code that is mapped.
struct Module {
    start: u64,
    end: u64,
    /// What is added to addresses of the file.
    distance: u64,
    bytes: Vec<u8>,
    segments: Vec<Segment>,
    /// Addresses of functions and of their entries in the unwind table, as the file has them; sorted.
    functions: Vec<(u64, u64)>,
    /// Whether code without a table keeps frame pointers, as far as is known.
    keeps_frames: bool,
}

/// What is known of the caller at an address of code.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// Where it is.
    Row(Row),
    /// The table has an entry that is not followed.
    Unknown,
    /// The address lies in no function that has an entry in a table, but others of its file have: that of musl is such code. It
    /// keeps no frame pointers.
    Search,
    /// There is no table.
    FramePointer,
}

/// What a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callee {
    Function(u64),
    /// What is stored at this address.
    Stored(u64),
    Unknown,
}

static MODULES: Mutex<Vec<Module>> = Mutex::new(Vec::new());

fn number<const N: usize>(bytes: &[u8], at: u64) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn half(bytes: &[u8], at: u64) -> Option<u32> {
    number(bytes, at).map(u32::from_le_bytes)
}

fn word(bytes: &[u8], at: u64) -> Option<u64> {
    number(bytes, at).map(u64::from_le_bytes)
}

fn segments(bytes: &[u8]) -> Option<Vec<Segment>> {
    const HEADERS_AT: u64 = 32;
    const ENTRY_LEN_AT: u64 = 54;
    const COUNT_AT: u64 = 56;
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    let first = word(bytes, HEADERS_AT)?;
    let entry_len = u64::from(u16::from_le_bytes(number(bytes, ENTRY_LEN_AT)?));
    let count = u64::from(u16::from_le_bytes(number(bytes, COUNT_AT)?));
    (0..count)
        .map(|index| {
            let at = first + index * entry_len;
            Some(Segment {
                kind: half(bytes, at)?,
                flags: half(bytes, at + 4)?,
                offset: word(bytes, at + 8)?,
                address: word(bytes, at + 16)?,
                file_len: word(bytes, at + 32)?,
                memory_len: word(bytes, at + 40)?,
            })
        })
        .collect()
}

/// A part of a file with code was mapped at an address. Tells the host, unless it knows. Gives where the file begins.
pub(crate) fn add(path: &Path, code: u64, offset: Option<u64>) -> Option<u64> {
    let bytes = std::fs::read(path).ok()?;
    let segments = segments(&bytes)?;
    let loads = || segments.iter().filter(|segment| segment.kind == PT_LOAD);
    let of_code = loads().find(|segment| {
        segment.flags & EXECUTABLE != 0
            && offset.is_none_or(|offset| segment.offset / PAGE == offset / PAGE)
    });
    let of_code = of_code?;
    let distance = (code & !(PAGE - 1)).wrapping_sub(of_code.address & !(PAGE - 1));
    let start = loads()
        .map(|it| it.address & !(PAGE - 1))
        .min()
        .unwrap_or(0);
    let end = loads()
        .map(|it| it.address + it.memory_len)
        .max()
        .unwrap_or(0);
    let mut module = Module {
        start: start.wrapping_add(distance),
        end: end.wrapping_add(distance),
        distance,
        functions: Vec::new(),
        keeps_frames: true,
        bytes,
        segments,
    };
    let functions = module.functions_of_table();
    module.functions = functions
        .or_else(|| module.functions_of_section())
        .unwrap_or_default();
    // Go has a table of its own.
    let is_go = module.section(b".gopclntab").is_some();
    module.keeps_frames = is_go || module.functions.is_empty();
    let mut modules = MODULES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if modules
        .iter()
        .any(|known| (known.start, known.end) == (module.start, module.end))
    {
        return Some(module.start);
    }
    let mut text = module.build_id().unwrap_or_default();
    let words = [
        module.start,
        module.end - module.start,
        text.len() as u64,
        0,
        0,
    ];
    text.extend_from_slice(path.as_os_str().as_encoded_bytes());
    host::send(MessageKind::Module, words, &text, None);
    modules.retain(|known| known.end <= module.start || module.end <= known.start);
    let start = module.start;
    modules.push(module);
    Some(start)
}

/// Whether a file begins as a program or a library does.
pub(crate) fn is_code(file: &File) -> bool {
    let mut head = [0; 4];
    file.read_exact_at(&mut head, 0).is_ok() && head == *b"\x7fELF"
}

/// Looks at the file of an address, and at the address as the file has it.
fn with_module<R>(address: u64, look: impl FnOnce(&Module, u64) -> Option<R>) -> Option<R> {
    let modules = MODULES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let module = modules
        .iter()
        .find(|module| (module.start..module.end).contains(&address))?;
    look(module, address.wrapping_sub(module.distance))
}

/// Where the caller is, at an address of code.
pub(crate) fn rule(address: u64) -> Rule {
    let rule = with_module(address, |module, at| {
        let search = || (!module.keeps_frames).then_some(Rule::Search);
        module.rule(at).or_else(search)
    });
    rule.unwrap_or(Rule::FramePointer)
}

/// Whether an address lies in a file of code.
pub(crate) fn has(address: u64) -> bool {
    with_module(address, |_, _| Some(())).is_some()
}

/// Where the function begins that has an address, if it has an entry in a table.
pub(crate) fn function(address: u64) -> Option<u64> {
    with_module(address, |module, at| {
        Some(module.description(at)?.start.wrapping_add(module.distance))
    })
}

/// What the call right before an address goes to; `None` if there is none.
pub(crate) fn call_before(address: u64) -> Option<Callee> {
    const LONGEST: u64 = 7;
    with_module(address.checked_sub(1)?, |module, _| {
        let at = address.wrapping_sub(module.distance);
        let is_code =
            |it: &&Segment| it.flags & EXECUTABLE != 0 && at.wrapping_sub(it.address) < it.file_len;
        module.segments.iter().find(is_code)?;
        let bytes = module
            .bytes_at(at.checked_sub(LONGEST)?)?
            .get(..LONGEST as usize)?;
        let target = || Some(address.wrapping_add_signed(half(bytes, 3)?.cast_signed().into()));
        match bytes {
            [_, _, 0xe8, ..] => Some(Callee::Function(target()?)),
            [_, 0xff, 0x15, ..] => Some(Callee::Stored(target()?)),
            _ => {
                // Of a register, or of what one points to: a second byte that says call, with as many bytes behind as it needs.
                let is_call = |at: usize, len: usize| {
                    let operand = bytes[at + 1];
                    let needs = match (operand >> 6, operand & 7) {
                        (0 | 3, 0..=3 | 6 | 7) | (3, 4 | 5) => 2,
                        (0, 4) | (1, 0..=3 | 5..=7) => 3,
                        (1, 4) => 4,
                        (2, 4) => 7,
                        _ => 6,
                    };
                    bytes[at] == 0xff && operand >> 3 & 7 == 2 && needs == len
                };
                let found = (2..=LONGEST as usize).any(|len| is_call(LONGEST as usize - len, len));
                found.then_some(Callee::Unknown)
            }
        }
    })
}

impl Module {
    /// The bytes of the file from an address on.
    fn bytes_at(&self, address: u64) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|segment| {
            segment.kind == PT_LOAD && address.wrapping_sub(segment.address) < segment.file_len
        })?;
        let at = segment.offset + (address - segment.address);
        self.bytes.get(usize::try_from(at).ok()?..)
    }

    fn rule(&self, address: u64) -> Option<Rule> {
        let description = self.description(address)?;
        Some(row_at(&description, address).map_or(Rule::Unknown, Rule::Row))
    }

    /// The entry of the function that has an address.
    fn description(&self, address: u64) -> Option<Description<'_>> {
        let behind = self
            .functions
            .partition_point(|(start, _)| *start <= address);
        let (_, entry_at) = *self.functions.get(behind.checked_sub(1)?)?;
        let entry = self.bytes_at(entry_at)?;
        let common = (entry_at + 4).checked_sub(cie_distance(entry)?)?;
        let description = Description::new(entry, entry_at, self.bytes_at(common)?)?;
        let is_inside = address.wrapping_sub(description.start) < description.len_bytes;
        is_inside.then_some(description)
    }

    /// Reads the sorted table of `.eh_frame_hdr` in its usual encoding.
    fn functions_of_table(&self) -> Option<Vec<(u64, u64)>> {
        const USUAL: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let table = self
            .segments
            .iter()
            .find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
        let bytes = self.bytes_at(table.address)?;
        if !bytes.starts_with(&USUAL) {
            return None;
        }
        let relative = |at: u64| {
            let distance = half(bytes, at)?.cast_signed();
            Some(table.address.wrapping_add_signed(distance.into()))
        };
        let count = u64::from(half(bytes, 8)?);
        (0..count)
            .map(|index| Some((relative(12 + 8 * index)?, relative(16 + 8 * index)?)))
            .collect()
    }

    /// Reads `.eh_frame` from its beginning: static programs often have no sorted table of it.
    fn functions_of_section(&self) -> Option<Vec<(u64, u64)>> {
        let (address, len) = self.section(b".eh_frame")?;
        let table = self.bytes_at(address)?.get(..usize::try_from(len).ok()?)?;
        let mut functions = Vec::new();
        let mut at = 0;
        while let Some(entry_len) = half(table, at).filter(|len| *len != 0 && *len != u32::MAX) {
            let entry = table.get(usize::try_from(at).ok()?..)?;
            // Others are common parts.
            if let Some(distance) = cie_distance(entry)
                && let Some(common) = (address + at + 4).checked_sub(distance)
                && let Some(common) = self.bytes_at(common)
                && let Some(description) = Description::new(entry, address + at, common)
            {
                functions.push((description.start, address + at));
            }
            at += 4 + u64::from(entry_len);
        }
        functions.sort_unstable();
        Some(functions)
    }

    /// Address and length of a section.
    fn section(&self, name: &[u8]) -> Option<(u64, u64)> {
        const HEADERS_AT: u64 = 40;
        const ENTRY_LEN_AT: u64 = 58;
        const COUNT_AT: u64 = 60;
        const NAMES_AT: u64 = 62;
        let bytes = &self.bytes;
        let short = |at: u64| Some(u64::from(u16::from_le_bytes(number(bytes, at)?)));
        let (first, entry_len) = (word(bytes, HEADERS_AT)?, short(ENTRY_LEN_AT)?);
        let header = |index: u64| first + index * entry_len;
        let names = word(bytes, header(short(NAMES_AT)?) + 24)?;
        (0..short(COUNT_AT)?).map(header).find_map(|header| {
            let at = names + u64::from(half(bytes, header)?);
            let text = bytes.get(usize::try_from(at).ok()?..)?;
            let is_it = text.starts_with(name) && text.get(name.len()) == Some(&0);
            is_it.then(|| Some((word(bytes, header + 16)?, word(bytes, header + 32)?)))?
        })
    }

    fn build_id(&self) -> Option<Vec<u8>> {
        const NT_GNU_BUILD_ID: u32 = 3;
        const HEAD_LEN: usize = 12;
        let notes = self
            .segments
            .iter()
            .filter(|segment| segment.kind == PT_NOTE);
        for segment in notes {
            let start = usize::try_from(segment.offset).ok()?;
            let end = start.checked_add(usize::try_from(segment.file_len).ok()?)?;
            let mut rest = self.bytes.get(start..end)?;
            while rest.len() > HEAD_LEN {
                let name_len = (half(rest, 0)? as usize).next_multiple_of(4);
                let content_len = half(rest, 4)? as usize;
                let name = rest.get(HEAD_LEN..)?.get(..name_len)?;
                let content = rest.get(HEAD_LEN + name_len..)?.get(..content_len)?;
                if half(rest, 8)? == NT_GNU_BUILD_ID && name == b"GNU\0" {
                    return Some(content.to_vec());
                }
                rest = rest
                    .get(HEAD_LEN + name_len + content_len.next_multiple_of(4)..)
                    .unwrap_or_default();
            }
        }
        None
    }
}
