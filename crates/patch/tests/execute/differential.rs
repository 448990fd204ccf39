//! Random instances of every form that a trampoline supports, run unpatched and patched: all registers, flags,
//! vectors, the stack with its red zone, and memory must be the same afterwards, and the records must describe what
//! was written.

use iced_x86::{Code, Mnemonic};
use powerfail_patch::{Action, EmitterSettings, LockedFences, Store, StoreForm, Turns};

use crate::bench::Bench;
use crate::cases::{Case, STATUS_FLAGS, random_case};
use crate::expect::{Evidence, SITE};
use crate::frame::State;
use crate::instances;
use crate::machine::{Layout, MEMORY_LEN, Machine, TRAMPOLINE_AT};
use crate::random::Random;

/// The complete state after a run.
#[derive(PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) state: State,
    pool: Vec<u8>,
    volatile: Vec<u8>,
    pub(crate) stack: Vec<u8>,
}

pub(crate) fn run(
    bench: &mut Bench,
    case: &Case,
    entry: u64,
    memory_seed: u64,
    equal_to: Option<[u64; 2]>,
) -> Outcome {
    let mut random = Random::new(memory_seed);
    random.fill(bench.machine.pool());
    random.fill(bench.machine.volatile());
    random.fill(bench.machine.stack());
    if let Some(expected) = equal_to {
        let offset = (case.aim.address & (MEMORY_LEN as u64 - 1)) as usize;
        let memory = if case.aim.in_pool {
            bench.machine.pool()
        } else {
            bench.machine.volatile()
        };
        for (index, word) in expected.into_iter().enumerate() {
            memory[offset + 8 * index..][..8].copy_from_slice(&word.to_le_bytes());
        }
    }
    let state = bench.machine.run(entry, &case.state);
    Outcome {
        state: comparable(state),
        pool: bench.machine.pool().to_vec(),
        volatile: bench.machine.volatile().to_vec(),
        stack: bench.machine.stack().to_vec(),
    }
}

/// Leaves out the address of the last x87 instruction, and which components are in use.
fn comparable(mut state: State) -> State {
    state.extended[6..24].fill(0);
    state.extended[464..576].fill(0);
    state
}

/// The value that a compare-and-swap must find to succeed.
pub(crate) fn expected_words(case: &Case) -> [u64; 2] {
    let [rax, rdx] = [case.state.registers[0], case.state.registers[2]];
    match case.site.instruction.mnemonic() {
        Mnemonic::Cmpxchg8b => [rax & 0xffff_ffff | rdx << 32, 0],
        _ => [rax, rdx],
    }
}

fn check(bench: &mut Bench, case: &Case, random: &mut Random) {
    if std::env::var_os("POWERFAIL_PATCH_SHOW").is_some() {
        eprintln!(
            "{:?} {:02x?} {:x?} {:x?}",
            case.site.instruction.code(),
            case.code,
            case.aim,
            case.state.registers
        );
    }
    let at = bench.write_snippet(&case.code);
    let compares = matches!(
        case.site.instruction.mnemonic(),
        Mnemonic::Cmpxchg | Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b
    );
    let equal_to = (compares && random.one_in(2)).then(|| expected_words(case));
    let seed = random.next();
    bench.machine.protect_pool(true);
    let native = run(bench, case, at, seed, equal_to);
    let masked = matches!(
        case.site.action,
        Action::Store(Store {
            form: StoreForm::Masked,
            ..
        })
    );
    let other = masked.then(|| run(bench, case, at, !seed, None));
    bench.machine.protect_pool(false);

    // Patched: enters where the jump that replaces it would lead.
    let mut trampoline = [0; powerfail_patch::MAX_TRAMPOLINE_LEN];
    let trampoline_at = Machine::code_address(TRAMPOLINE_AT);
    let flags_dead = random.one_in(8);
    let emitted = bench
        .emitter
        .emit(&case.site, SITE, trampoline_at, flags_dead, &mut trampoline);
    let emitted = emitted.unwrap_or_else(|error| panic!("{error} for {:02x?}", case.code));
    bench
        .machine
        .write_code(trampoline_at, &trampoline[..emitted.len_bytes]);
    let near_end = random.one_in(6).then(|| 8 * random.below(12));
    bench.machine.reset_ring(near_end);
    let pending = u32::from(random.one_in(2));
    bench.machine.block().pending = pending;
    let mut patched = run(bench, case, trampoline_at, seed, equal_to);
    if flags_dead {
        patched.state.flags =
            patched.state.flags & !STATUS_FLAGS | native.state.flags & STATUS_FLAGS;
    }
    compare(case, &native, &patched);
    let evidence = Evidence {
        case,
        seed,
        equal_to,
        pending,
        flags: native.state.flags,
        pool: &native.pool,
        other_pool: other.as_ref().map(|other| &other.pool[..]),
    };
    evidence.check(bench);
}

