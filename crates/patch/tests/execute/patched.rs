//! Whole pieces of code, patched with every tactic, and run.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use powerfail_patch::tactic::{Claims, CodeView, PlanError, Surroundings, Targets, plan};
use powerfail_patch::{Action, MAX_RELOCATED_LEN, MAX_TRAMPOLINE_LEN, Means, Site};
use powerfail_protocol::{SiteId, request};

use crate::bench::Bench;
use crate::cases::random_state;
use crate::machine::{Layout, Machine, SNIPPET_AT, answer};
use crate::random::Random;

const PAGE: u64 = 0x1000;

/// Where trampolines may be: wherever the machine maps nothing else.
const ARENAS: [(u64, u64); 4] = [
    (0x6100_0000, 0x6f00_0000),
    (0x4880_0000, 0x5f00_0000),
    (0x0002_0000, 0x3f00_0000),
    (0x8000_0000, 0xdf00_0000),
];

/// Instructions with RSI or RDI in the pool, of many lengths. None changes these two.
const INSTRUCTIONS: &[&[u8]] = &[
    &[0x89, 0x06],                                  // mov [rsi], eax
    &[0x48, 0x89, 0x1e],                            // mov [rsi], rbx
    &[0x48, 0x89, 0x4e, 0x08],                      // mov [rsi+8], rcx
    &[0x48, 0x89, 0x97, 0x80, 0x00, 0x00, 0x00],    // mov [rdi+0x80], rdx
    &[0xc6, 0x46, 0x11, 0x05],                      // mov byte [rsi+17], 5
    &[0x66, 0x89, 0x47, 0x22],                      // mov [rdi+34], ax
    &[0x0f, 0x11, 0x46, 0x40],                      // movups [rsi+64], xmm0
    &[0x0f, 0x2b, 0x0f],                            // movntps [rdi], xmm1
    &[0x48, 0x0f, 0xc3, 0x47, 0x10],                // movnti [rdi+16], rax
    &[0xff, 0x06],                                  // inc dword [rsi]
    &[0x48, 0x11, 0x47, 0x18],                      // adc [rdi+24], rax
    &[0xf0, 0x48, 0x0f, 0xc1, 0x46, 0x20],          // lock xadd [rsi+32], rax
    &[0xf0, 0xff, 0x07],                            // lock inc dword [rdi]
    &[0x66, 0x0f, 0xae, 0x36],                      // clwb [rsi]
    &[0x0f, 0xae, 0xf8],                            // sfence
    &[0x48, 0x8b, 0x06],                            // mov rax, [rsi]
    &[0x48, 0x01, 0xd8],                            // add rax, rbx
    &[0x31, 0xd0],                                  // xor eax, edx
    &[0x48, 0x8b, 0x8f, 0x90, 0x00, 0x00, 0x00],    // mov rcx, [rdi+0x90]
    &[0x48, 0x8d, 0x05, 0x10, 0x00, 0x00, 0x00],    // lea rax, [rip+16]
    &[0x90],                                        // nop
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],                // nop
    &[0x72, 0x00],                                  // jc to the next one
    &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],          // mov rax, imm64
    &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], // nop
];

struct World {
    arenas: &'static [(u64, u64)],
    boundaries: BTreeSet<u64>,
    unsettled: RefCell<Vec<u64>>,
    taken: RefCell<Vec<(u64, usize)>>,
}

fn overlaps(a: (u64, usize), b: (u64, usize)) -> bool {
    a.0 < b.0 + b.1 as u64 && b.0 < a.0 + a.1 as u64
}

impl Surroundings for World {
    fn is_branch_target(&self, _address: u64) -> bool {
        false
    }

    fn is_unsettled(&self, address: u64) -> bool {
        self.unsettled.borrow().contains(&address)
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
        for (from, to) in self.arenas.iter().copied() {
            let mut next = targets.at_or_above(from);
            while let Some(at) = next.filter(|at| at + len_bytes as u64 <= to) {
                let others = self.taken.borrow();
                let hit = others
                    .iter()
                    .copied()
                    .chain(taken)
                    .find(|other| overlaps((at, len_bytes), *other));
                match hit {
                    None => return Some(at),
                    Some((other, len)) => next = targets.at_or_above(other + len as u64),
                }
            }
        }
        None
    }
}

struct Patcher {
    bench: Bench,
    world: World,
    claims: Claims,
    sites: BTreeMap<u64, Site>,
    code_len: usize,
    mapped: Vec<u64>,
    tally: BTreeMap<String, usize>,
}

impl Patcher {
    fn map(&mut self, at: u64, len: usize) {
        let mut page = at / PAGE * PAGE;
        while page < at + len as u64 {
            if !self.mapped.contains(&page) {
                self.bench.machine.map_code(page, PAGE as usize);
                self.mapped.push(page);
            }
            page += PAGE;
        }
    }

