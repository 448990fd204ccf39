//! An ELF file that has nothing but names of functions: so the kernel of a guest is a module like others to all that looks up
//! addresses.

use crate::kallsyms::KernelSymbol;

const HEADER_LEN: u64 = 64;
const SEGMENT_LEN: u64 = 56;
const SECTION_LEN: u64 = 64;
const SYMBOL_LEN: u64 = 24;
/// How long a function may be at most: the last of a module, and one with a gap behind it.
pub(crate) const FUNCTION_LEN_MAX: u64 = 16 << 10;
const PAGE: u64 = 4096;
/// The number of the section that symbols say they are in.
const TEXT: u16 = 1;

/// The addresses of a module: from the page of its first function to behind its last.
pub(crate) fn range(symbols: &[KernelSymbol]) -> Option<(u64, u64)> {
    let (first, last) = (symbols.first()?, symbols.last()?);
    let begin = first.address / PAGE * PAGE;
    let end = last.address.checked_add(FUNCTION_LEN_MAX)?;
    Some((begin, end - begin))
}

/// A section of debug information.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// The bytes of the file. Symbols come in the order of their addresses.
pub(crate) fn write(symbols: &[KernelSymbol], debug: &[Section]) -> Vec<u8> {
    let (begin, len) = range(symbols).unwrap_or_default();
    let mut names = vec![0];
    let mut table = vec![0; SYMBOL_LEN as usize];
    for (number, symbol) in symbols.iter().enumerate() {
        let next = symbols.get(number + 1).map(|next| next.address);
        let size = (next.unwrap_or(begin + len) - symbol.address).min(FUNCTION_LEN_MAX);
        table.extend((names.len() as u32).to_le_bytes());
        // A global function.
        table.extend([0x12, 0]);
        table.extend(TEXT.to_le_bytes());
        table.extend(symbol.address.to_le_bytes());
        table.extend(size.to_le_bytes());
        names.extend(symbol.name.as_bytes());
        names.push(0);
    }
    let mut section_names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0".to_vec();
    let table_at = HEADER_LEN + SEGMENT_LEN;
    let names_at = table_at + table.len() as u64;
    let section_names_at = names_at + names.len() as u64;
    let mut debug_headers = Vec::new();
    for section in debug {
        debug_headers.push((section_names.len() as u32, section.content.len() as u64));
        section_names.extend(section.name.as_bytes());
        section_names.push(0);
    }
    let debug_at = section_names_at + section_names.len() as u64;
    let debug_len: u64 = debug_headers.iter().map(|(_, len)| len).sum();
    let sections_at = (debug_at + debug_len).next_multiple_of(8);
    let section_count = 5 + debug.len() as u64;

    let mut out = Vec::new();
    out.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    out.extend(2u16.to_le_bytes()); // an executable
    out.extend(62u16.to_le_bytes()); // of x86-64
    out.extend(1u32.to_le_bytes());
    out.extend(begin.to_le_bytes());
    out.extend(HEADER_LEN.to_le_bytes());
    out.extend(sections_at.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    for half in [HEADER_LEN, SEGMENT_LEN, 1, SECTION_LEN, section_count, 4] {
        out.extend((half as u16).to_le_bytes());
    }
    // The one segment: readable, executable, without content.
    out.extend(1u32.to_le_bytes());
    out.extend(5u32.to_le_bytes());
    for word in [0, begin, begin, 0, len, PAGE] {
        out.extend(word.to_le_bytes());
    }
    out.extend(&table);
    out.extend(&names);
    out.extend(&section_names);
    for section in debug {
        out.extend(&section.content);
    }
    out.resize(sections_at as usize, 0);
    let mut section =
        |name: u32, kind: u32, flags: u64, rest: [u64; 3], links: [u32; 2], entry: u64| {
            out.extend(name.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend(flags.to_le_bytes());
            for word in rest {
                out.extend(word.to_le_bytes());
            }
            for link in links {
                out.extend(link.to_le_bytes());
            }
            out.extend(1u64.to_le_bytes());
            out.extend(entry.to_le_bytes());
        };
    section(0, 0, 0, [0; 3], [0; 2], 0);
    section(1, 8, 6, [begin, 0, len], [0; 2], 0);
    let table_len = table.len() as u64;
    section(7, 2, 0, [0, table_at, table_len], [3, 1], SYMBOL_LEN);
    section(15, 3, 0, [0, names_at, names.len() as u64], [0; 2], 0);
    let len = section_names.len() as u64;
    section(23, 3, 0, [0, section_names_at, len], [0; 2], 0);
    let mut at = debug_at;
    for (name, len) in debug_headers {
        section(name, 1, 0, [0, at, len], [0; 2], 0);
        at += len;
    }
    out
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

    use super::*;

    #[test]
    fn the_names_can_be_read() {
        let symbol = |address, name: &str| KernelSymbol {
            address,
            name: name.to_owned(),
        };
        let symbols = [
            symbol(0xffff_ffff_8100_0010, "first"),
            symbol(0xffff_ffff_8100_0100, "last"),
        ];
        let debug = Section {
            name: ".debug_line".to_owned(),
            content: b"lines".to_vec(),
        };
        let bytes = write(&symbols, &[debug]);
        let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(&*bytes).unwrap();
        let read: Vec<_> = file
            .symbols()
            .map(|it| (it.name().unwrap().to_owned(), it.address(), it.size()))
            .collect();
        assert_eq!(
            read,
            [
                ("first".to_owned(), 0xffff_ffff_8100_0010, 0xf0),
                ("last".to_owned(), 0xffff_ffff_8100_0100, 16384)
            ]
        );
        let lines = file.section_by_name(".debug_line").unwrap();
        assert_eq!(lines.data().unwrap(), b"lines");
        assert_eq!(range(&symbols), Some((0xffff_ffff_8100_0000, 0x4100)));
    }
}
