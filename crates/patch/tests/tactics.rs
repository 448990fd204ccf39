//! Every tactic, and the invariants when many are mixed: each patched site leads to its own trampoline, whatever was
//! patched before or after, and every other instruction is unchanged.

use std::cell::RefCell;
use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use powerfail_patch::tactic::{
    Claims, CodeView, Plan, PlanError, Surroundings, Tactic, Targets, plan,
};
use powerfail_patch::{Classifier, MAX_RELOCATED_LEN, Means, Site};

const CODE: u64 = 0x5555_5555_0000;
const TRAMPOLINE_LEN: usize = 300;

/// Code with patches, and room for trampolines at some addresses.
struct Text {
    original: Vec<u8>,
    bytes: Vec<u8>,
    claims: Claims,
    classifier: Classifier,
    world: World,
}

#[derive(Default)]
struct World {
    branch_targets: BTreeSet<u64>,
    unsettled: BTreeSet<u64>,
    boundaries: BTreeSet<u64>,
    /// Where trampolines may be: start and end. Anywhere near if empty.
    arenas: Vec<(u64, u64)>,
    taken: RefCell<Vec<(u64, usize)>>,
}

fn overlaps(a: (u64, usize), b: (u64, usize)) -> bool {
    a.0 < b.0 + b.1 as u64 && b.0 < a.0 + a.1 as u64
}

impl Surroundings for World {
    fn is_branch_target(&self, address: u64) -> bool {
        self.branch_targets.contains(&address)
    }

    fn is_unsettled(&self, address: u64) -> bool {
        self.unsettled.contains(&address)
    }

    fn instruction_before(&self, address: u64) -> Option<u64> {
        self.boundaries.range(..address).next_back().copied()
    }

    fn place(
        &self,
        targets: Targets,
        len_bytes: usize,
        taken: Option<(u64, usize)>,
    ) -> Option<u64> {
        let arenas = if self.arenas.is_empty() {
            vec![(0x1_0000, 0x7fff_0000_0000)]
        } else {
            self.arenas.clone()
        };
        let code = (CODE - 0x1000, 0x10_0000);
        for (from, to) in arenas {
            let Some(mut at) = targets.at_or_above(from) else {
                continue;
            };
            while at + len_bytes as u64 <= to {
                let all = self.taken.borrow();
                let hit = all
                    .iter()
                    .copied()
                    .chain(taken)
                    .chain([code])
                    .find(|other| overlaps((at, len_bytes), *other));
                match hit {
                    None => return Some(at),
                    Some((other, len)) => match targets.at_or_above(other + len as u64) {
                        Some(next) => at = next,
                        None => break,
                    },
                }
            }
        }
        None
    }
}

impl Text {
    fn new(bytes: &[u8]) -> Self {
        Self {
            original: bytes.to_vec(),
            bytes: bytes.to_vec(),
            claims: Claims::default(),
            classifier: Classifier::new(),
            world: World::default(),
        }
    }

    fn site(&mut self, offset: usize) -> Site {
        self.classifier
            .classify(&self.original[offset..], CODE + offset as u64)
    }

    fn plan(&mut self, offset: usize) -> Result<Plan, PlanError> {
        let site = self.site(offset);
        let code = CodeView {
            address: CODE,
            bytes: &self.bytes,
        };
        plan(&site, TRAMPOLINE_LEN, code, &self.claims, &self.world)
    }

    fn apply(&mut self, plan: &Plan) {
        for edit in plan.edits() {
            let offset = (edit.address - CODE) as usize;
            self.bytes[offset..offset + edit.bytes().len()].copy_from_slice(edit.bytes());
        }
        plan.commit(&mut self.claims);
        let mut taken = self.world.taken.borrow_mut();
        taken.extend(plan.trampoline.map(|at| (at, TRAMPOLINE_LEN)));
        taken.extend(
            plan.evicted
                .map(|evicted| (evicted.trampoline, MAX_RELOCATED_LEN)),
        );
        for target in taken.iter() {
            assert!(!overlaps(*target, (CODE, self.bytes.len())));
        }
        drop(taken);
        if let (Some(allowed), Some(trampoline)) = (plan.allowed, plan.trampoline) {
            assert!(allowed.contains(trampoline));
        }
    }

