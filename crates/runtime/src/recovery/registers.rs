//! The registers of an instruction that has faulted.
//!
//! # Safety
//!
//! Callers pass the frame of the handler that is running. The kernel has written the state there, in the layout of
//! `xsave`; what it has not written is not read.
#![allow(unsafe_code, reason = "reads the vector state of a signal frame")]

use iced_x86::Register;

use crate::platform::frame::Frame;
use crate::platform::sys;

/// A general-purpose register or the base of a segment.
pub(super) fn value(frame: &Frame, register: Register) -> Option<u64> {
    match register {
        Register::FS => return Some(sys::fs()),
        Register::GS => return Some(sys::gs()),
        Register::ES | Register::CS | Register::SS | Register::DS => return Some(0),
        _ => {}
    }
    let full = register.full_register();
    if !full.is_gpr64() {
        return None;
    }
    let whole = frame.register(full.number() as u8);
    Some(match register.size() {
        1 if matches!(
            register,
            Register::AH | Register::BH | Register::CH | Register::DH
        ) =>
        {
            whole >> 8 & 0xff
        }
        1 => whole & 0xff,
        2 => whole & 0xffff,
        4 => whole & 0xffff_ffff,
        _ => whole,
    })
}

const EXTENDED_MAGIC: u32 = 0x4650_5853;
const MAGIC_AT: u64 = 464;
const PRESENT_AT: u64 = 512;
const XMM_AT: u64 = 160;
const UPPER_YMM: u32 = 2;
const MASKS: u32 = 5;
const UPPER_ZMM: u32 = 6;
const HIGH_ZMM: u32 = 7;

/// Where a part of the extended state is, if it is there.
fn part(frame: &Frame, number: u32) -> Option<u64> {
    let state = frame.vectors();
    if state == 0 {
        return None;
    }
    // SAFETY: the kernel has written the state; its header follows the legacy part if the magic is there.
    unsafe {
        if ((state + MAGIC_AT) as *const u32).read() != EXTENDED_MAGIC {
            return None;
        }
        let present = ((state + PRESENT_AT) as *const u64).read();
        if present >> number & 1 == 0 {
            return None;
        }
    }
    let leaf = core::arch::x86_64::__cpuid_count(13, number);
    (leaf.ebx != 0).then(|| state + u64::from(leaf.ebx))
}

/// The bytes of a vector register, whatever part of it the instruction uses.
pub(super) fn vector(frame: &Frame, register: Register) -> [u8; 64] {
    let mut bytes = [0; 64];
    let number = register.number() as u64;
    let mut take = |at: Option<u64>, from: usize, len: usize| {
        if let Some(at) = at {
            // SAFETY: inside of the state that the kernel has written.
            let source = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
            bytes[from..from + len].copy_from_slice(source);
        }
    };
    if register.is_mm() {
        const MM_AT: u64 = 32;
        let legacy = Some(frame.vectors()).filter(|state| *state != 0);
        take(legacy.map(|state| state + MM_AT + 16 * number), 0, 8);
    } else if number < 16 {
        let legacy = Some(frame.vectors()).filter(|state| *state != 0);
        take(legacy.map(|state| state + XMM_AT + 16 * number), 0, 16);
        take(part(frame, UPPER_YMM).map(|at| at + 16 * number), 16, 16);
        take(part(frame, UPPER_ZMM).map(|at| at + 32 * number), 32, 32);
    } else {
        let high = part(frame, HIGH_ZMM).map(|at| at + 64 * (number - 16));
        take(high, 0, 64);
    }
    bytes
}

/// A mask register.
pub(super) fn mask(frame: &Frame, register: Register) -> u64 {
    let at = part(frame, MASKS).map(|at| at + 8 * register.number() as u64);
    // SAFETY: inside of the state that the kernel has written.
    at.map_or(0, |at| unsafe { (at as *const u64).read() })
}
