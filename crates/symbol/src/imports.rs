//! Which function of another module a call leads to.
//!
//! The frames of a call stack do not always tell: an exported function that ends in a jump leaves no
//! frame behind, and the function that it jumps to has no name in a stripped library. The caller knows:
//! its call goes through a slot of its own that the dynamic linker fills in by name.

use object::LittleEndian as LE;
use object::elf::{self, Rela64, Sym64};
use object::pod;
use rustc_hash::FxHashMap;

use crate::Problem;
use crate::elf::{Elf, RawSymbols, string_at};

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
const BND: &[u8] = &[0xf2];
const JUMP_THROUGH_SLOT: &[u8] = &[0xff, 0x25];
const CALL_THROUGH_SLOT: &[u8] = &[0xff, 0x15];
const CALL: u8 = 0xe8;
/// The longest call and the longest stub that are understood.
const CALL_BYTES: u64 = 6;
const STUB_BYTES: u64 = 11;

/// The functions that a module takes from others.
pub(crate) struct Imports {
    file: Elf,
    /// By the address of the slot that gets the function's address: where its name begins.
    slots: FxHashMap<u64, u32>,
    names: Vec<u8>,
}

impl Imports {
    /// Reads which slots a file has.
    pub(crate) fn load(file: Elf) -> Result<Self, Problem> {
        let mut slots = FxHashMap::default();
        let RawSymbols { table, names } = match file.symbols(elf::SHT_DYNSYM)? {
            Some(symbols) => symbols,
            // Linked statically.
            None => RawSymbols {
                table: Vec::new(),
                names: Vec::new(),
            },
        };
        let count = table.len() / size_of::<Sym64<LE>>();
        let (symbols, _) = pod::slice_from_bytes::<Sym64<LE>>(&table, count)
            .map_err(|()| file.damaged("a table of symbols"))?;
        for table in file.loaded_relocations()? {
            let count = table.len() / size_of::<Rela64<LE>>();
            let (relocations, _) = pod::slice_from_bytes::<Rela64<LE>>(&table, count)
                .map_err(|()| file.damaged("a table of relocations"))?;
            for relocation in relocations {
                let kind = relocation.r_type(LE, false);
                if kind != elf::R_X86_64_JUMP_SLOT && kind != elf::R_X86_64_GLOB_DAT {
                    continue;
                }
                if let Some(symbol) = symbols.get(relocation.r_sym(LE, false) as usize) {
                    slots.insert(relocation.r_offset.get(LE), symbol.st_name.get(LE));
                }
            }
        }
        Ok(Self { file, slots, names })
    }

    /// The name of the function whose call returns to an address; nothing if the call does not lead to
    /// another module, or if only the running program knows where it leads.
    pub(crate) fn called(&self, return_address: u64) -> Option<&[u8]> {
        let start = return_address.checked_sub(CALL_BYTES)?;
        let call = self.file.loaded_bytes(start, CALL_BYTES)?;
        let target = return_address.wrapping_add_signed(distance(call.get(2..)?)?);
        // The opcode of the shorter call may be the end of another instruction, or a part of the
        // distance in the longer one: what counts is whether it leads to a slot.
        if call.starts_with(CALL_THROUGH_SLOT)
            && let Some(name) = self.name(target)
        {
            return Some(name);
        }
        if call.get(1) == Some(&CALL) {
            return self.called_by_stub(target);
        }
        None
    }

    /// A stub of the procedure linkage table.
    fn called_by_stub(&self, address: u64) -> Option<&[u8]> {
        let stub = self.file.loaded_bytes(address, STUB_BYTES)?;
        let jump = stub.strip_prefix(ENDBR64).unwrap_or(&stub);
        let jump = jump.strip_prefix(BND).unwrap_or(jump);
        let rest = jump.strip_prefix(JUMP_THROUGH_SLOT)?;
        let distance = distance(rest.get(..4)?)?;
        let end = address + (stub.len() - rest.len() + 4) as u64;
        self.name(end.wrapping_add_signed(distance))
    }

    fn name(&self, slot: u64) -> Option<&[u8]> {
        string_at(&self.names, *self.slots.get(&slot)?)
    }
}

fn distance(bytes: &[u8]) -> Option<i64> {
    let bytes: [u8; 4] = bytes.try_into().ok()?;
    Some(i64::from(i32::from_le_bytes(bytes)))
}