    fn patch(&mut self, offset: usize) -> Plan {
        let plan = self.plan(offset).unwrap();
        self.apply(&plan);
        plan
    }

    /// Where execution continues from an address, through jumps inside the text.
    fn follow(&self, mut address: u64) -> u64 {
        for _ in 0..4 {
            let Some(offset) = address
                .checked_sub(CODE)
                .filter(|offset| *offset < self.bytes.len() as u64)
            else {
                return address;
            };
            let instruction = decode(&self.bytes[offset as usize..], address);
            if instruction.mnemonic() != Mnemonic::Jmp {
                return address;
            }
            address = instruction.near_branch_target();
        }
        address
    }

    fn check(&self, plan: &Plan) {
        if let Some(trampoline) = plan.trampoline {
            assert_eq!(self.follow(plan.site), trampoline, "{plan:?}");
        }
        if let Some(evicted) = plan.evicted {
            assert_eq!(
                self.follow(evicted.instruction.ip()),
                evicted.trampoline,
                "{plan:?}"
            );
        }
    }
}

fn decode(bytes: &[u8], address: u64) -> Instruction {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode()
}

const NOP: u8 = 0x90;

/// `mov [rbx], rax`, three bytes.
const STORE_3: [u8; 3] = [0x48, 0x89, 0x03];
/// `mov [rbx+8], rax`, four bytes.
const STORE_4: [u8; 4] = [0x48, 0x89, 0x43, 0x08];
/// `mov [rbx], eax`, two bytes.
const STORE_2: [u8; 2] = [0x89, 0x03];

fn text(parts: &[&[u8]]) -> Text {
    let mut bytes = parts.concat();
    bytes.extend([NOP; 16]);
    Text::new(&bytes)
}

#[test]
fn long_instruction_takes_a_jump() {
    let mut text = text(&[&[0x48, 0x89, 0x83, 0x00, 0x10, 0x00, 0x00]]);
    let plan = text.patch(0);
    assert_eq!(plan.tactic, Tactic::Jump);
    assert_eq!(plan.depends_on().count(), 0);
    text.check(&plan);
    // The rest of the instruction is unchanged.
    assert_eq!(text.bytes[5..], text.original[5..]);
}

#[test]
fn short_instruction_puns_on_what_follows() {
    // The next byte, 0x10, is the top of the displacement.
    let mut text = text(&[&STORE_4, &[0x10, 0xc0]]);
    let plan = text.patch(0);
    assert_eq!(plan.tactic, Tactic::Pun);
    assert_eq!(
        plan.depends_on().collect::<Vec<_>>(),
        [(CODE + 4, CODE + 5)]
    );
    assert_eq!((plan.trampoline.unwrap() - CODE - 5) >> 24, 0x10);
    text.check(&plan);
    assert_eq!(text.bytes[4..], text.original[4..]);
}

#[test]
fn padding_moves_the_pun() {
    // 0x90 as the top byte leads 1.9 GB down, where there is no room; the byte after it is 0x05.
    let mut text = text(&[&STORE_4, &[0x90, 0x05, 1, 0, 0, 0]]);
    text.world.arenas = vec![(CODE, CODE + 0x2000_0000)];
    let plan = text.patch(0);
    assert_eq!(plan.tactic, Tactic::PaddedPun);
    assert_eq!(
        plan.depends_on().collect::<Vec<_>>(),
        [(CODE + 4, CODE + 6)]
    );
    text.check(&plan);
}

