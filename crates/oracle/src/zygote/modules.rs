//! The modules of a process, from its own memory: files that were replaced since do not matter, and the code page of
//! the kernel, which has no file, can be unwound too.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use powerfail_trace::Module;

/// No table of unwind information is longer.
const MAX_TABLE_BYTES: u64 = 64 << 20;
const MAX_SEGMENTS: u16 = 128;
const LOAD: u32 = 1;
const NOTE: u32 = 4;
const EH_FRAME_HEADER: u32 = 0x6474_e550;
const BUILD_ID: u32 = 3;
/// The kernel's page of code.
const VDSO: &str = "[vdso]";

/// The memory of a process.
#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    pub(crate) fn of(process: i32) -> Option<Self> {
        File::open(format!("/proc/{process}/mem")).ok().map(Self)
    }

    pub(crate) fn read(&self, address: u64, len_bytes: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len_bytes];
        self.0.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// A module with what is needed to unwind its frames.
#[derive(Debug)]
pub(crate) struct LoadedModule {
    pub(crate) module: Module,
    /// Whether it has a file.
    pub(crate) has_file: bool,
    /// What is added to an address in its file.
    pub(crate) bias: u64,
    /// `.eh_frame_hdr`: address and bytes.
    pub(crate) index: Option<(Range<u64>, Vec<u8>)>,
    /// `.eh_frame`: address and bytes.
    pub(crate) table: Option<(Range<u64>, Vec<u8>)>,
}

impl LoadedModule {
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self.module.load_address;
        start..start.saturating_add(self.module.len_bytes)
    }
}

#[derive(Debug)]
struct Mapping {
    range: Range<u64>,
    offset: u64,
    path: String,
}

/// All modules of a process that have files, without what is needed to unwind.
pub(crate) fn files_of(process: i32) -> Vec<Module> {
    let Some(memory) = Memory::of(process) else {
        return Vec::new();
    };
    let modules = find_modules(process, &memory, false);
    let with_files = modules.into_iter().filter(|it| it.has_file);
    with_files.map(|it| it.module).collect()
}

/// All modules of a process.
pub(crate) fn modules_of(process: i32, memory: &Memory) -> Vec<LoadedModule> {
    find_modules(process, memory, true)
}

fn find_modules(process: i32, memory: &Memory, to_unwind: bool) -> Vec<LoadedModule> {
    let maps = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let mappings: Vec<Mapping> = maps.lines().filter_map(mapping).collect();
    let mut modules = Vec::new();
    for (place, first) in mappings.iter().enumerate() {
        let is_module = first.path.starts_with('/') || first.path == VDSO;
        if !is_module || first.offset != 0 {
            continue;
        }
        let end = mappings[place..]
            .iter()
            .enumerate()
            .take_while(|(at, it)| *at == 0 || it.path != first.path || it.offset != 0)
            .filter(|(_, it)| it.path == first.path)
            .map(|(_, it)| it.range.end)
            .last()
            .unwrap_or(first.range.end);
        let tables = to_unwind.then_some(&mappings[..]);
        if let Some(module) = read_module(memory, first, end, tables) {
            modules.push(module);
        }
    }
    modules
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let offset = fields.nth(1)?;
    let path = fields.nth(2)?.trim_start();
    Some(Mapping {
        range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: path.strip_suffix(" (deleted)").unwrap_or(path).into(),
    })
}

struct Segment {
    kind: u32,
    address: u64,
    memory_bytes: u64,
    align: u64,
}

