//! Which instructions are watched: decided when QEMU translates a block of code.
//!
//! # Safety
//!
//! Blocks and instructions are used during the callback that gets them. What callbacks get as their data lives forever:
//! blocks are translated again now and then, so it is kept by address and not made again.
#![allow(unsafe_code, reason = "calls QEMU")]

use core::ffi::c_void;
use std::sync::Mutex;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register};
use powerfail_patch::{Action, Classifier, StoreForm};
use powerfail_protocol::EventKind;
use rustc_hash::FxHashMap;

use crate::api::{self, Block, OnAccess, OnExecution};
use crate::registers::{self, Plan, Source};

/// A watched instruction.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) address: u64,
    pub(crate) instruction: Instruction,
    /// What it is if it concerns a pool.
    pub(crate) kind: EventKind,
    /// What it is if it concerns other memory: a locked operation is a fence there.
    pub(crate) elsewhere: Option<EventKind>,
    /// How many bytes it stores in all; QEMU tells of the pieces. 0: as many as QEMU says.
    pub(crate) len_bytes: u16,
    /// A string operation, whose elements are put together.
    pub(crate) is_string: bool,
    /// How its registers are known; of flushes and fences.
    pub(crate) plan: Option<Plan>,
}

/// What is called, and for which instructions.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    /// At the beginning of each block.
    pub(crate) block: Option<OnExecution>,
    /// After each access of an instruction that stores; without it neither stores nor flushes nor fences are watched.
    pub(crate) store: Option<OnAccess>,
    /// After each access of an instruction that loads, but not from the stack by its register.
    pub(crate) load: Option<OnAccess>,
    /// After a call has stored where it returns to. Its data is that address.
    pub(crate) call: Option<OnAccess>,
    /// Before a flush or a fence.
    pub(crate) order: OnExecution,
    /// Where registers are copied for a plan: after an access, or before an instruction.
    pub(crate) copy_at_access: OnAccess,
    pub(crate) copy_before: OnExecution,
}

/// Decodes, classifies, and keeps sites.
struct Translator {
    classifier: Classifier,
    info: InstructionInfoFactory,
    /// By address, and by the address of the block where a plan depends on it.
    sites: FxHashMap<(u64, u64), &'static Site>,
    decoded: Vec<Instruction>,
    watched: Vec<WatchedInstruction>,
}

/// An instruction of the block to watch.
struct WatchedInstruction {
    index: usize,
    site: &'static Site,
    copy: Option<(usize, bool)>,
}

static TRANSLATOR: Mutex<Option<Translator>> = Mutex::new(None);

fn pointer(site: &'static Site) -> *mut c_void {
    core::ptr::from_ref(site).cast_mut().cast()
}

/// Looks at a block that QEMU translates.
///
/// # Safety
/// QEMU gives the block.
pub(crate) unsafe fn look_at(block: *mut Block, callbacks: &Callbacks) {
    let mut translator = TRANSLATOR
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let translator = translator.get_or_insert_with(|| Translator {
        classifier: Classifier::new(),
        info: InstructionInfoFactory::new(),
        sites: FxHashMap::default(),
        decoded: Vec::new(),
        watched: Vec::new(),
    });
    // SAFETY: QEMU translates this block now, and the functions have the signatures of their kinds.
    unsafe {
        if let Some(callback) = callbacks.block {
            api::qemu_plugin_register_vcpu_tb_exec_cb(
                block,
                callback,
                api::NO_REGISTERS,
                core::ptr::null_mut(),
            );
        }
        let count = api::qemu_plugin_tb_n_insns(block);
        translator.decoded.clear();
        translator.watched.clear();
        for index in 0..count {
            let instruction = api::qemu_plugin_tb_get_insn(block, index);
            let address = api::qemu_plugin_insn_vaddr(instruction);
            let len = api::qemu_plugin_insn_size(instruction);
            let bytes = core::slice::from_raw_parts(api::qemu_plugin_insn_data(instruction), len);
            translator.watch(index, bytes, address);
            if let Some(callback) = callbacks.call
                && translator.decoded.last().is_some_and(is_call)
            {
                api::qemu_plugin_register_vcpu_mem_cb(
                    instruction,
                    callback,
                    api::NO_REGISTERS,
                    api::STORES,
                    (address + len as u64) as *mut c_void,
                );
            }
            if let Some(callback) = callbacks.load
                && translator.decoded.last().is_some_and(loads_elsewhere)
            {
                api::qemu_plugin_register_vcpu_mem_cb(
                    instruction,
                    callback,
                    api::NO_REGISTERS,
                    api::ACCESSES,
                    address as *mut c_void,
                );
            }
        }
        let Some(store) = callbacks.store else {
            return;
        };
        for watched in &translator.watched {
            let instruction = api::qemu_plugin_tb_get_insn(block, watched.index);
            match watched.copy {
                Some((index, true)) => {
                    // This one is called by translated code, always; the other one by functions of QEMU, too.
                    api::qemu_plugin_register_vcpu_insn_exec_cb(
                        api::qemu_plugin_tb_get_insn(block, 0),
                        callbacks.copy_before,
                        api::NO_REGISTERS,
                        core::ptr::null_mut(),
                    );
                    api::qemu_plugin_register_vcpu_mem_cb(
                        api::qemu_plugin_tb_get_insn(block, index),
                        callbacks.copy_at_access,
                        api::NO_REGISTERS,
                        api::ACCESSES,
                        core::ptr::null_mut(),
                    );
                }
                Some((index, false)) => api::qemu_plugin_register_vcpu_insn_exec_cb(
                    api::qemu_plugin_tb_get_insn(block, index),
                    callbacks.copy_before,
                    api::NO_REGISTERS,
                    core::ptr::null_mut(),
                ),
                None => {}
            }
            if watched.site.is_store() {
                api::qemu_plugin_register_vcpu_mem_cb(
                    instruction,
                    store,
                    api::NO_REGISTERS,
                    api::STORES,
                    pointer(watched.site),
                );
            } else {
                api::qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    callbacks.order,
                    api::NO_REGISTERS,
                    pointer(watched.site),
                );
            }
        }
    }
}