#[test]
fn successor_makes_room() {
    // No pun leads into the arena; the successor's jump can be chosen so that one does.
    let mut text = text(&[&STORE_3, &[0x48, 0x8b, 0x83, 0x90, 0x90, 0x90, 0x90]]);
    text.world.arenas = vec![(CODE + 0x100_0000, CODE + 0x200_0000)];
    let plan = text.patch(0);
    assert_eq!(plan.tactic, Tactic::SuccessorEviction);
    let evicted = plan.evicted.unwrap();
    assert_eq!(evicted.instruction.ip(), CODE + 3);
    assert_eq!(
        plan.edits()[0].address,
        CODE + 3,
        "the successor is changed first"
    );
    text.check(&plan);
}

#[test]
fn neighbour_makes_room() {
    // The successor is a call, which cannot move. After it there is a long load.
    let call: &[u8] = &[0xe8, 0x90, 0x90, 0x90, 0x90];
    let load: &[u8] = &[0x48, 0x8b, 0x84, 0x8b, 0x90, 0x90, 0x90, 0x90];
    let long: &[u8] = &[0x64, 0x48, 0xc7, 0x84, 0x8b, 1, 0, 0, 0, 2, 0, 0, 0];
    let mut text = text(&[&STORE_2, call, load, long]);
    text.world.arenas = vec![
        (CODE + 0x100_0000, CODE + 0x1000_0000),
        (CODE - 0x1800_0000, CODE - 0x1600_0000),
    ];
    let plan = text.patch(0);
    assert_eq!(plan.tactic, Tactic::NeighbourEviction);
    text.check(&plan);
    assert_eq!(text.bytes[2..7], text.original[2..7]);
}

#[test]
fn padding_behind_a_return_makes_room() {
    // Only the padding can move, which is never executed.
    let padding: &[u8] = &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
    let mut text = text(&[&STORE_2, &[0xc3], padding]);
    text.world.arenas = vec![
        (CODE + 0x100_0000, CODE + 0x300_0000),
        (CODE - 0x1800_0000, CODE - 0x1600_0000),
    ];
    let plan = text.patch(0);
    assert_eq!(plan.tactic, Tactic::NeighbourEviction);
    assert_eq!(plan.evicted.unwrap().instruction.ip(), CODE + 3);
    text.check(&plan);
    // After a return that is followed by something else, nothing is changed.
    let mut other = Text::new(
        &[
            &STORE_2[..],
            &[0xc3],
            &[0x48, 0xb8, NOP, NOP, NOP, NOP, 5, 6, 7, 8],
            &[NOP; 8],
        ]
        .concat(),
    );
    other.world.arenas = text.world.arenas.clone();
    assert_eq!(other.patch(0).tactic, Tactic::Fault);
}

#[test]
fn neighbour_before_makes_room() {
    let load: &[u8] = &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut text = Text::new(&[load, &[0x48, 0x89, 0xd8], &STORE_2, &[0xc3]].concat());
    text.world.arenas = vec![
        (CODE + 0x100_0000, CODE + 0x1000_0000),
        (CODE - 0x1800_0000, CODE - 0x1600_0000),
    ];
    text.world.boundaries = [CODE, CODE + 10, CODE + 13, CODE + 15].into();
    let plan = text.patch(13);
    assert_eq!(plan.tactic, Tactic::NeighbourEviction);
    assert_eq!(plan.evicted.unwrap().instruction.ip(), CODE);
    text.check(&plan);
}

#[test]
fn branch_target_inside_is_left_alone() {
    let store: &[u8] = &[0x48, 0x89, 0x83, 0x00, 0x10, 0x00, 0x00];
    let mut store_text = text(&[store]);
    store_text.world.branch_targets.insert(CODE + 1);
    let plan = store_text.patch(0);
    assert_eq!(plan.tactic, Tactic::Fault);
    assert!(plan.edits().is_empty());
    // `lock cmpxchg [rbx+0x1000], rcx` with a branch over the prefix: only the first byte changes.
    let mut locked = text(&[&[0xf0, 0x48, 0x0f, 0xb1, 0x8b, 0x00, 0x10, 0x00, 0x00]]);
    locked.world.branch_targets.insert(CODE + 1);
    let plan = locked.patch(0);
    assert_eq!(plan.tactic, Tactic::Breakpoint);
    assert_eq!(locked.bytes[0], 0xcc);
    assert_eq!(locked.bytes[1..], locked.original[1..]);
}

