//! Random instances of every instruction with a memory operand, run unpatched and with the trampoline of an access:
//! all registers, flags, vectors, the stack with its red zone, and memory must be the same afterwards.
//!
//! The route of an access is checked as well. If it must use the copy, the page is inaccessible at the program's
//! address. If it must not, the tables point to unmapped memory. The wrong route is a fault, which ends the test
//! program.

use iced_x86::{Code, Decoder, Encoder, EncodingKind, Mnemonic, OpKind, Register};
use powerfail_patch::{
    AccessEmitter, AccessError, AccessSettings, Classifier, LOADS_MOVE, MAX_ACCESS_LEN,
    STORES_MOVE, UNREAD_SHIFT,
};

use crate::bench::Bench;
use crate::cases::{Case, DIRECTION_FLAG, STATUS_FLAGS, random_instance, random_state};
use crate::differential::{compare, expected_words, run};
use crate::instances::{self, Memory};
use crate::machine::{Layout, MEMORY_LEN, Machine, TRAMPOLINE_AT};
use crate::random::Random;

const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// The stack that trampolines use below the red zone.
const USED_BELOW: usize = 32;
const USED_BELOW_STRINGS: usize = 48;
/// The words that record which lines were read.
const READ_WORDS: u64 = 0x7600_0000;
/// Far from all other memory.
const NOWHERE: u64 = 0x0123_4567_8000;

struct Tables {
    emitter: AccessEmitter,
    settings: AccessSettings,
    pool: u64,
    delta: u64,
}

/// The state of the tables for an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ways {
    /// All lines may be moved.
    Moved,
    /// No line may be moved.
    Unknown,
    /// The first line may be moved, the second may not.
    First,
    /// The second line may be moved, the first may not.
    Second,
    /// All lines may be moved, but the copies of the pages are not adjacent.
    Apart,
    /// Loads may be moved, stores may not.
    LoadsOnly,
    /// All lines may be moved, once a load of the first line is noted.
    Unread,
}

impl Tables {
    /// With the tables at the addresses that give the shortest code, or anywhere.
    fn new(bench: &mut Bench) -> Self {
        let window = bench.layout.window();
        let (line_table, page_table, mark_table) = match bench.layout {
            Layout::Near => (window.base / 64, window.base / 512, window.base / 1024),
            Layout::Far => (0x3000_0000_0000, 0x3100_0000_0000, 0x3200_0000_0000),
        };
        let settings = AccessSettings {
            base: window.base,
            len_bytes: window.len_bytes,
            line_table,
            page_table,
            mark_table,
            has_fsgsbase: true,
        };
        let pool = bench.layout.pool();
        let tables = Self {
            emitter: AccessEmitter::new(settings),
            settings,
            pool,
            delta: window.alias_delta,
        };
        // The tables of the pool and a page around it.
        let lines = tables.line_byte(pool) / PAGE * PAGE;
        bench.machine.map_table(lines, PAGE as usize);
        let pages = tables.page_word(pool) / PAGE * PAGE;
        bench.machine.map_table(pages, PAGE as usize);
        let marks = tables.mark_word(pool);
        bench.machine.map_table(marks / PAGE * PAGE, PAGE as usize);
        bench.machine.map_table(READ_WORDS, PAGE as usize);
        for page in 0..MEMORY_LEN as u64 / PAGE {
            let word = (READ_WORDS + page * 8).to_le_bytes();
            let place = bench.machine.table(marks + page * 8, 8);
            place.copy_from_slice(&word);
        }
        tables
    }

    fn line_byte(&self, address: u64) -> u64 {
        self.settings.line_table + (address - self.settings.base) / LINE
    }

    fn page_word(&self, address: u64) -> u64 {
        self.settings.page_table + (address - self.settings.base) / PAGE * 8
    }

    fn mark_word(&self, address: u64) -> u64 {
        self.settings.mark_table + (address - self.settings.base) / PAGE * 8
    }

    /// The lines noted as read, by page.
    fn read(machine: &mut Machine) -> Vec<u64> {
        let words = machine.table(READ_WORDS, MEMORY_LEN / PAGE as usize * 8);
        words
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }

    fn set_line(&self, machine: &mut Machine, address: u64, value: u8) {
        machine.table(self.line_byte(address), 1)[0] = value;
    }

    fn set_page(&self, machine: &mut Machine, address: u64, delta: u64) {
        let word = self.page_word(address);
        machine.table(word, 8).copy_from_slice(&delta.to_le_bytes());
    }

