//! What the recovery says of its own reads, by annotations: which are of interest, and which variables commit.
//!
//! What is said before the snapshot is said once for all executions; each of them repeats it
//! ([`catch_up`]) when it begins.
//!
//! Regions of interest may overlap, and skipping may nest: both end when they have ended as often as they have begun.

use core::sync::atomic::{AtomicU32, Ordering};

use powerfail_protocol::explore::{Note, attention, flag};
use powerfail_protocol::mark;

use crate::platform::sys;
use crate::record::call_stacks::Registers;

use super::state::State;
use super::{read_notes, shared_file, snapshot, turn};

/// Bit of a stage: recovery.
const AFTER: i32 = 2;

/// What was said before the snapshot: bits of [`attention`].
static BEFORE: AtomicU32 = AtomicU32::new(0);

/// Whether what is read now is none of our business.
pub(super) fn is_none() -> bool {
    shared_file::control().attention.load(Ordering::Relaxed) & attention::NONE != 0
}

/// Bytes in memory of the recovery.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    pub(crate) address: u64,
    pub(crate) len: u64,
}

/// The recovery has an annotation. Those of no interest here are ignored.
#[inline(never)]
pub(crate) fn annotation(code: u32, first: Bytes, second: Option<Bytes>, stage: i32) {
    let registers = sys::registers();
    if stage & AFTER == 0 || !super::is_active() {
        return;
    }
    if !snapshot::has_passed() {
        let _ = BEFORE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            Some(changed(bits, code))
        });
        return;
    }
    if !super::has_flag(flag::NOTES) {
        return;
    }
    turn::take(|state| {
        catch_up();
        match code {
            mark::INTEREST_BEGIN
            | mark::INTEREST_END
            | mark::SKIP_DETECTION_BEGIN
            | mark::SKIP_DETECTION_END
            | mark::COMPLETE => pay(code, registers),
            mark::COMMIT_VARIABLE | mark::COMMIT_RANGE => {
                let (pool, offset) = state.place_of(first.address);
                let mut note = Note {
                    code,
                    pool,
                    offset,
                    bytes: first.len,
                    ..Note::default()
                };
                if let Some(second) = second {
                    let (pool, offset) = state.place_of(second.address);
                    note.second = [pool.into(), offset, second.len];
                }
                read_notes::callers(registers, &mut note.frames);
                read_notes::append(note);
            }
            _ => {}
        }
    });
}

/// Notes what was said before there was anything to be read.
pub(super) fn catch_up() {
    if !super::has_flag(flag::NOTES) {
        return;
    }
    let bits = BEFORE.swap(0, Ordering::Relaxed);
    let nowhere = Registers {
        pc: 0,
        rsp: 0,
        rbp: 0,
    };
    let regions = (bits & attention::REGIONS) / attention::REGION;
    let skips = (bits & attention::SKIPS) / attention::SKIP;
    for (bit, code, times) in [
        (attention::HAS_REGION, mark::INTEREST_BEGIN, regions),
        (attention::OUTSIDE, mark::INTEREST_END, 1),
        (attention::SKIPPED, mark::SKIP_DETECTION_BEGIN, skips),
        (attention::COMPLETE, mark::COMPLETE, 1),
    ] {
        if bits & bit != 0 {
            pay(code, nowhere);
            // One note says it; the others only count.
            for _ in 1..times {
                turn_attention(code);
            }
        }
    }
}

/// The recovery says how its next reads are to be taken.
fn pay(code: u32, registers: Registers) {
    turn_attention(code);
    let mut note = Note {
        code,
        ..Note::default()
    };
    if registers.pc != 0 {
        read_notes::callers(registers, &mut note.frames);
    }
    read_notes::append(note);
}

/// Changes how the next reads are taken.
fn turn_attention(code: u32) {
    let bits = &shared_file::control().attention;
    let before = bits.load(Ordering::Relaxed);
    bits.store(changed(before, code), Ordering::Relaxed);
}

/// What is known of reads after an annotation. An end without a beginning is no end.
fn changed(bits: u32, code: u32) -> u32 {
    match code {
        mark::INTEREST_BEGIN => {
            let bits = bits & !attention::OUTSIDE | attention::HAS_REGION;
            one_more(bits, attention::REGIONS, attention::REGION)
        }
        mark::INTEREST_END if bits & attention::REGIONS != 0 => {
            let bits = bits - attention::REGION;
            set_if(bits & attention::REGIONS == 0, bits, attention::OUTSIDE)
        }
        mark::SKIP_DETECTION_BEGIN => {
            let bits = bits | attention::SKIPPED;
            one_more(bits, attention::SKIPS, attention::SKIP)
        }
        mark::SKIP_DETECTION_END if bits & attention::SKIPS != 0 => {
            let bits = (bits & !attention::SKIPPED) - attention::SKIP;
            set_if(bits & attention::SKIPS != 0, bits, attention::SKIPPED)
        }
        mark::COMPLETE => bits | attention::COMPLETE,
        _ => bits,
    }
}

/// Counts one more, up to the number that there is room for.
fn one_more(bits: u32, all: u32, one: u32) -> u32 {
    if bits & all == all { bits } else { bits + one }
}

fn set_if(condition: bool, bits: u32, bit: u32) -> u32 {
    if condition { bits | bit } else { bits }
}

impl State {
    /// The pool and the offset in it of an address; of memory that is no pool's, no pool and the address.
    fn place_of(&self, address: u64) -> (u32, u64) {
        self.mapping_at(address).map_or((u32::MAX, address), |it| {
            let mapping = &self.mappings[it];
            (mapping.pool, mapping.offset + (address - mapping.address))
        })
    }
}