#[test]
fn branch_target_at_the_start_is_no_hindrance() {
    let mut text = text(&[&[0x48, 0x89, 0x83, 0x00, 0x10, 0x00, 0x00]]);
    text.world.branch_targets.insert(CODE);
    assert_eq!(text.patch(0).tactic, Tactic::Jump);
}

#[test]
fn victim_with_a_branch_target_inside_stays() {
    let mut text = text(&[&STORE_3, &[0x48, 0x8b, 0x83, 0x90, 0x90, 0x90, 0x90]]);
    text.world.arenas = vec![(CODE + 0x100_0000, CODE + 0x200_0000)];
    text.world.branch_targets.insert(CODE + 4);
    assert_eq!(text.patch(0).tactic, Tactic::Fault);
}

#[test]
fn end_of_code_is_not_read() {
    // Four bytes, and nothing is known after them.
    let mut short = Text::new(&STORE_4);
    assert_eq!(short.patch(0).tactic, Tactic::Fault);
    let mut fence = Text::new(&[0x0f, 0xae, 0xf8]);
    assert_eq!(fence.patch(0).tactic, Tactic::Breakpoint);
    // An instruction that fills the region to its end needs nothing after it.
    let mut long = Text::new(&[0x48, 0x89, 0x83, 0x00, 0x10, 0x00, 0x00]);
    assert_eq!(long.patch(0).tactic, Tactic::Jump);
}

#[test]
fn patching_behind_a_pun_keeps_it_right() {
    let mut text = text(&[&STORE_4, &STORE_4, &[0x10, 0xc0]]);
    let first = text.patch(0);
    assert_eq!(first.tactic, Tactic::Pun);
    // The first byte of the second store is part of the first jump now.
    let second = text.patch(4);
    assert_eq!(second.tactic, Tactic::Fault);
    text.check(&first);
    // A fence there could not even be replaced by a breakpoint.
    let mut fenced = Text::new(
        &[
            &STORE_4[..],
            &[0x0f, 0xae, 0xf8],
            &[0x10, 0xc0, NOP, NOP, NOP],
        ]
        .concat(),
    );
    assert_eq!(fenced.patch(0).tactic, Tactic::Pun);
    assert_eq!(fenced.plan(4).unwrap_err(), PlanError::Blocked(CODE));
}

#[test]
fn unsettled_neighbour_comes_first() {
    let mut text = text(&[&STORE_4, &STORE_4, &[0x10, 0xc0]]);
    text.world.unsettled.insert(CODE + 4);
    assert_eq!(text.plan(0).unwrap_err(), PlanError::SettleFirst(CODE + 4));
    let second = text.patch(4);
    let first = text.patch(0);
    assert!(first.trampoline.is_some() && second.trampoline.is_some());
    text.check(&first);
    text.check(&second);
}

/// Instructions as compilers emit them, of many lengths: stores and others.
const POOL: &[&[u8]] = &[
    &STORE_2,
    &STORE_3,
    &STORE_4,
    &[0x48, 0x89, 0x83, 0x00, 0x10, 0x00, 0x00],
    &[0xc6, 0x03, 0x01],
    &[0x66, 0x89, 0x0b],
    &[0x0f, 0x11, 0x03],
    &[0xc7, 0x03, 1, 0, 0, 0],
    &[0x48, 0xc7, 0x43, 0x08, 0, 0, 0, 0],
    &[0xf0, 0x48, 0xff, 0x03],
    &[0x0f, 0xae, 0xf8],
    &[0x66, 0x0f, 0xae, 0x33],
    &[0x48, 0x8b, 0x03],
    &[0x48, 0x8b, 0x43, 0x10],
    &[0x48, 0x83, 0xc3, 0x40],
    &[0x48, 0x39, 0xd8],
    &[0x31, 0xc0],
    &[0x55],
    &[0x74, 0x10],
    &[0xe8, 0x10, 0x20, 0x00, 0x00],
    &[0x48, 0x8d, 0x05, 0x00, 0x10, 0x00, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0],
    &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],
    &[0x88, 0x03],
    &[0xab],
];