    /// Sets the tables for an access. Returns whether it must go to the copy.
    fn say(&self, machine: &mut Machine, ways: Ways, first: u64, len: u64, stores: bool) -> bool {
        machine.table(READ_WORDS, PAGE as usize).fill(0);
        let last = first + len - 1;
        let (two_lines, two_pages) = (first / LINE != last / LINE, first / PAGE != last / PAGE);
        for page in 0..MEMORY_LEN as u64 / PAGE {
            self.set_page(machine, self.pool + page * PAGE, NOWHERE);
        }
        for line in 0..MEMORY_LEN as u64 / LINE {
            // The entries of other lines must not matter.
            let other = if line % 2 == 0 { 3 } else { 0 };
            self.set_line(machine, self.pool + line * LINE, other);
        }
        let all = LOADS_MOVE | STORES_MOVE;
        let (one, two, moves) = match ways {
            Ways::Moved => (all, all, true),
            Ways::Unknown => (0, 0, false),
            Ways::First => (all, 0, !two_lines),
            Ways::Second => (0, all, false),
            Ways::Apart => (all, all, !two_pages),
            Ways::LoadsOnly => (LOADS_MOVE, LOADS_MOVE, !stores),
            Ways::Unread => (all << UNREAD_SHIFT, all, !stores),
        };
        self.set_line(machine, last, two);
        self.set_line(machine, first, one);
        if moves {
            self.set_page(machine, first, self.delta);
            self.set_page(machine, last, self.delta);
        } else if ways == Ways::Apart {
            self.set_page(machine, last, NOWHERE + PAGE);
        }
        moves
    }
}

/// Instructions that cannot run with random memory, or not without privileges.
fn is_unfit(code: Code) -> bool {
    use Mnemonic as M;
    code.is_privileged()
        || matches!(
            code.mnemonic(),
            M::Div
                | M::Idiv
                | M::Fldcw
                | M::Ldmxcsr
                | M::Vldmxcsr
                | M::Sgdt
                | M::Sidt
                | M::Sldt
                | M::Smsw
                | M::Str
                | M::Lar
                | M::Lsl
                | M::Verr
                | M::Verw
        )
}

fn stores(case: &Case) -> bool {
    !matches!(case.site.action, powerfail_patch::Action::Quiet)
}

/// Runs a case natively and with its trampoline, if it can have one.
fn check(
    bench: &mut Bench,
    tables: &mut Tables,
    case: &Case,
    ways: Ways,
    random: &mut Random,
) -> Result<bool, AccessError> {
    let at = Machine::code_address(TRAMPOLINE_AT);
    let mut out = [0; MAX_ACCESS_LEN];
    let flags_dead = random.one_in(4);
    let instruction = &case.site.instruction;
    let emitted = tables
        .emitter
        .emit(instruction, &case.code, at, flags_dead, &mut out)?;
    let entry = bench.write_snippet(&case.code);
    let compares = matches!(
        instruction.mnemonic(),
        Mnemonic::Cmpxchg | Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b
    );
    let equal_to = (compares && random.one_in(2)).then(|| expected_words(case));
    let seed = random.next();
    bench.machine.protect_pool(true);
    let native = run(bench, case, entry, seed, equal_to);

    bench.machine.write_code(at, &out[..emitted.len_bytes]);
    let len = instruction.memory_size().size() as u64;
    let mut moves = false;
    let mut expected = 0;
    if case.aim.in_pool {
        let address = case.aim.address;
        moves = tables.say(&mut bench.machine, ways, address, len, stores(case));
        expected = bench.machine.table(tables.line_byte(address), 1)[0];
        if moves {
            bench.machine.hide_pool();
        }
    }
    let mut patched = run(bench, case, at, seed, equal_to);
    if flags_dead && instruction.rflags_read() == 0 {
        // Flags that the instruction does not change have the values from the code before.
        let own = STATUS_FLAGS & !u64::from(status_bits(instruction.rflags_modified()));
        patched.state.flags = patched.state.flags & !own | native.state.flags & own;
    }
    // The result of a shift by zero, and undefined flags, depend on the flags before.
    if flags_dead && instruction.rflags_undefined() != 0 {
        patched.state.flags = native.state.flags;
    }
    // Below the red zone, the content of the stack is undefined.
    let red_zone = (case.state.registers[4] - 128 - Machine::stack_address()) as usize;
    let below = red_zone - USED_BELOW..red_zone;
    patched.stack[below.clone()].copy_from_slice(&native.stack[below]);
    compare(case, &native, &patched);
    if case.aim.in_pool {
        let line = (case.aim.address - tables.pool) / LINE;
        let mut noted = vec![0; MEMORY_LEN / PAGE as usize];
        if moves && ways == Ways::Unread {
            noted[(line / 64) as usize] = 1 << (line % 64);
            expected = LOADS_MOVE | STORES_MOVE;
        }
        assert_eq!(
            Tables::read(&mut bench.machine),
            noted,
            "{:02x?}",
            case.code
        );
        let byte = tables.line_byte(case.aim.address);
        assert_eq!(bench.machine.table(byte, 1)[0], expected);
    }
    Ok(moves)
}

