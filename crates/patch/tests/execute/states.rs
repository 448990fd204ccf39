//! At every instruction of a trampoline up to the one that does the work, the state map gives the target's original
//! registers.

use iced_x86::Code;
use powerfail_patch::LockedFences;
use powerfail_protocol::ScratchSlot;

use crate::bench::{Bench, Written, decode, is_jumped_over};
use crate::cases::{Case, DIRECTION_FLAG, STATUS_FLAGS, random_case};
use crate::instances;
use crate::machine::{Layout, Machine};
use crate::random::Random;

/// The flags as `lahf` and `seto` put them into RAX.
fn flags_from_slot(slot: u64) -> u64 {
    (slot >> 8 & 0xd5) | (slot & 1) << 11
}

fn check(bench: &mut Bench, case: &Case) -> usize {
    let Written { at, code, emitted } = bench.write_trampoline(case);
    let instructions = decode(&code, at);
    let mut stops = 0;
    for instruction in &instructions {
        let offset = (instruction.ip() - at) as usize;
        let is_shared = bench.machine.block().is_shared != 0;
        let work_at = match emitted.locked_work {
            Some(work) if is_shared => Some(work.work_at),
            _ => emitted.work_at,
        };
        if work_at.is_none_or(|work_at| offset > work_at)
            || is_jumped_over(instruction, &instructions)
        {
            continue;
        }
        bench.machine.write_code(at, &code);
        let stop = Machine::stop_address();
        bench.write_jump(instruction.ip(), stop);
        bench.machine.reset_ring(None);
        if is_shared {
            bench.machine.release_locks();
        }
        let after = bench.machine.run(at, &case.state);
        if !bench.machine.was_stopped() {
            continue;
        }
        stops += 1;
        let (mut registers, mut flags) = (after.registers, after.flags);
        for slot in emitted.states.slots_at(offset) {
            let value = bench.machine.block().scratch[slot.index()];
            match slot {
                ScratchSlot::Register(number) => registers[usize::from(number)] = value,
                _ => flags = flags & !STATUS_FLAGS | flags_from_slot(value),
            }
        }
        let what = format!(
            "{:?} {:02x?} at {offset:#x}",
            case.site.instruction.code(),
            case.code
        );
        assert_eq!(registers, case.state.registers, "registers of {what}");
        let visible = STATUS_FLAGS | DIRECTION_FLAG;
        assert_eq!(
            flags & visible,
            case.state.flags & visible,
            "flags of {what}"
        );
    }
    stops
}

#[test]
fn registers_are_found_everywhere() {
    for is_shared in [false, true] {
        let mut bench = Bench::new(Layout::Near, |settings| {
            settings.locked_fences = LockedFences::Never;
        });
        if is_shared {
            bench.machine.share_pool();
        }
        sweep(bench);
    }
}

fn sweep(mut bench: Bench) {
    let mut random = Random::new(3);
    let mut stops = 0;
    for code in Code::values().filter(|code| instances::runs_here(*code)) {
        if let Some(case) = random_case(&mut bench, code, &mut random)
            && case.aim.in_pool
            // Whether a piece takes two locks differs from piece to piece; `locks.rs` is about these.
            && !(bench.machine.block().is_shared != 0 && code.is_string_instruction())
        {
            stops += check(&mut bench, &case);
        }
    }
    assert!(stops > 4000, "only {stops} stops");
}