    /// Maps missing pages and writes, page by page.
    fn write(&mut self, mut at: u64, mut bytes: &[u8]) {
        self.map(at, bytes.len());
        while !bytes.is_empty() {
            let in_page = ((PAGE - at % PAGE) as usize).min(bytes.len());
            let (now, later) = bytes.split_at(in_page);
            self.bench.machine.write_code(at, now);
            at += in_page as u64;
            bytes = later;
        }
    }

    fn patch(&mut self, address: u64) {
        let Some(site) = self.sites.get(&address).copied() else {
            return;
        };
        let start = Machine::code_address(SNIPPET_AT);
        let mut out = [0; MAX_TRAMPOLINE_LEN];
        let id = SiteId((address - start) as u32);
        let len = self
            .bench
            .emitter
            .emit(&site, id, address, false, &mut out)
            .unwrap()
            .len_bytes;
        let plan = loop {
            let bytes = self.bench.machine.read_code(start, self.code_len);
            let code = CodeView {
                address: start,
                bytes: &bytes,
            };
            match plan(&site, len, code, &self.claims, &self.world) {
                Ok(plan) => break plan,
                Err(PlanError::SettleFirst(other)) => self.patch(other),
                Err(error @ PlanError::Blocked(_)) => panic!("{error}"),
            }
        };
        self.sites.remove(&address);
        self.world
            .unsettled
            .borrow_mut()
            .retain(|other| *other != address);
        *self.tally.entry(format!("{:?}", plan.tactic)).or_default() += 1;
        let Some(trampoline) = plan.trampoline else {
            return;
        };
        let emitted = self
            .bench
            .emitter
            .emit(&site, id, trampoline, false, &mut out)
            .unwrap();
        assert_eq!(emitted.len_bytes, len, "the length depends on the address");
        self.write(trampoline, &out[..len]);
        self.world.taken.borrow_mut().push((trampoline, len));
        if let Some(evicted) = plan.evicted {
            let len = self
                .bench
                .emitter
                .relocate(&evicted.instruction, evicted.trampoline, &mut out)
                .unwrap();
            assert!(len <= MAX_RELOCATED_LEN);
            self.write(evicted.trampoline, &out[..len]);
            self.world
                .taken
                .borrow_mut()
                .push((evicted.trampoline, len));
        }
        for edit in plan.edits() {
            self.bench.machine.write_code(edit.address, edit.bytes());
        }
        plan.commit(&mut self.claims);
    }
}

fn round(seed: u64, tally: &mut BTreeMap<String, usize>) {
    let mut random = Random::new(seed);
    let mut bench = Bench::new(Layout::Near, |_| {});
    let start = Machine::code_address(SNIPPET_AT);
    let mut code = Vec::new();
    let mut sites = BTreeMap::new();
    let mut boundaries = BTreeSet::new();
    for _ in 0..40 {
        let bytes = random.pick(INSTRUCTIONS);
        let at = start + code.len() as u64;
        boundaries.insert(at);
        let site = bench.classifier.classify(bytes, at);
        if site.means == Means::Trampoline {
            sites.insert(at, site);
        }
        code.extend(bytes.iter());
    }
    bench.write_snippet(&code);
    let mut state = random_state(&mut random);
    state.registers[6] = bench.layout.pool() + 0x1000;
    state.registers[7] = bench.layout.pool() + 0x2000;
    state.flags &= !0x400;

    bench.machine.protect_pool(true);
    Random::new(seed).fill(bench.machine.pool());
    let native = bench.machine.run(start, &state);
    let native_pool = bench.machine.pool().to_vec();
    bench.machine.protect_pool(false);

    // With less room, the rarer tactics are used more often.
    let arenas = if seed.is_multiple_of(2) {
        &ARENAS[..]
    } else {
        &ARENAS[..2]
    };
    let world = World {
        arenas,
        boundaries,
        unsettled: RefCell::default(),
        taken: RefCell::default(),
    };
    world.unsettled.borrow_mut().extend(sites.keys());
    let mut order: Vec<_> = sites.keys().copied().collect();
    for index in (1..order.len()).rev() {
        order.swap(index, random.below(index as u64 + 1) as usize);
    }
    let expected: usize = sites
        .values()
        .filter(|site| !matches!(site.action, Action::Quiet))
        .count();
    let code_len = code.len() + 16;
    let mut patcher = Patcher {
        bench,
        world,
        claims: Claims::default(),
        sites,
        code_len,
        mapped: Vec::new(),
        tally: BTreeMap::new(),
    };
    for address in order {
        patcher.patch(address);
    }
    for (tactic, count) in &patcher.tally {
        *tally.entry(tactic.clone()).or_default() += count;
    }
    // Instructions that could not be patched stay unchanged and unrecorded, and must be allowed to write.
    let left =
        ["Fault", "Breakpoint"].map(|tactic| patcher.tally.get(tactic).copied().unwrap_or(0));
    let left: usize = left.into_iter().sum();
    let mut bench = patcher.bench;
    Random::new(seed).fill(bench.machine.pool());
    bench.machine.reset_ring(None);
    bench.machine.protect_pool(left > 0);
    let outcome = bench.machine.run(start, &state);
    assert_eq!(native.registers, outcome.registers, "seed {seed}");
    assert_eq!(native.flags, outcome.flags, "seed {seed}");
    assert!(native_pool == bench.machine.pool(), "seed {seed}");
    let records = bench.machine.records();
    assert_eq!(records.len(), expected - left, "seed {seed}");
    // In the order of the program, each from its own site.
    assert!(
        records.is_sorted_by_key(|record| record.header.site),
        "seed {seed}"
    );
    assert!(
        records.is_sorted_by_key(|record| record.stamp),
        "seed {seed}"
    );
}