/// The decoder's flag bits, converted to the processor's.
fn status_bits(bits: u32) -> u32 {
    use iced_x86::RflagsBits as R;
    [
        (R::CF, 1),
        (R::PF, 4),
        (R::AF, 0x10),
        (R::ZF, 0x40),
        (R::SF, 0x80),
        (R::OF, 0x800),
    ]
    .into_iter()
    .filter(|(bit, _)| bits & bit != 0)
    .map(|(_, flag)| flag)
    .sum()
}

/// A random address, or one at the end of a line or of a page.
fn offset(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.below(PAGE),
        1 => PAGE - 1 - random.below(64),
        _ => random.below(PAGE / LINE) * LINE + 63 - random.below(16),
    }
}

/// How many instances ran, how many of them on the copy, and of how many instructions.
fn sweep(layout: Layout, seed: u64, instances: usize) -> (usize, usize, usize) {
    let mut bench = Bench::new(layout, |_| {});
    let mut tables = Tables::new(&mut bench);
    let mut random = Random::new(seed);
    let (mut ran, mut moved, mut codes) = (0, 0, 0);
    for code in Code::values() {
        if !instances::runs_here(code) || is_unfit(code) || code.is_string_instruction() {
            continue;
        }
        let mut done = 0;
        for _ in 0..instances * 3 {
            if done == instances {
                break;
            }
            let Some(case) = random_instance(&mut bench, code, &mut random, offset) else {
                continue;
            };
            let ways = random.pick(&[
                Ways::Moved,
                Ways::Moved,
                Ways::Moved,
                Ways::Unknown,
                Ways::First,
                Ways::Second,
                Ways::Apart,
                Ways::LoadsOnly,
                Ways::Unread,
            ]);
            if let Ok(moves) = check(&mut bench, &mut tables, &case, ways, &mut random) {
                done += 1;
                moved += usize::from(moves);
            }
        }
        ran += done;
        codes += usize::from(done > 0);
    }
    eprintln!("{ran} instances of {codes} instructions, {moved} of them on the copy");
    (ran, moved, codes)
}

#[test]
fn tables_where_code_is_shortest() {
    let (ran, moved, codes) = sweep(Layout::Near, 21, 6);
    assert!(
        ran > 6000 && moved > 2000 && codes > 900,
        "{ran} {moved} {codes}"
    );
}

#[test]
fn tables_anywhere() {
    let (ran, moved, codes) = sweep(Layout::Far, 22, 3);
    assert!(
        ran > 3000 && moved > 1000 && codes > 900,
        "{ran} {moved} {codes}"
    );
}

/// `div qword [rbx]` reads and writes RAX and RDX; random operands would overflow.
#[test]
fn division() {
    let mut bench = Bench::new(Layout::Near, |_| {});
    let mut tables = Tables::new(&mut bench);
    let mut random = Random::new(23);
    let code = [0x48, 0xf7, 0x33];
    let mut state = random_state(&mut random);
    let address = bench.layout.pool() + 0x1008;
    state.registers[3] = address;
    state.registers[2] = 0;
    let site = Classifier::new().classify(&code, Machine::code_address(crate::machine::SNIPPET_AT));
    let case = Case {
        code: code.to_vec(),
        site,
        state,
        aim: crate::cases::Aim {
            address,
            in_pool: true,
        },
    };
    for ways in [Ways::Moved, Ways::Unknown] {
        assert_eq!(
            check(&mut bench, &mut tables, &case, ways, &mut random),
            Ok(ways == Ways::Moved)
        );
    }
}