fn patch_with_neighbours(text: &mut Text, offset: usize, plans: &mut Vec<Plan>) {
    if text.claims.owner(CODE + offset as u64).is_some()
        || plans.iter().any(|plan| plan.site == CODE + offset as u64)
    {
        return;
    }
    loop {
        match text.plan(offset) {
            Ok(plan) => {
                text.world.unsettled.remove(&plan.site);
                text.apply(&plan);
                plans.push(plan);
                return;
            }
            Err(PlanError::SettleFirst(other)) => {
                patch_with_neighbours(text, (other - CODE) as usize, plans);
            }
            Err(PlanError::Blocked(_)) => {
                text.world.unsettled.remove(&(CODE + offset as u64));
                return;
            }
        }
    }
}

#[test]
fn any_order_of_patches_keeps_all_of_them_right() {
    let mut seed = 1u64;
    let mut random = move |limit: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) as usize) % limit
    };
    let mut tally = std::collections::BTreeMap::<String, usize>::new();
    for round in 0..300 {
        let mut bytes = Vec::new();
        let mut offsets = Vec::new();
        for _ in 0..30 {
            offsets.push(bytes.len());
            bytes.extend(POOL[random(POOL.len())]);
        }
        let mut text = Text::new(&bytes);
        if round % 3 == 1 {
            text.world.arenas = vec![
                (CODE - 0x4000_0000, CODE - 0x10_0000),
                (CODE + 0x10_0000, CODE + 0x4000_0000),
            ];
        } else if round % 3 == 2 {
            text.world.arenas = vec![
                (CODE + 0x100_0000, CODE + 0x400_0000),
                (CODE - 0x1800_0000, CODE - 0x1600_0000),
            ];
        }
        for _ in 0..random(4) {
            let inside = random(bytes.len());
            text.world.branch_targets.insert(CODE + inside as u64);
        }
        text.world.boundaries = offsets.iter().map(|offset| CODE + *offset as u64).collect();
        let sites: Vec<_> = offsets
            .iter()
            .copied()
            .filter(|offset| text.site(*offset).means == Means::Trampoline)
            .collect();
        text.world
            .unsettled
            .extend(sites.iter().map(|offset| CODE + *offset as u64));
        let mut plans = Vec::new();
        let mut order = sites.clone();
        for index in (1..order.len()).rev() {
            order.swap(index, random(index + 1));
        }
        // Some stay unchanged.
        for offset in order.into_iter().skip(random(3)) {
            patch_with_neighbours(&mut text, offset, &mut plans);
        }
        for plan in &plans {
            text.check(plan);
            *tally.entry(format!("{:?}", plan.tactic)).or_default() += 1;
        }
        let changed: BTreeSet<_> = plans
            .iter()
            .filter(|plan| !plan.edits().is_empty())
            .flat_map(|plan| {
                [
                    Some(plan.site),
                    plan.evicted.map(|evicted| evicted.instruction.ip()),
                ]
            })
            .flatten()
            .collect();
        for (index, offset) in offsets.iter().copied().enumerate() {
            if !changed.contains(&(CODE + offset as u64)) {
                let end = offsets.get(index + 1).copied().unwrap_or(bytes.len());
                assert_eq!(
                    text.bytes[offset..end],
                    text.original[offset..end],
                    "round {round}, offset {offset}"
                );
            }
        }
    }
    // Each of them occurs.
    for tactic in [
        "Jump",
        "Pun",
        "PaddedPun",
        "SuccessorEviction",
        "NeighbourEviction",
        "Fault",
        "Breakpoint",
    ] {
        assert!(tally.contains_key(tactic), "{tally:?}");
    }
    println!("{tally:?}");
}
