//! Maps the site and call stack ids of records to operations.

use powerfail_protocol::fuzz::{CodePlace, ModuleHash, Operation};

/// A module in the address space of the target.
#[derive(Clone, Copy, Debug)]
struct Module {
    address: u64,
    len_bytes: u64,
    hash: ModuleHash,
}

/// The operation of a site or call stack.
#[derive(Clone, Copy, Debug)]
struct Known {
    operation: Operation,
    /// The same if all callers tell operations apart.
    of_stack: Operation,
}

/// Modules, and the operations of sites and call stacks. All processes of a target are forks of one, so what one of them
/// reports holds for all.
#[derive(Debug)]
pub(super) struct Places {
    stacks: bool,
    modules: Vec<Module>,
    operations: Vec<Option<Known>>,
}

/// Ids are dense; a higher one is invalid.
const NUMBERS_MAX: usize = 1 << 24;

impl Places {
    /// No modules. `stacks`: whether an operation is identified by its whole call stack.
    pub(super) const fn new(stacks: bool) -> Self {
        Self {
            stacks,
            modules: Vec::new(),
            operations: Vec::new(),
        }
    }

    /// Adds a module, which replaces those at its addresses.
    pub(super) fn load(&mut self, address: u64, len_bytes: u64, path: &[u8]) {
        let end = address.saturating_add(len_bytes);
        self.modules
            .retain(|module| module.address >= end || module.address + module.len_bytes <= address);
        self.modules.push(Module {
            address,
            len_bytes,
            hash: ModuleHash::of_path(path),
        });
    }

    fn place(&self, address: u64) -> CodePlace {
        let inside = |module: &&Module| address.wrapping_sub(module.address) < module.len_bytes;
        self.modules.iter().find(inside).map_or(
            CodePlace {
                module: ModuleHash::NONE,
                offset: address,
            },
            |module| CodePlace {
                module: module.hash,
                offset: address - module.address,
            },
        )
    }

    /// Adds a site or call stack: its addresses, innermost first.
    pub(super) fn define(&mut self, number: u64, addresses: impl Iterator<Item = u64>) {
        let number = number as usize;
        if number >= NUMBERS_MAX {
            return;
        }
        if number >= self.operations.len() {
            self.operations.resize(number + 1, None);
        }
        let places: Vec<CodePlace> = addresses.map(|address| self.place(address)).collect();
        let depth = if self.stacks { places.len() } else { 1 };
        self.operations[number] = Some(Known {
            operation: Operation::of_stack(places.iter().take(depth).copied()),
            of_stack: Operation::of_stack(places.iter().copied()),
        });
    }

    /// The operation of an id.
    pub(super) fn operation(&self, number: u32) -> Option<Operation> {
        self.known(number).map(|known| known.operation)
    }

    /// The operation of the call stack of an id. The innermost place of an operation on a file is in the C library, so only
    /// its callers tell it apart.
    pub(super) fn operation_of_stack(&self, number: u32) -> Option<Operation> {
        self.known(number).map(|known| known.of_stack)
    }

    fn known(&self, number: u32) -> Option<Known> {
        self.operations.get(number as usize).copied().flatten()
    }
}