fn read_module(
    memory: &Memory,
    first: &Mapping,
    end: u64,
    tables: Option<&[Mapping]>,
) -> Option<LoadedModule> {
    let segments = segments(memory, first.range.start)?;
    let lowest = segments.iter().filter(|it| it.kind == LOAD);
    let lowest = lowest.map(|it| it.address & !0xfff).min()?;
    let bias = first.range.start.wrapping_sub(lowest);
    let mut build_id = Vec::new();
    for note in segments.iter().filter(|it| it.kind == NOTE) {
        let len = note.memory_bytes.min(1 << 16) as usize;
        let notes = memory.read(bias.wrapping_add(note.address), len);
        if let Some(found) = notes.and_then(|it| find_build_id(&it, note.align)) {
            build_id = found;
            break;
        }
    }
    let index = segments
        .iter()
        .find(|it| tables.is_some() && it.kind == EH_FRAME_HEADER)
        .and_then(|it| {
            let start = bias.wrapping_add(it.address);
            let len = it.memory_bytes.min(MAX_TABLE_BYTES);
            let bytes = memory.read(start, len as usize)?;
            Some((start..start.checked_add(len)?, bytes))
        });
    let table = index.as_ref().and_then(|(range, bytes)| {
        let start = table_address(range.start, bytes)?;
        // Where it ends is not said anywhere in memory: at a zero, at the latest with its mapping.
        let within = tables?.iter().find(|it| it.range.contains(&start))?;
        let len = (within.range.end - start).min(MAX_TABLE_BYTES);
        let bytes = memory.read(start, len as usize)?;
        Some((start..start + len, bytes))
    });
    Some(LoadedModule {
        module: Module {
            path: (&first.path).into(),
            build_id,
            load_address: first.range.start,
            len_bytes: end - first.range.start,
            function: None,
        },
        has_file: first.path != VDSO,
        bias,
        index,
        table,
    })
}

/// The program headers of an ELF image at an address.
fn segments(memory: &Memory, start: u64) -> Option<Vec<Segment>> {
    let header = memory.read(start, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let offset = u64_at(&header, 32)?;
    let entry_bytes = u16_at(&header, 54)?;
    let count = u16_at(&header, 56)?.min(MAX_SEGMENTS);
    if entry_bytes != 56 {
        return None;
    }
    let headers = memory.read(start.checked_add(offset)?, usize::from(count) * 56)?;
    let segments = headers.chunks_exact(56).filter_map(|it| {
        Some(Segment {
            kind: u32_at(it, 0)?,
            address: u64_at(it, 16)?,
            memory_bytes: u64_at(it, 40)?,
            align: u64_at(it, 48)?,
        })
    });
    Some(segments.collect())
}

/// Where `.eh_frame` is, by the header of its index. Linkers write one encoding: relative to the field,
/// in four bytes with a sign.
fn table_address(index_start: u64, index: &[u8]) -> Option<u64> {
    const RELATIVE_SIGNED_4: u8 = 0x1b;
    if index.first() != Some(&1) || index.get(1) != Some(&RELATIVE_SIGNED_4) {
        return None;
    }
    let distance = i64::from(u32_at(index, 4)?.cast_signed());
    index_start.checked_add(4)?.checked_add_signed(distance)
}

fn find_build_id(notes: &[u8], align_bytes: u64) -> Option<Vec<u8>> {
    let align = if align_bytes == 8 { 8 } else { 4 };
    let mut rest = notes;
    loop {
        let name_len = u32_at(rest, 0)? as usize;
        let len = u32_at(rest, 4)? as usize;
        let kind = u32_at(rest, 8)?;
        let name = rest.get(12..12_usize.checked_add(name_len)?)?;
        let start = (12 + name_len).checked_next_multiple_of(align)?;
        let end = start.checked_add(len)?;
        let description = rest.get(start..end)?;
        if name == b"GNU\0" && kind == BUILD_ID {
            return Some(description.to_vec());
        }
        rest = rest.get(end.checked_next_multiple_of(align)?..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let (chunk, _) = bytes.get(at..)?.split_first_chunk()?;
    Some(u16::from_le_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let (chunk, _) = bytes.get(at..)?.split_first_chunk()?;
    Some(u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let (chunk, _) = bytes.get(at..)?.split_first_chunk()?;
    Some(u64::from_le_bytes(*chunk))
}