/// The state after a fault at the moved instruction is sufficient to reconstruct the program's own state.
#[test]
fn a_fault_on_the_copy_can_be_undone() {
    let mut bench = Bench::new(Layout::Near, |_| {});
    let mut tables = Tables::new(&mut bench);
    let mut random = Random::new(24);
    let at = Machine::code_address(TRAMPOLINE_AT);
    for code in [
        Code::Mov_r64_rm64,
        Code::Add_rm32_r32,
        Code::Cmpxchg16b_m128,
    ] {
        let case =
            std::iter::from_fn(|| Some(random_instance(&mut bench, code, &mut random, |_| 0x140)))
                .flatten()
                .find(|case| {
                    case.aim.in_pool && tables.emitter.check(&case.site.instruction).is_ok()
                })
                .unwrap();
        let mut out = [0; MAX_ACCESS_LEN];
        let instruction = &case.site.instruction;
        let emitted = tables
            .emitter
            .emit(instruction, &case.code, at, false, &mut out)
            .unwrap();
        bench.machine.write_code(at, &out[..emitted.len_bytes]);
        let len = instruction.memory_size().size() as u64;
        tables.say(&mut bench.machine, Ways::Moved, case.aim.address, len, true);
        // Stop just before.
        bench.write_jump(at + emitted.moved_at as u64, Machine::stop_address());
        let mut state = bench.machine.run(at, &case.state);
        assert!(bench.machine.was_stopped());
        let moved = case.aim.address.wrapping_add(tables.delta);
        assert!(state.registers.contains(&moved));
        let stack = bench.machine.stack().to_vec();
        let word = |at: u64| {
            let at = (at - Machine::stack_address()) as usize;
            u64::from_le_bytes(stack[at..at + 8].try_into().unwrap())
        };
        emitted.undo(&mut state.registers, &mut state.flags, word);
        assert_eq!(state.registers, case.state.registers);
        let own = STATUS_FLAGS | DIRECTION_FLAG;
        assert_eq!(state.flags & own, case.state.flags & own);
    }
}

/// The verdict on one instance of an instruction.
fn verdict(emitter: &mut AccessEmitter, code: Code, random: &mut Random) -> Option<AccessError> {
    let at = Machine::code_address(0);
    let instruction = (0..20).find_map(|_| {
        let instruction = instances::build(code, Memory::simple(), random)?;
        let has_stack_pointer = (0..instruction.op_count()).any(|operand| {
            instruction.op_kind(operand) == OpKind::Register
                && instruction.op_register(operand).full_register() == Register::RSP
        });
        let mut encoder = Encoder::new(64);
        encoder.encode(&instruction, at).ok()?;
        let bytes = encoder.take_buffer();
        (!has_stack_pointer).then(|| Classifier::new().classify(&bytes, at).instruction)
    })?;
    emitter.check(&instruction).err()
}

/// Instructions that are left to single-stepping, by name.
#[test]
fn refusals() {
    let settings = AccessSettings {
        base: 0x1000_0000_0000,
        len_bytes: 1 << 42,
        line_table: 0x40_0000_0000,
        page_table: 0x8_0000_0000,
        mark_table: 0x6_0000_0000,
        has_fsgsbase: true,
    };
    let mut emitter = AccessEmitter::new(settings);
    let mut random = Random::new(25);
    let mut refused = std::collections::BTreeMap::new();
    for code in Code::values() {
        if let Some(error) = verdict(&mut emitter, code, &mut random)
            && !matches!(error, AccessError::NoOperand(_))
        {
            refused.insert(format!("{:?}", code.mnemonic()), error);
        }
    }
    println!("{:?}", refused.keys().collect::<Vec<_>>());
    let reason = |name: &str| refused.get(name).copied();
    for (name, mnemonic) in [("Vpgatherdd", Mnemonic::Vpgatherdd), ("Bts", Mnemonic::Bts)] {
        assert_eq!(reason(name), Some(AccessError::NotOnePlace(mnemonic)));
    }
    for (name, mnemonic) in [("Push", Mnemonic::Push), ("Jmp", Mnemonic::Jmp)] {
        assert_eq!(reason(name), Some(AccessError::Flow(mnemonic)));
    }
    for (name, mnemonic) in [("Xsave", Mnemonic::Xsave), ("Clwb", Mnemonic::Clwb)] {
        assert_eq!(reason(name), Some(AccessError::Special(mnemonic)));
    }
    for name in [
        "Add",
        "Vmovdqu",
        "Vpaddd",
        "Fld",
        "Cmpxchg16b",
        "Movups",
        "Vaddps",
    ] {
        assert_eq!(reason(name), None, "{name}");
    }
    assert_eq!(verdict(&mut emitter, Code::Mov_r64_rm64, &mut random), None);
}

