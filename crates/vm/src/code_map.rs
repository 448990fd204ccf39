//! From addresses of a guest's kernel to modules of the trace.

use powerfail_trace::{Frame, ModuleIndex};

use crate::elf::FUNCTION_LEN_MAX;

/// Where the functions of the kernel and of its modules are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeMap {
    /// The addresses of all functions in order, each with the begin of its module. A module that was loaded again has functions
    /// in two places, with others in between.
    functions: Vec<(u64, u64, ModuleIndex)>,
}

impl CodeMap {
    /// Adds functions of a module that begins there.
    pub(crate) fn add(
        &mut self,
        begin: u64,
        module: ModuleIndex,
        functions: impl Iterator<Item = u64>,
    ) {
        self.functions
            .extend(functions.map(|address| (address, begin, module)));
    }

    /// To be called when all are there.
    pub(crate) fn sort(&mut self) {
        self.functions.sort_unstable();
    }

    /// The place of an address: in the module of the last function that begins before it.
    pub fn place(&self, address: u64) -> Frame {
        let next = self
            .functions
            .partition_point(|(begin, ..)| *begin <= address);
        match next.checked_sub(1).map(|last| self.functions[last]) {
            Some((function, begin, module)) if address - function < FUNCTION_LEN_MAX => {
                Frame::Module {
                    module,
                    offset: address - begin,
                }
            }
            _ => Frame::Absolute { address },
        }
    }
}
