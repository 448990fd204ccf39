//! The parts of an ELF file that are needed here, read piece by piece.
//!
//! The file is read where and when something is needed, never mapped and never as a whole: a binary of
//! a gigabyte costs what its tables cost. Each length is checked against the file before memory is
//! asked for.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::elf::{self, CompressionHeader64, FileHeader64, ProgramHeader64, SectionHeader64};
use object::pod::{self, Pod};
use object::{CompressedData, CompressionFormat, LittleEndian as LE};

use crate::{BuildId, Problem};

/// How much of one file is kept in memory at most. Files that need more give no source.
pub const MAX_DEBUG_BYTES: u64 = 4 << 30;

/// Tables of headers beyond this are no compiler's work.
const MAX_HEADERS: u64 = 1 << 20;

/// The part of an address that is below the granularity of mappings.
const PAGE_MASK: u64 = 0xfff;

/// An open ELF file.
pub(crate) struct Elf {
    path: PathBuf,
    file: File,
    len_bytes: u64,
    segments: Vec<ProgramHeader64<LE>>,
    sections: Vec<SectionHeader64<LE>>,
    section_names: Vec<u8>,
}

/// A table of symbols as it is in the file.
pub(crate) struct RawSymbols {
    /// The symbols.
    pub(crate) table: Vec<u8>,
    /// Their names, each with a zero at its end.
    pub(crate) names: Vec<u8>,
}