/// Not every machine has AVX-512. On others the code is checked by reading it: both instances of the instruction have
/// its registers, mask and length, and each has the correct memory operand.
#[test]
fn avx512_code_is_what_it_should_be() {
    let settings = AccessSettings {
        base: 0x1000_0000_0000,
        len_bytes: 1 << 42,
        line_table: 0x40_0000_0000,
        page_table: 0x8_0000_0000,
        mark_table: 0x6_0000_0000,
        has_fsgsbase: true,
    };
    let mut emitter = AccessEmitter::new(settings);
    let mut random = Random::new(26);
    let at = Machine::code_address(0);
    let mut checked = 0;
    for code in Code::values().filter(|code| code.encoding() == EncodingKind::EVEX) {
        let Some(mut instruction) = instances::build(code, Memory::simple(), &mut random) else {
            continue;
        };
        if code.op_code().can_use_op_mask_register() {
            instruction.set_op_mask(Register::K1 + random.below(7) as u32);
        }
        instruction.set_is_broadcast(code.op_code().can_broadcast() && random.one_in(2));
        let mut encoder = Encoder::new(64);
        if encoder.encode(&instruction, at).is_err() {
            continue;
        }
        let bytes = encoder.take_buffer();
        let instruction = Classifier::new().classify(&bytes, at).instruction;
        let mut out = [0; MAX_ACCESS_LEN];
        let to = at + 0x1000;
        let Ok(made) = emitter.emit(&instruction, &bytes, to, false, &mut out) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, &out[..made.len_bytes], to, 0);
        let copies: Vec<_> = decoder
            .iter()
            .filter(|copy| copy.code().encoding() == EncodingKind::EVEX)
            .collect();
        let [moved, original] = &copies[..] else {
            panic!("{code:?} is there {} times", copies.len())
        };
        assert_eq!(moved.ip() - to, made.moved_at as u64);
        assert_eq!(original.ip() - to, made.original_at as u64);
        assert_eq!(original.memory_base(), Register::RSI);
        assert_ne!(moved.memory_base(), Register::RSI);
        assert_eq!(
            (moved.memory_displacement64(), moved.memory_index()),
            (0, Register::None)
        );
        for copy in &copies {
            assert_eq!(copy.code(), instruction.code());
            assert_eq!(copy.op_mask(), instruction.op_mask(), "{code:?}");
            assert_eq!(copy.is_broadcast(), instruction.is_broadcast(), "{code:?}");
            assert_eq!(copy.memory_size(), instruction.memory_size(), "{code:?}");
            for operand in 0..copy.op_count() {
                let register = instruction.op_register(operand);
                assert_eq!(copy.op_register(operand), register, "{code:?}");
            }
        }
        checked += 1;
    }
    assert!(checked > 1000, "only {checked}");
}

/// String instructions, with tables for all addresses: volatile memory is not moved. Either every line of the pool can
/// be moved, and the pool is inaccessible; or some cannot, and the original instruction continues.
#[test]
fn string_instructions() {
    for (layout, seed) in [(Layout::Near, 27), (Layout::Far, 28)] {
        let mut bench = Bench::new(layout, |_| {});
        let mut random = Random::new(seed);
        let settings = AccessSettings {
            base: 0,
            len_bytes: 1 << 47,
            line_table: 0x3000_0000_0000,
            page_table: 0x3400_0000_0000,
            mark_table: 0x3600_0000_0000,
            has_fsgsbase: true,
        };
        let mut tables = Tables {
            emitter: AccessEmitter::new(settings),
            settings,
            pool: layout.pool(),
            delta: layout.window().alias_delta,
        };
        for address in [tables.pool, Machine::volatile_address()] {
            for table in [tables.line_byte(address), tables.page_word(address)] {
                bench.machine.map_table(table / PAGE * PAGE, PAGE as usize);
            }
        }
        let codes = Code::values().filter(|code| code.is_string_instruction());
        let (mut whole, mut parts) = (0, 0);
        for code in codes.collect::<Vec<_>>() {
            for _ in 0..150 {
                let Some(mut case) = random_instance(&mut bench, code, &mut random, offset) else {
                    break;
                };
                // It cannot be part of an operand.
                case.state.registers[4] = Machine::stack_address() + MEMORY_LEN as u64 / 2;
                if tables.emitter.check(&case.site.instruction).is_err() {
                    continue;
                }
                let backward = case.state.flags & DIRECTION_FLAG != 0;
                let punched = backward || random.one_in(2);
                check_string(&mut bench, &mut tables, &case, punched, &mut random);
                *(if punched { &mut parts } else { &mut whole }) += 1;
            }
        }
        assert!(whole > 150 && parts > 150, "{whole} {parts}");
    }
}