pub(crate) fn compare(case: &Case, native: &Outcome, patched: &Outcome) {
    let what = || format!("{:?} {:02x?}", case.site.instruction.code(), case.code);
    assert_eq!(
        native.state.registers,
        patched.state.registers,
        "registers of {}",
        what()
    );
    assert_eq!(
        native.state.flags,
        patched.state.flags,
        "flags of {}",
        what()
    );
    assert!(
        native.state.extended == patched.state.extended,
        "vectors of {}",
        what()
    );
    assert!(native.stack == patched.stack, "stack of {}", what());
    assert!(
        native.volatile == patched.volatile,
        "volatile memory of {}",
        what()
    );
    assert!(native.pool == patched.pool, "pool of {}", what());
}

/// Runs this many instances of every form that this machine supports; returns how many ran.
fn sweep(
    layout: Layout,
    seed: u64,
    instances: usize,
    change: impl FnOnce(&mut EmitterSettings),
) -> usize {
    sweep_on(Bench::new(layout, change), seed, instances)
}

fn sweep_on(mut bench: Bench, seed: u64, instances: usize) -> usize {
    let mut random = Random::new(seed);
    let mut ran = 0;
    let mut refills = 0;
    for code in Code::values() {
        if !instances::runs_here(code) {
            continue;
        }
        // There are few string operations, and each has many cases.
        let instances = if code.is_string_instruction() {
            8 * instances
        } else {
            instances
        };
        let mut done = 0;
        for _ in 0..instances * 3 {
            if done == instances {
                break;
            }
            if let Some(case) = random_case(&mut bench, code, &mut random) {
                check(&mut bench, &case, &mut random);
                refills += bench.machine.refills();
                done += 1;
            }
        }
        ran += done;
    }
    assert!(refills > 20, "only {refills} refills");
    ran
}

#[test]
fn near_window() {
    let ran = sweep(Layout::Near, 1, 12, |_| {});
    assert!(ran > 3000, "only {ran} instances ran");
    eprintln!("{ran} instances");
}

#[test]
fn far_window() {
    let ran = sweep(Layout::Far, 2, 5, |settings| {
        settings.locked_fences = LockedFences::Always;
    });
    assert!(ran > 1000, "only {ran} instances ran");
    eprintln!("{ran} instances");
}

#[test]
fn call_stacks_are_named() {
    let ran = sweep(Layout::Near, 3, 6, |settings| settings.names_stacks = true);
    assert!(ran > 1500, "only {ran} instances ran");
}

/// Stores that take locks do the same, and give them back.
#[test]
fn pools_are_shared() {
    for layout in [Layout::Near, Layout::Far] {
        let mut bench = Bench::new(layout, |settings| settings.names_stacks = true);
        bench.machine.share_pool();
        let ran = sweep_on(bench, 6, 6);
        assert!(ran > 1500, "only {ran} instances ran");
    }
}

#[test]
fn turns_are_asked_for() {
    let ran = sweep(Layout::Near, 4, 6, |settings| {
        settings.names_stacks = true;
        settings.turns = Turns::AskedFor;
    });
    assert!(ran > 1500, "only {ran} instances ran");
}

/// The same stack is found again in the table; a stack with a changed word is another stack.
#[test]
fn a_known_stack_is_not_asked_for_again() {
    let mut bench = Bench::new(Layout::Near, |settings| settings.names_stacks = true);
    let mut random = Random::new(5);
    let code = Code::Mov_rm64_r64;
    let case = std::iter::from_fn(|| Some(random_case(&mut bench, code, &mut random)))
        .flatten()
        .find(|case| case.aim.in_pool)
        .unwrap();
    let mut known = 0;
    for seed in [1, 1, 1, 2, 1, 2] {
        check(&mut bench, &case, &mut Random::new(seed));
        known = known.max(seed);
    }
    assert_eq!(bench.machine.forget_stacks(), known);
}
