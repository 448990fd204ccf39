//! QEMU's plugin interface, version 1, as far as it is used. QEMU packages no header.
//!
//! # Safety
//!
//! The functions are those of QEMU, which loads this library. Pointers to blocks and instructions are valid during the
//! callback that gets them.
#![allow(unsafe_code, reason = "declares functions of QEMU")]

use core::ffi::{c_char, c_int, c_void};

/// The version of the interface that this library is written for.
pub(crate) const VERSION: c_int = 1;

/// This plugin, as QEMU names it.
pub(crate) type PluginId = u64;

/// A block of instructions that is being translated.
#[repr(C)]
pub(crate) struct Block {
    _opaque: [u8; 0],
}

/// An instruction of such a block.
#[repr(C)]
pub(crate) struct Instruction {
    _opaque: [u8; 0],
}

/// Where an access was, in physical memory.
#[repr(C)]
pub(crate) struct PhysicalAddress {
    _opaque: [u8; 0],
}

/// What kind of access it was.
pub(crate) type AccessInfo = u32;

/// Called when code is executed: processor, data.
pub(crate) type OnExecution = unsafe extern "C" fn(u32, *mut c_void);
/// Called after an access: processor, kind, virtual address, data.
pub(crate) type OnAccess = unsafe extern "C" fn(u32, AccessInfo, u64, *mut c_void);
/// Called before a system call.
pub(crate) type OnSystemCall =
    unsafe extern "C" fn(PluginId, u32, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// Called after a system call: number, result.
pub(crate) type OnSystemCallReturn = unsafe extern "C" fn(PluginId, u32, i64, i64);

/// No registers are wanted; QEMU 7 has no other choice.
pub(crate) const NO_REGISTERS: c_int = 0;
/// Stores; QEMU 7 tells of loads, too.
pub(crate) const STORES: c_int = 2;
/// Loads and stores. QEMU 7 takes stores for loads if only those are asked for.
pub(crate) const ACCESSES: c_int = 3;

unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: PluginId,
        callback: unsafe extern "C" fn(PluginId, *mut Block),
    );
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: OnAccess,
        flags: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_syscall_cb(id: PluginId, callback: OnSystemCall);
    pub(crate) fn qemu_plugin_register_vcpu_syscall_ret_cb(
        id: PluginId,
        callback: OnSystemCallReturn,
    );
    pub(crate) fn qemu_plugin_register_atexit_cb(
        id: PluginId,
        callback: unsafe extern "C" fn(PluginId, *mut c_void),
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub(crate) fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const u8;
    pub(crate) fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub(crate) fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub(crate) fn qemu_plugin_mem_size_shift(info: AccessInfo) -> u32;
    pub(crate) fn qemu_plugin_mem_is_store(info: AccessInfo) -> bool;
    pub(crate) fn qemu_plugin_get_hwaddr(info: AccessInfo, address: u64) -> *mut PhysicalAddress;
    pub(crate) fn qemu_plugin_hwaddr_is_io(address: *const PhysicalAddress) -> bool;
    pub(crate) fn qemu_plugin_hwaddr_phys_addr(address: *const PhysicalAddress) -> u64;
    pub(crate) fn qemu_plugin_path_to_binary() -> *const c_char;
    pub(crate) fn qemu_plugin_start_code() -> u64;
}