fn check_string(
    bench: &mut Bench,
    tables: &mut Tables,
    case: &Case,
    punched: bool,
    random: &mut Random,
) {
    let entry = bench.write_snippet(&case.code);
    let seed = random.next();
    bench.machine.protect_pool(true);
    let native = run(bench, case, entry, seed, None);
    let at = Machine::code_address(TRAMPOLINE_AT);
    let mut out = [0; MAX_ACCESS_LEN];
    let emitted = tables
        .emitter
        .emit(&case.site.instruction, &case.code, at, true, &mut out)
        .unwrap();
    bench.machine.write_code(at, &out[..emitted.len_bytes]);
    for page in 0..MEMORY_LEN as u64 / PAGE {
        let address = tables.pool + page * PAGE;
        tables.set_page(&mut bench.machine, address, tables.delta);
    }
    for line in 0..MEMORY_LEN as u64 / LINE {
        let value = if punched && random.one_in(6) { 0 } else { 3 };
        tables.set_line(&mut bench.machine, tables.pool + line * LINE, value);
    }
    // The original instruction handles an element that crosses a page boundary.
    let size = case.site.instruction.memory_size().size() as u64;
    let is_whole = [6, 7].iter().all(|register| {
        let address: u64 = case.state.registers[*register];
        address.is_multiple_of(size)
    });
    if !punched && is_whole {
        bench.machine.hide_pool();
    }
    let mut patched = run(bench, case, at, seed, None);
    let red_zone = (case.state.registers[4] - 128 - Machine::stack_address()) as usize;
    let below = red_zone - USED_BELOW_STRINGS..red_zone;
    patched.stack[below.clone()].copy_from_slice(&native.stack[below]);
    compare(case, &native, &patched);
}

/// In the middle of a string instruction, the reconstructed registers are those that the program would see.
#[test]
fn a_string_instruction_can_be_undone() {
    let mut bench = Bench::new(Layout::Near, |_| {});
    let settings = AccessSettings {
        base: 0,
        len_bytes: 1 << 47,
        line_table: 0x3000_0000_0000,
        page_table: 0x3400_0000_0000,
        mark_table: 0x3600_0000_0000,
        has_fsgsbase: true,
    };
    let mut emitter = AccessEmitter::new(settings);
    let at = Machine::code_address(TRAMPOLINE_AT);
    let volatile = Machine::volatile_address();
    for table in [
        settings.line_table + volatile / LINE,
        settings.page_table + volatile / PAGE * 8,
    ] {
        bench.machine.map_table(table / PAGE * PAGE, PAGE as usize);
    }
    // rep movsq and rep stosw, which would reach the second page next.
    for (code, size) in [(&[0xf3, 0x48, 0xa5][..], 8), (&[0xf3, 0x66, 0xab], 2)] {
        let mut state = random_state(&mut Random::new(29));
        state.flags &= !DIRECTION_FLAG;
        state.registers[7] = volatile + PAGE - 10 * size;
        state.registers[6] = volatile + 2 * PAGE;
        state.registers[1] = 25;
        let snippet = Machine::code_address(crate::machine::SNIPPET_AT);
        let site = Classifier::new().classify(code, snippet);
        let mut out = [0; MAX_ACCESS_LEN];
        let made = emitter
            .emit(&site.instruction, code, at, false, &mut out)
            .unwrap();
        bench.machine.write_code(at, &out[..made.len_bytes]);
        bench.write_jump(at + made.moved_at as u64, Machine::stop_address());
        let mut stopped = bench.machine.run(at, &state);
        assert!(bench.machine.was_stopped());
        assert_eq!(stopped.registers[1], 10, "a piece");
        let stack = bench.machine.stack().to_vec();
        let word = |at: u64| {
            let at = (at - Machine::stack_address()) as usize;
            u64::from_le_bytes(stack[at..at + 8].try_into().unwrap())
        };
        // As if four elements had been processed.
        stopped.registers[1] -= 4;
        made.undo(&mut stopped.registers, &mut stopped.flags, word);
        let mut expected = state.registers;
        expected[1] -= 4;
        expected[7] += 4 * size;
        expected[6] += if size == 8 { 4 * size } else { 0 };
        assert_eq!(stopped.registers, expected);
        assert_eq!(stopped.flags & STATUS_FLAGS, state.flags & STATUS_FLAGS);
    }
}
