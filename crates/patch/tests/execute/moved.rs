//! Code that was emitted for one address and moved to another one is what would have been emitted there.

use iced_x86::Code;
use powerfail_patch::MAX_TRAMPOLINE_LEN;

use crate::bench::Bench;
use crate::cases::random_case;
use crate::expect::SITE;
use crate::instances;
use crate::machine::{Layout, Machine, TRAMPOLINE_AT};
use crate::random::Random;

#[test]
fn moved_code_is_what_would_be_emitted_there() {
    let mut bench = Bench::new(Layout::Near, |_| {});
    let mut random = Random::new(23);
    let (mut moved_count, mut fixed_count) = (0, 0);
    for code in Code::values().filter(|code| instances::runs_here(*code)) {
        let Some(case) = random_case(&mut bench, code, &mut random) else {
            continue;
        };
        let from = Machine::code_address(TRAMPOLINE_AT);
        let mut first = [0; MAX_TRAMPOLINE_LEN];
        let Ok(trampoline) = bench
            .emitter
            .emit(&case.site, SITE, from, false, &mut first)
        else {
            continue;
        };
        let to = from + 0x100 + random.below(1 << 28);
        let mut second = [0; MAX_TRAMPOLINE_LEN];
        let there = bench.emitter.emit(&case.site, SITE, to, false, &mut second);
        assert_eq!(there.unwrap().len_bytes, trampoline.len_bytes);
        let unmoved = first;
        let what = format!("{:?} {:02x?}", case.site.instruction.code(), case.code);
        let moved = &mut first[..trampoline.len_bytes];
        if trampoline.ways_out.move_code(moved, from, to) {
            assert!(first == second, "{what}");
            moved_count += 1;
        } else {
            assert!(first == unmoved, "{what}");
            assert!(case.site.instruction.is_ip_rel_memory_operand(), "{what}");
            fixed_count += 1;
        }
        // Nothing outside can be reached from there.
        let far = from + (1 << 40);
        let moved = &mut second[..trampoline.len_bytes];
        assert!(!trampoline.ways_out.move_code(moved, to, far), "{what}");
    }
    assert!(moved_count > 300, "{moved_count}");
    assert!(fixed_count > 10, "{fixed_count}");
}
