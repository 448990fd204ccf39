//! Silent sites that wait: most of what a sweep finds is never executed, so a site gets a breakpoint first, and its
//! trampoline when it is executed.
//!
//! The code of libpmem alone has 1,400 flushes and fences, in a version for each kind of processor; a run executes a
//! dozen of them. A breakpoint is one byte, a trampoline takes memory, a plan, and a message to the host.
//!
//! Some sites cannot wait:
//!
//! - those of the C library, which executes some with all signals blocked, where a breakpoint ends the target;
//! - those of Go, whose threads have small stacks;
//! - those of a target that is repeated: each repetition would have to do the work again;
//! - those of a scheduled target, whose loads are patched at the beginning as well.
//!
//! Code that plans a patch near a waiting site sees the original instructions, and settles that site first.
//!
//! # Safety
//!
//! Only code of loaded modules is read.
#![allow(unsafe_code, reason = "reads the code of the target")]

use std::borrow::Cow;
use std::collections::BTreeSet;

use powerfail_patch::{MAX_SITE_LEN, Site};
use powerfail_protocol::shared::Mode;

use super::{Sites, check_means};
use crate::patching::code;
use crate::patching::modules::LoadedModule;
use crate::patching::patcher::Patching;
use crate::record::{schedule, threads};
use crate::{fuzz, host};

/// How far from a site an instruction can make room for its jump: what a short jump reaches, and some.
const REACH: u64 = 160;

impl Sites {
    /// Patches what does not fault in a module, or lets it wait.
    pub(super) fn patch_silent(&mut self, module: &LoadedModule, silent: Vec<Site>) {
        let may_wait = self.mode == Mode::Patch
            && module.takes_breakpoints()
            && !schedule::is_on()
            && !fuzz::is_active();
        if silent.is_empty() {
            return;
        }
        let mut refused = 0;
        let mut waiting = Vec::new();
        if !threads::has_company() {
            self.announced.begin_gathering();
        }
        code::change_much(|| {
            for site in silent {
                if self.entries.contains_key(&site.address()) {
                    continue;
                }
                if may_wait && check_means(&site).is_ok() {
                    waiting.push(site.address());
                    self.waiting.insert(site.address(), site.bytes[0]);
                } else if self.settle(&site, Self::SETTLE_DEPTH_MAX).is_err() {
                    refused += 1;
                }
            }
            waiting.sort_unstable();
            code::put_breakpoints(&waiting);
        });
        self.announced.end_gathering();
        if refused > 0 {
            warn_of_refused();
        }
    }

    /// Makes the trampoline of a site that waits and is about to be executed; where it continues. `None`: it is none of
    /// these.
    pub(crate) fn wake(&mut self, address: u64) -> Option<u64> {
        let byte = *self.waiting.get(&address)?;
        let function = self.modules.function_at(address);
        let end = function.map_or(address + 1, |function| function.end);
        let bytes = self.code_in(address, end.min(address + MAX_SITE_LEN as u64));
        let site = self.patcher.classifier.classify(&bytes, address);
        self.patcher.give_back(bytes);
        if self.settle(&site, Self::SETTLE_DEPTH_MAX).is_err() {
            warn_of_refused();
            self.waiting.remove(&address);
            code::replace(core::iter::once((address, &[byte][..])));
            return Some(address);
        }
        self.breakpoint(address)
    }

    /// The code in a range, without the breakpoints of sites that wait.
    pub(super) fn code_without_waiting(&mut self, from: u64, to: u64) -> Cow<'static, [u8]> {
        // SAFETY: callers pass code of loaded modules, or instructions that were just executed.
        let bytes = unsafe { code::view(from, to - from) };
        let mut waiting = self.waiting.range(from..to).peekable();
        if waiting.peek().is_none() {
            return Cow::Borrowed(bytes);
        }
        let mut bytes = self.patcher.copy(bytes);
        for (address, byte) in waiting {
            bytes[(address - from) as usize] = *byte;
        }
        Cow::Owned(bytes)
    }

    /// Sites that wait, so near to another one that they could matter to its jump.
    pub(super) fn waiting_near(&self, site: u64) -> BTreeSet<u64> {
        let near = self.waiting.range(site.saturating_sub(REACH)..site + REACH);
        let addresses = near.map(|(address, _)| *address);
        addresses.filter(|address| *address != site).collect()
    }
}

fn warn_of_refused() {
    host::warn(
        "some flushes, fences or locked operations could not be patched and are not recorded",
    );
}
