//! The symbol table of a file: which function an address is in, if there is no debug information.

use object::LittleEndian as LE;
use object::elf::{self, Sym64};
use object::pod;

use crate::Problem;
use crate::elf::{Elf, RawSymbols, string_at};

/// The functions in a symbol table.
pub(crate) struct SymbolTable {
    /// Those that say how long they are; ordered by address, and the better name last.
    sized: Vec<Symbol>,
    /// Those that do not: labels in assembly code. Ordered by address.
    labels: Vec<Symbol>,
    names: Vec<u8>,
}

struct Symbol {
    start: u64,
    end: u64,
    /// The greatest end of this symbol and all before it: no earlier one reaches further.
    reach: u64,
    name: u32,
    rank: Rank,
}

/// Which of several names of one function is shown: the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Local,
    Weak,
    Global,
}

/// A function and its name.
pub(crate) struct NamedFunction<'a> {
    /// Its name, as the file has it.
    pub(crate) name: &'a [u8],
    /// Its first address.
    pub(crate) start: u64,
}

impl SymbolTable {
    /// Reads a table of symbols; nothing if the file has none, or one without functions.
    pub(crate) fn load(file: &Elf, kind: elf::SectionType) -> Result<Option<Self>, Problem> {
        let Some(RawSymbols { table, names }) = file.symbols(kind)? else {
            return Ok(None);
        };
        let count = table.len() / size_of::<Sym64<LE>>();
        let (table, _) = pod::slice_from_bytes::<Sym64<LE>>(&table, count)
            .map_err(|()| file.damaged("a table of symbols"))?;
        let mut sized = Vec::new();
        let mut labels = Vec::new();
        for symbol in table {
            let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
            if !is_function && symbol.st_type() != elf::STT_NOTYPE {
                continue;
            }
            // Only what is defined in code: this also leaves out what other files define.
            let Some(section) = file.code_section(symbol.st_shndx.get(LE).0) else {
                continue;
            };
            let start = symbol.st_value.get(LE);
            let size = symbol.st_size.get(LE);
            let symbol = Symbol {
                start,
                end: if size == 0 {
                    section.end
                } else {
                    start.saturating_add(size)
                },
                reach: 0,
                name: symbol.st_name.get(LE),
                rank: match symbol.st_bind() {
                    elf::STB_GLOBAL => Rank::Global,
                    elf::STB_WEAK => Rank::Weak,
                    _ => Rank::Local,
                },
            };
            if names
                .get(symbol.name as usize)
                .is_none_or(|&first| first == 0)
            {
                continue;
            }
            if size == 0 {
                labels.push(symbol);
            } else {
                sized.push(symbol);
            }
        }
        if sized.is_empty() && labels.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self::new(sized, labels, names)))
    }

    fn new(mut sized: Vec<Symbol>, mut labels: Vec<Symbol>, names: Vec<u8>) -> Self {
        // Of equals, the last in the order is found; the name makes the order independent of the table's.
        sized.sort_unstable_by_key(|it| (it.start, it.rank, std::cmp::Reverse(it.name)));
        labels.sort_unstable_by_key(|it| (it.start, it.rank, std::cmp::Reverse(it.name)));
        set_reach(&mut sized);
        // A label inside a function is the target of a jump and names no function.
        labels.retain(|label| find_in(&sized, label.start).is_none());
        // A label ends where the next function or label begins.
        let mut next_label = u64::MAX;
        let mut last_start = u64::MAX;
        for label in labels.iter_mut().rev() {
            if label.start != last_start {
                next_label = last_start;
                last_start = label.start;
            }
            let next_sized = sized.partition_point(|it| it.start <= label.start);
            let next_sized = sized.get(next_sized).map_or(u64::MAX, |it| it.start);
            label.end = label.end.min(next_sized).min(next_label);
        }
        set_reach(&mut labels);
        Self {
            sized,
            labels,
            names,
        }
    }

    /// The function that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<NamedFunction<'_>> {
        let symbol = find_in(&self.sized, address).or_else(|| find_in(&self.labels, address))?;
        Some(NamedFunction {
            name: string_at(&self.names, symbol.name)?,
            start: symbol.start,
        })
    }
}

fn set_reach(symbols: &mut [Symbol]) {
    let mut reach = 0;
    for symbol in symbols {
        reach = symbol.end.max(reach);
        symbol.reach = reach;
    }
}

/// The symbol that contains an address and begins closest to it.
fn find_in(symbols: &[Symbol], address: u64) -> Option<&Symbol> {
    let end = symbols.partition_point(|symbol| symbol.start <= address);
    symbols[..end]
        .iter()
        .rev()
        .take_while(|symbol| symbol.reach > address)
        .find(|symbol| symbol.end > address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[u8] = b"\0outer\0inner\0local\0global\0label\0after\0";

    fn symbol(name: &str, start: u64, end: u64, rank: Rank) -> Symbol {
        let at = NAMES
            .windows(name.len())
            .position(|it| it == name.as_bytes())
            .unwrap();
        Symbol {
            start,
            end,
            reach: 0,
            name: at as u32,
            rank,
        }
    }

    fn name(table: &SymbolTable, address: u64) -> Option<&str> {
        table
            .find(address)
            .map(|found| std::str::from_utf8(found.name).unwrap())
    }

    #[test]
    fn the_closest_symbol_that_contains_the_address_is_found() {
        let table = SymbolTable::new(
            vec![
                symbol("local", 100, 110, Rank::Local),
                symbol("outer", 10, 50, Rank::Global),
                symbol("global", 100, 110, Rank::Global),
                symbol("inner", 20, 30, Rank::Local),
            ],
            vec![
                symbol("after", 60, 120, Rank::Local),
                symbol("label", 22, 120, Rank::Local),
                symbol("label", 55, 120, Rank::Local),
            ],
            NAMES.to_vec(),
        );
        let expected = [
            (9, None),
            (10, Some("outer")),
            (20, Some("inner")),
            (22, Some("inner")),
            (29, Some("inner")),
            (30, Some("outer")),
            (49, Some("outer")),
            (50, None),
            (55, Some("label")),
            (60, Some("after")),
            (99, Some("after")),
            (100, Some("global")),
            (110, None),
            (u64::MAX, None),
        ];
        for (address, wanted) in expected {
            assert_eq!(name(&table, address), wanted, "at {address}");
        }
    }
}