/// Whether an instruction may load from elsewhere than the stack: most loads are from there.
fn loads_elsewhere(instruction: &Instruction) -> bool {
    let is_on_stack =
        instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None;
    !is_on_stack
        && !matches!(
            instruction.mnemonic(),
            Mnemonic::Pop | Mnemonic::Ret | Mnemonic::Leave
        )
}

/// Whether an instruction stores where it returns to.
fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    ) && instruction.mnemonic() == Mnemonic::Call
}

impl Site {
    pub(crate) fn is_store(&self) -> bool {
        matches!(
            self.kind,
            EventKind::StorePlain | EventKind::StoreNonTemporal | EventKind::StoreLocked
        )
    }
}

impl Translator {
    /// Decodes the next instruction of a block, and finds out whether it is watched.
    fn watch(&mut self, index: usize, bytes: &[u8], address: u64) {
        let site = self.classifier.classify(bytes, address);
        self.decoded.push(site.instruction);
        let block = self.decoded[0].ip();
        let instruction = site.instruction;
        let mut found = Site {
            address,
            instruction,
            kind: EventKind::Void,
            elsewhere: None,
            len_bytes: 0,
            is_string: false,
            plan: None,
        };
        let mut copy = None;
        let key = match site.action {
            Action::Quiet | Action::Load | Action::Request => return,
            Action::Store(store) => {
                // Stacks are not in pools, and most stores are to stacks.
                let is_push =
                    store.form == StoreForm::Stack && instruction.mnemonic() != Mnemonic::Pop;
                let is_on_stack = is_push
                    || instruction.memory_base() == Register::RSP
                        && instruction.memory_index() == Register::None;
                if is_on_stack && store.kind != EventKind::StoreLocked {
                    return;
                }
                found.kind = store.kind;
                found.elsewhere =
                    (store.kind == EventKind::StoreLocked).then(|| site.locked_fence());
                found.is_string = matches!(store.form, StoreForm::String { .. });
                let is_whole = matches!(
                    store.form,
                    StoreForm::Copy
                        | StoreForm::Pop
                        | StoreForm::Modify
                        | StoreForm::CompareExchangePair
                );
                found.len_bytes = if is_whole { store.len_bytes } else { 0 };
                (address, 0)
            }
            Action::Flush(kind) | Action::Fence(kind) => {
                found.kind = kind;
                let needed = registers::needed(&instruction);
                let (source, plan) =
                    registers::source(&mut self.info, &self.decoded, index, needed);
                match source {
                    Source::Exact => (address, 0),
                    Source::From { index, is_access } => {
                        copy = Some((index, is_access));
                        found.plan = Some(plan);
                        (address, block)
                    }
                }
            }
        };
        // Code that was replaced has another instruction at the same address.
        let known = self.sites.get(&key).filter(|known| {
            known.instruction == found.instruction && known.plan.is_some() == found.plan.is_some()
        });
        let site = match known {
            Some(known) => *known,
            None => {
                let site: &'static Site = Box::leak(Box::new(found));
                self.sites.insert(key, site);
                site
            }
        };
        self.watched.push(WatchedInstruction { index, site, copy });
    }
}
