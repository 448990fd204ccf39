//! `syscall` instructions: where they are, and the breakpoints in their place.
//!
//! # Safety
//!
//! Only functions of loaded modules are read.
#![allow(unsafe_code, reason = "reads the code of the target")]

use super::Sites;
use crate::host;
use crate::patching::code;
use crate::patching::modules::Function;
use crate::patching::surroundings::FunctionLayout;

/// The instruction `syscall`.
pub(super) const SYSCALL: [u8; 2] = [0x0f, 0x05];

impl Sites {
    /// The functions among those of a module whose system calls concern us.
    pub(super) fn callers_among(
        &self,
        functions: &[Function],
        from: u64,
        to: u64,
    ) -> Vec<Function> {
        let mut callers = Vec::new();
        for address in &self.system_callers {
            let holds = |function: &&Function| (function.start..function.end).contains(address);
            match functions.iter().find(holds) {
                Some(function) if !callers.contains(function) => callers.push(*function),
                None if (from..to).contains(address) => host::warn(
                    "a function of the C library has no unwind entry; its system calls are not recorded",
                ),
                _ => {}
            }
        }
        callers
    }

    /// Puts breakpoints at the system calls in functions.
    pub(super) fn sweep_system_calls(&mut self, functions: &[Function]) {
        for function in functions {
            // SAFETY: functions of loaded modules are readable.
            let bytes = unsafe { code::view(function.start, function.end - function.start) };
            if !may_have_system_calls(bytes) {
                continue;
            }
            let mut found = Vec::new();
            let classifier = &mut self.patcher.classifier;
            let layout = FunctionLayout::of(classifier, *function, bytes, |scanned| {
                if scanned.is_system_call {
                    found.push(scanned.address);
                }
            });
            // Behind a breakpoint, other instructions would be decoded.
            if !found.is_empty() {
                let known = self.patcher.functions.entry(function.start);
                known.or_insert(layout);
            }
            for address in found {
                self.break_at_system_call(address);
            }
        }
    }

    fn break_at_system_call(&mut self, address: u64) {
        if self.system_calls.contains(&address) {
            return;
        }
        let claims = &mut self.patcher.claims;
        let is_used = claims.owner(address).is_some() || claims.dependant(address).is_some();
        if is_used {
            host::warn(&format!(
                "the system call at {address:#x} lies inside a patch and is not recorded"
            ));
            return;
        }
        claims.keep(address, address + SYSCALL.len() as u64);
        self.system_calls.insert(address);
        code::replace(core::iter::once((address, &[code::BREAKPOINT][..])));
    }

    /// A copy of a `syscall` instruction in whose place a breakpoint is, with a jump back.
    pub(crate) fn system_call_copy(&mut self, address: u64) -> Option<u64> {
        const JUMP: u8 = 0xe9;
        if let Some(copy) = self.system_call_copies.get(&address) {
            return Some(*copy);
        }
        let len = 7;
        let place = self.patcher.place_near(address, len)?;
        let distance = (address + 2).wrapping_sub(place + len) as i32;
        let mut copy = [0; 7];
        copy[..2].copy_from_slice(&SYSCALL);
        copy[2] = JUMP;
        copy[3..].copy_from_slice(&distance.to_le_bytes());
        self.patcher.write(place, len, &copy);
        self.system_call_copies.insert(address, place);
        Some(place)
    }

    /// Whether a breakpoint stands for a system call.
    pub(crate) fn is_system_call(&self, address: u64) -> bool {
        self.system_calls.contains(&address)
    }
}

/// Whether any of these bytes could be a `syscall` instruction.
pub(super) fn may_have_system_calls(bytes: &[u8]) -> bool {
    code::has_pair(bytes, |first, second| [first, second] == SYSCALL)
}