#[test]
fn patched_code_does_what_it_did() {
    let mut tally = BTreeMap::new();
    for seed in 0..60 {
        round(seed, &mut tally);
    }
    println!("{tally:?}");
    for tactic in [
        "Jump",
        "Pun",
        "PaddedPun",
        "SuccessorEviction",
        "NeighbourEviction",
    ] {
        assert!(tally[tactic] > 10, "{tally:?}");
    }
}

/// Alternating stores and client requests, patched in any order; each store stores the answer to the request before
/// it.
#[test]
fn requests_among_stores() {
    /// mov [rsi+disp8], rdx
    const STORE: [u8; 3] = [0x48, 0x89, 0x56];
    const REQUESTS: u64 = 6;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(Layout::Near, |_| {});
        let start = Machine::code_address(SNIPPET_AT);
        let mut code = Vec::new();
        for index in 0..REQUESTS {
            code.extend(request::SEQUENCE);
            code.extend(STORE);
            code.push(8 * index as u8);
        }
        let mut sites = BTreeMap::new();
        let mut boundaries = BTreeSet::new();
        bench.classifier.scan(&code, start, |scanned| {
            boundaries.insert(scanned.address);
            sites.extend(scanned.silent.map(|site| (site.address(), site)));
        });
        assert_eq!(sites.len() as u64, REQUESTS);
        for at in boundaries.iter().copied() {
            let site = bench
                .classifier
                .classify(&code[(at - start) as usize..], at);
            if matches!(site.action, Action::Store(_)) {
                sites.insert(at, site);
            }
        }
        let requests: Vec<SiteId> = sites
            .values()
            .filter(|site| site.action == Action::Request)
            .map(|site| SiteId((site.address() - start) as u32))
            .collect();
        let mut order: Vec<_> = sites.keys().copied().collect();
        for index in (1..order.len()).rev() {
            order.swap(index, random.below(index as u64 + 1) as usize);
        }
        bench.write_snippet(&code);
        let world = World {
            arenas: &ARENAS,
            boundaries,
            unsettled: RefCell::new(order.clone()),
            taken: RefCell::default(),
        };
        let code_len = code.len() + 16;
        let mut patcher = Patcher {
            bench,
            world,
            claims: Claims::default(),
            sites,
            code_len,
            mapped: Vec::new(),
            tally: BTreeMap::new(),
        };
        for address in order {
            patcher.patch(address);
        }
        for tactic in ["Fault", "Breakpoint"] {
            assert_eq!(patcher.tally.get(tactic), None, "{:?}", patcher.tally);
        }
        let mut bench = patcher.bench;
        let mut state = random_state(&mut random);
        state.registers[0] = Machine::volatile_address();
        state.registers[6] = bench.layout.pool();
        let words = [0; request::WORDS].map(|_: u64| random.next());
        for (index, word) in words.iter().enumerate() {
            let place = bench
                .machine
                .memory(state.registers[0] + 8 * index as u64, 8);
            place.copy_from_slice(&word.to_le_bytes());
        }
        bench.machine.reset_ring(None);
        let outcome = bench.machine.run(start, &state);
        let mut expected = state.registers;
        let mut stored = Vec::new();
        for id in requests {
            expected[2] = answer(id, words, expected[2]);
            stored.extend(expected[2].to_le_bytes());
        }
        assert_eq!(outcome.registers, expected, "seed {seed}");
        assert_eq!(bench.machine.pool()[..stored.len()], stored, "seed {seed}");
        assert_eq!(bench.machine.records().len() as u64, REQUESTS);
    }
}