impl Elf {
    /// Opens a file and reads its tables of segments and sections.
    pub(crate) fn open(path: &Path) -> Result<Self, Problem> {
        let unreadable = |error: io::Error| Problem::Unreadable {
            path: path.into(),
            kind: error.kind(),
        };
        // Asked before opening: to open a pipe is to wait for its other end.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(Problem::NotAFile { path: path.into() });
        }
        let file = File::open(path).map_err(unreadable)?;
        let len_bytes = file.metadata().map_err(unreadable)?.len();
        let mut elf = Self {
            path: path.into(),
            file,
            len_bytes,
            segments: Vec::new(),
            sections: Vec::new(),
            section_names: Vec::new(),
        };
        let header = elf.read_header()?;
        elf.read_sections(&header)?;
        elf.read_segments(&header)?;
        Ok(elf)
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The address at which the first loadable segment would be mapped if the file were loaded where it
    /// was linked: what must be added to an offset in the module to get an address in its tables.
    pub(crate) fn image_base(&self) -> Result<u64, Problem> {
        self.segments
            .iter()
            .filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD)
            .map(|segment| segment.p_vaddr.get(LE) & !PAGE_MASK)
            .min()
            .ok_or_else(|| self.damaged("no loadable segment"))
    }

    /// The build-id; none if there is none.
    pub(crate) fn build_id(&self) -> Result<BuildId, Problem> {
        // Segments of separate debug files point at nothing; their sections are right.
        let notes: Vec<_> = if self.sections.is_empty() {
            let notes = self
                .segments
                .iter()
                .filter(|it| it.p_type.get(LE) == elf::PT_NOTE);
            notes
                .map(|it| (it.p_offset.get(LE), it.p_filesz.get(LE), it.p_align.get(LE)))
                .collect()
        } else {
            let notes = self
                .sections
                .iter()
                .filter(|it| it.sh_type.get(LE) == elf::SHT_NOTE);
            notes
                .map(|it| {
                    (
                        it.sh_offset.get(LE),
                        it.sh_size.get(LE),
                        it.sh_addralign.get(LE),
                    )
                })
                .collect()
        };
        for (offset, len, align) in notes {
            if let Some(build_id) = BuildId::from_notes(&self.read(offset, len)?, align) {
                return Ok(build_id);
            }
        }
        Ok(BuildId::default())
    }

    /// The content of a section, decompressed; nothing if there is no such section, or if its content
    /// was stripped.
    pub(crate) fn section(&self, name: &str) -> Result<Option<Vec<u8>>, Problem> {
        let found = self
            .find_section(name.as_bytes())
            .map(|section| (section, false));
        let found = found.or_else(|| {
            // GNU compression, from before ELF had its own, is told by the name.
            let old_name = format!(".z{}", name.strip_prefix('.')?);
            Some((self.find_section(old_name.as_bytes())?, true))
        });
        let Some((section, is_gnu_compressed)) = found else {
            return Ok(None);
        };
        let bytes = self.section_bytes(section)?;
        if is_gnu_compressed {
            let damaged = || self.damaged("a compressed section without header");
            let compressed = bytes.strip_prefix(b"ZLIB").ok_or_else(damaged)?;
            let (len, data) = compressed.split_first_chunk().ok_or_else(damaged)?;
            return self
                .decompress(CompressionFormat::Zlib, u64::from_be_bytes(*len), data)
                .map(Some);
        }
        if section.sh_flags.get(LE).0 & elf::SHF_COMPRESSED.0 == 0 {
            return Ok(Some(bytes));
        }
        let (header, data) = pod::from_bytes::<CompressionHeader64<LE>>(&bytes)
            .map_err(|()| self.damaged("a compressed section without header"))?;
        let format = match header.ch_type.get(LE) {
            elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
            elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
            _ => return Err(self.damaged("a section with unknown compression")),
        };
        self.decompress(format, header.ch_size.get(LE), data)
            .map(Some)
    }

    /// The symbols in the first section of a kind.
    pub(crate) fn symbols(&self, kind: elf::SectionType) -> Result<Option<RawSymbols>, Problem> {
        let Some(section) = self.sections.iter().find(|it| it.sh_type.get(LE) == kind) else {
            return Ok(None);
        };
        let names = self
            .sections
            .get(section.sh_link.get(LE) as usize)
            .ok_or_else(|| self.damaged("symbols without names"))?;
        Ok(Some(RawSymbols {
            table: self.section_bytes(section)?,
            names: self.section_bytes(names)?,
        }))
    }

    /// The addresses of a section that holds code; nothing for other sections.
    pub(crate) fn code_section(&self, index: u16) -> Option<Range<u64>> {
        let section = self.sections.get(usize::from(index))?;
        if section.sh_flags.get(LE).0 & elf::SHF_EXECINSTR.0 == 0 {
            return None;
        }
        let start = section.sh_addr.get(LE);
        Some(start..start.saturating_add(section.sh_size.get(LE)))
    }

    /// The tables of relocations that the dynamic linker applies.
    pub(crate) fn loaded_relocations(&self) -> Result<Vec<Vec<u8>>, Problem> {
        self.sections
            .iter()
            .filter(|section| {
                section.sh_type.get(LE) == elf::SHT_RELA
                    && section.sh_flags.get(LE).0 & elf::SHF_ALLOC.0 != 0
            })
            .map(|section| self.section_bytes(section))
            .collect()
    }

    /// Bytes of the file that are loaded at an address; nothing if they are not, or not all of them.
    pub(crate) fn loaded_bytes(&self, address: u64, len_bytes: u64) -> Option<Vec<u8>> {
        self.segments
            .iter()
            .filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD)
            .find_map(|segment| {
                let within = address.checked_sub(segment.p_vaddr.get(LE))?;
                let end = within.checked_add(len_bytes)?;
                if end > segment.p_filesz.get(LE) {
                    return None;
                }
                let at = segment.p_offset.get(LE).checked_add(within)?;
                self.read(at, len_bytes).ok()
            })
    }

    /// The checksum of the whole file, as `.gnu_debuglink` has it.
    pub(crate) fn checksum(&self) -> Result<u32, Problem> {
        if self.len_bytes > MAX_DEBUG_BYTES {
            return Err(self.too_large(self.len_bytes));
        }
        let mut hasher = crc32fast::Hasher::new();
        let mut at = 0;
        while at < self.len_bytes {
            let bytes = self.read(at, (self.len_bytes - at).min(1 << 20))?;
            hasher.update(&bytes);
            at += bytes.len() as u64;
        }
        Ok(hasher.finalize())
    }

    /// A contradiction in this file.
    pub(crate) fn damaged(&self, what: impl Into<String>) -> Problem {
        Problem::Damaged {
            path: self.path.clone(),
            what: what.into(),
        }
    }

    /// Too much in this file.
    pub(crate) fn too_large(&self, needed_bytes: u64) -> Problem {
        Problem::TooLarge {
            path: self.path.clone(),
            needed_bytes,
        }
    }

    fn read_header(&self) -> Result<FileHeader64<LE>, Problem> {
        let start = self.read(0, self.len_bytes.min(size_of::<FileHeader64<LE>>() as u64))?;
        if !start.starts_with(&elf::ELFMAG) {
            return Err(Problem::NotElf {
                path: self.path.clone(),
            });
        }
        let other = |what| Problem::OtherArchitecture {
            path: self.path.clone(),
            what,
        };
        if start
            .get(4)
            .is_some_and(|&class| class != elf::ELFCLASS64.0)
        {
            return Err(other("32-bit"));
        }
        if start.get(5).is_some_and(|&data| data != elf::ELFDATA2LSB.0) {
            return Err(other("big-endian"));
        }
        match pod::from_bytes(&start) {
            Ok((header, _)) => Ok(*header),
            Err(()) => Err(self.truncated(size_of::<FileHeader64<LE>>() as u64)),
        }
    }

    fn read_sections(&mut self, header: &FileHeader64<LE>) -> Result<(), Problem> {
        let at = header.e_shoff.get(LE);
        if at == 0 {
            return Ok(());
        }
        let mut count = u64::from(header.e_shnum.get(LE));
        let mut names = u32::from(header.e_shstrndx.get(LE).0);
        // The first section holds what does not fit into the header.
        if count == 0 || names == u32::from(elf::SHN_XINDEX.0) {
            let first: Vec<SectionHeader64<LE>> = self.read_table(at, 1)?;
            if count == 0 {
                count = first[0].sh_size.get(LE);
            }
            if names == u32::from(elf::SHN_XINDEX.0) {
                names = first[0].sh_link.get(LE);
            }
        }
        self.sections = self.read_table(at, count)?;
        if let Some(names) = self.sections.get(names as usize) {
            self.section_names = self.section_bytes(names)?;
        }
        Ok(())
    }

    fn read_segments(&mut self, header: &FileHeader64<LE>) -> Result<(), Problem> {
        let mut count = u64::from(header.e_phnum.get(LE));
        if count == u64::from(elf::PN_XNUM)
            && let Some(first) = self.sections.first()
        {
            count = u64::from(first.sh_info.get(LE));
        }
        self.segments = self.read_table(header.e_phoff.get(LE), count)?;
        Ok(())
    }

    fn read_table<T: Pod>(&self, at: u64, count: u64) -> Result<Vec<T>, Problem> {
        if count > MAX_HEADERS {
            return Err(self.damaged(format!("{count} headers in a table")));
        }
        let bytes = self.read(at, count * size_of::<T>() as u64)?;
        pod::slice_from_bytes(&bytes, count as usize)
            .map(|(table, _)| table.to_vec())
            .map_err(|()| self.damaged("a table of headers"))
    }

    fn find_section(&self, name: &[u8]) -> Option<&SectionHeader64<LE>> {
        self.sections.iter().find(|section| {
            // What objcopy takes out, it leaves behind as a section without content.
            section.sh_type.get(LE) != elf::SHT_NOBITS
                && string_at(&self.section_names, section.sh_name.get(LE)) == Some(name)
        })
    }

    fn section_bytes(&self, section: &SectionHeader64<LE>) -> Result<Vec<u8>, Problem> {
        if section.sh_type.get(LE) == elf::SHT_NOBITS {
            return Ok(Vec::new());
        }
        self.read(section.sh_offset.get(LE), section.sh_size.get(LE))
    }

    fn decompress(
        &self,
        format: CompressionFormat,
        uncompressed_size: u64,
        data: &[u8],
    ) -> Result<Vec<u8>, Problem> {
        if uncompressed_size > MAX_DEBUG_BYTES {
            return Err(self.too_large(uncompressed_size));
        }
        let compressed = CompressedData {
            format,
            data,
            uncompressed_size,
        };
        match compressed.decompress() {
            Ok(bytes) => Ok(bytes.into_owned()),
            Err(error) => Err(self.damaged(error.to_string())),
        }
    }

    fn read(&self, at: u64, len_bytes: u64) -> Result<Vec<u8>, Problem> {
        let end = at.saturating_add(len_bytes);
        if end > self.len_bytes {
            return Err(self.truncated(end));
        }
        if len_bytes > MAX_DEBUG_BYTES {
            return Err(self.too_large(len_bytes));
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(len_bytes as usize).is_err() {
            return Err(self.too_large(len_bytes));
        }
        bytes.resize(len_bytes as usize, 0);
        match self.file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(bytes),
            // It was cut after it was opened.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.truncated(end)),
            Err(error) => Err(Problem::Unreadable {
                path: self.path.clone(),
                kind: error.kind(),
            }),
        }
    }

    fn truncated(&self, needed_bytes: u64) -> Problem {
        Problem::Truncated {
            path: self.path.clone(),
            needed_bytes,
            len_bytes: self.len_bytes,
        }
    }
}

/// The string that begins at an offset of a table of strings.
pub(crate) fn string_at(strings: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = strings.get(offset as usize..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    Some(&rest[..end])
}
