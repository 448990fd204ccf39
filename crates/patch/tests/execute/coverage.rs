//! Every instruction that exists in 64-bit mode has a verdict, and code for other machines, which cannot run here, is
//! compared with the expected code, instruction by instruction.

use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, EncodingKind, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, Register,
};
use powerfail_patch::{
    Action, Classifier, Emitter, EmitterSettings, MAX_TRAMPOLINE_LEN, Means, Refusal, Site, Store,
    StoreForm,
};
use powerfail_protocol::{EventKind, PoolWindow, SiteId};

use crate::instances::{self, Memory};
use crate::random::Random;

use Means::{Trampoline, Trap};
use StoreForm::{Copy, FarBit, Masked, Modify, Pop, Scatter, Stack, State};

const AT: u64 = 0x5000_0000;

fn encode(instruction: &Instruction) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(64);
    encoder.encode(instruction, AT).ok()?;
    Some(encoder.take_buffer())
}

/// The target of a random branch cannot be encoded in all forms. Of these only the call writes memory, and its other
/// forms are tested.
fn is_known_gap(code: Code) -> bool {
    use iced_x86::FlowControl as F;
    code == Code::Call_rel16
        || matches!(
            code.flow_control(),
            F::UnconditionalBranch | F::ConditionalBranch | F::XbeginXabortXend
        )
}

/// One instance of every instruction, classified.
fn all_sites() -> Vec<Site> {
    let mut random = Random::new(7);
    let mut classifier = Classifier::new();
    let mut sites = Vec::new();
    for code in Code::values() {
        // Instructions of a coprocessor whose encoding no current processor has.
        if code.encoding() == EncodingKind::MVEX {
            continue;
        }
        let narrow = Memory {
            base: Register::ESI,
            ..Memory::simple()
        };
        let absolute = Memory {
            base: Register::None,
            displacement_size: 8,
            ..Memory::simple()
        };
        let tries: Vec<_> = [Memory::simple(); 20]
            .into_iter()
            .chain([narrow, absolute])
            .filter_map(|memory| instances::build(code, memory, &mut random))
            .collect();
        match tries.iter().find_map(encode) {
            Some(bytes) => sites.push(classifier.classify(&bytes, AT)),
            None => assert!(
                tries.is_empty() || is_known_gap(code),
                "no instance of {code:?} can be encoded"
            ),
        }
    }
    sites
}

#[test]
fn whatever_writes_memory_has_a_verdict() {
    let mut info = InstructionInfoFactory::new();
    let (mut trampolines, mut traps, mut refused) = (0, 0, 0);
    for site in all_sites() {
        if site.instruction.is_invalid() {
            continue;
        }
        let writes = info
            .info(&site.instruction)
            .used_memory()
            .iter()
            .any(|memory| {
                matches!(
                    memory.access(),
                    OpAccess::Write
                        | OpAccess::CondWrite
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                )
            });
        assert!(
            !writes || matches!(site.action, Action::Store(_)),
            "{:?} is silent",
            site.instruction.code()
        );
        match site.means {
            Means::Nothing => assert_eq!(site.action, Action::Quiet),
            Means::Trampoline => trampolines += 1,
            Means::Trap => traps += 1,
            Means::Refused(refusal) => {
                let mnemonic = site.instruction.mnemonic();
                let by_name = [Refusal::Instruction(mnemonic), Refusal::Stack(mnemonic)];
                assert!(by_name.contains(&refusal), "{refusal:?}");
                refused += 1;
            }
        }
    }
    println!("by trampoline {trampolines}, by trap {traps}, refused {refused}");
    assert!(trampolines > 500 && traps > 15 && refused > 0);
}

#[test]
fn lists_of_what_no_trampoline_does() {
    let mut traps = std::collections::BTreeSet::new();
    let mut refused = std::collections::BTreeSet::new();
    for site in all_sites() {
        match site.means {
            Means::Trap => traps.insert(format!("{:?}", site.instruction.mnemonic())),
            Means::Refused(Refusal::Instruction(mnemonic) | Refusal::Stack(mnemonic)) => {
                refused.insert(format!("{mnemonic:?}"))
            }
            _ => false,
        };
    }
    println!("trap: {traps:?}\nrefused: {refused:?}");
    for mnemonic in [
        "Pop",
        "Fxsave",
        "Xsave",
        "Fnstenv",
        "Maskmovdqu",
        "Clzero",
        "Movdir64b",
    ] {
        assert!(traps.contains(mnemonic), "{mnemonic}");
    }
    for mnemonic in [
        "Push",
        "Call",
        "Vpscatterdd",
        "Enqcmd",
        "Aadd",
        "Cmpzxadd",
        "Sgdt",
        "Wrssq",
        "Insb",
    ] {
        assert!(refused.contains(mnemonic), "{mnemonic}");
    }
}

/// Bytes, action, means.
type Line = (&'static [u8], Action, Means);

const fn plain(form: StoreForm, len_bytes: u16) -> Action {
    Action::Store(Store {
        form,
        kind: EventKind::StorePlain,
        len_bytes,
    })
}

const fn non_temporal(form: StoreForm, len_bytes: u16) -> Action {
    Action::Store(Store {
        form,
        kind: EventKind::StoreNonTemporal,
        len_bytes,
    })
}

const fn locked(form: StoreForm, len_bytes: u16) -> Action {
    Action::Store(Store {
        form,
        kind: EventKind::StoreLocked,
        len_bytes,
    })
}

const REP_MOVS: StoreForm = StoreForm::String {
    copies: true,
    repeats: true,
};
const STOS: StoreForm = StoreForm::String {
    copies: false,
    repeats: false,
};
const PAIR: StoreForm = StoreForm::CompareExchangePair;

#[rustfmt::skip]
const STORES: &[Line] = &[
    // mov [rax], bl; mov [rax], rbx; mov word [rax], imm; sete [rax]
    (&[0x88, 0x18], plain(Copy, 1), Trampoline),
    (&[0x48, 0x89, 0x18], plain(Copy, 8), Trampoline),
    (&[0x66, 0xc7, 0x00, 1, 0], plain(Copy, 2), Trampoline),
    (&[0x0f, 0x94, 0x00], plain(Copy, 1), Trampoline),
    // movaps, vmovdqu ymm, vmovups zmm, vmovups zmm {k1}
    (&[0x0f, 0x29, 0x00], plain(Copy, 16), Trampoline),
    (&[0xc5, 0xfe, 0x7f, 0x00], plain(Copy, 32), Trampoline),
    (&[0x62, 0xf1, 0x7c, 0x48, 0x11, 0x00], plain(Copy, 64), Trampoline),
    (&[0x62, 0xf1, 0x7c, 0x49, 0x11, 0x00], plain(Masked, 64), Trampoline),
    // movnti, movntdq, vmovntdq zmm
    (&[0x48, 0x0f, 0xc3, 0x18], non_temporal(Copy, 8), Trampoline),
    (&[0x66, 0x0f, 0xe7, 0x00], non_temporal(Copy, 16), Trampoline),
    (&[0x62, 0xf1, 0x7d, 0x48, 0xe7, 0x00], non_temporal(Copy, 64), Trampoline),
    // vpmaskmovd, vpscatterdd, vpcompressd {k1}
    (&[0xc4, 0xe2, 0x75, 0x8e, 0x00], plain(Masked, 32), Trampoline),
    (&[0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x04, 0x08], plain(Scatter, 4), Means::Refused(Refusal::Instruction(Mnemonic::Vpscatterdd))),
    (&[0x62, 0xf2, 0x7d, 0x49, 0x8b, 0x00], plain(Masked, 64), Trampoline),
    // rep movsq, stosb, stosb with 32-bit addresses
    (&[0xf3, 0x48, 0xa5], plain(REP_MOVS, 8), Trampoline),
    (&[0xaa], plain(STOS, 1), Trampoline),
    (&[0x67, 0xaa], plain(STOS, 1), Means::Refused(Refusal::Instruction(Mnemonic::Stosb))),
    // push, pop [rax], call, fxsave, fstp m80, fnstcw
    (&[0x50], plain(Stack, 8), Means::Refused(Refusal::Stack(Mnemonic::Push))),
    (&[0x8f, 0x00], plain(Stack, 8), Trap),
    (&[0xe8, 0, 0, 0, 0], plain(Stack, 8), Means::Refused(Refusal::Stack(Mnemonic::Call))),
    (&[0x0f, 0xae, 0x00], plain(State, 512), Trap),
    (&[0xdb, 0x38], plain(Pop, 10), Trampoline),
    (&[0xd9, 0x38], plain(Copy, 2), Trampoline),
    // mov gs:[rax], rbx
    (&[0x65, 0x48, 0x89, 0x18], plain(Copy, 8), Means::Refused(Refusal::GsSegment(Mnemonic::Mov))),
];

#[rustfmt::skip]
const MODIFICATIONS: &[Line] = &[
    // add, lock add, xchg, cmpxchg, lock cmpxchg16b, xadd
    (&[0x48, 0x01, 0x18], plain(Modify, 8), Trampoline),
    (&[0xf0, 0x48, 0x01, 0x18], locked(Modify, 8), Trampoline),
    (&[0x87, 0x18], locked(Modify, 4), Trampoline),
    (&[0x0f, 0xb1, 0x18], plain(Modify, 4), Trampoline),
    (&[0xf0, 0x48, 0x0f, 0xc7, 0x0e], locked(PAIR, 16), Trampoline),
    (&[0x0f, 0xc0, 0x18], plain(Modify, 1), Trampoline),
    // bts with an immediate and with a register
    (&[0x48, 0x0f, 0xba, 0x28, 5], plain(Modify, 8), Trampoline),
    (&[0x48, 0x0f, 0xab, 0x18], plain(FarBit, 8), Trampoline),
];

#[rustfmt::skip]
const OTHERS: &[Line] = &[
    // clflush, clflushopt, clwb, sfence, mfence
    (&[0x0f, 0xae, 0x38], Action::Flush(EventKind::Clflush), Trampoline),
    (&[0x66, 0x0f, 0xae, 0x38], Action::Flush(EventKind::Clflushopt), Trampoline),
    (&[0x66, 0x0f, 0xae, 0x30], Action::Flush(EventKind::Clwb), Trampoline),
    (&[0x0f, 0xae, 0xf8], Action::Fence(EventKind::Sfence), Trampoline),
    (&[0x0f, 0xae, 0xf0], Action::Fence(EventKind::Mfence), Trampoline),
    // mov rbx, [rax]; add rax, rbx; cmp [rax], rbx; prefetcht0; lfence
    (&[0x48, 0x8b, 0x18], Action::Quiet, Means::Nothing),
    (&[0x48, 0x01, 0xd8], Action::Quiet, Means::Nothing),
    (&[0x48, 0x39, 0x18], Action::Quiet, Means::Nothing),
    (&[0x0f, 0x18, 0x08], Action::Quiet, Means::Nothing),
    (&[0x0f, 0xae, 0xe8], Action::Quiet, Means::Nothing),
    // push es, which is not an instruction in 64-bit mode
    (&[0x06], Action::Quiet, Means::Refused(Refusal::Invalid)),
];

#[test]
fn table_of_forms() {
    let mut classifier = Classifier::new();
    for (bytes, action, means) in STORES.iter().chain(MODIFICATIONS).chain(OTHERS) {
        let site = classifier.classify(bytes, AT);
        assert_eq!((site.action, site.means), (*action, *means), "{bytes:02x?}");
        assert_eq!(site.code(), *bytes);
    }
}

/// Not every machine has AVX-512. On others the code is checked by reading it: the instruction appears with the same
/// registers and mask on the record (twice if masked) and on the alias, both with and without locks, and unchanged.
#[test]
fn avx512_code_is_what_it_should_be() {
    let window = PoolWindow {
        base: 0x4000_0000,
        len_bytes: 0x0400_0000,
        alias_delta: 0x0800_0000,
    };
    let mut maker = Emitter::new(EmitterSettings::new(window));
    let mut random = Random::new(9);
    let mut classifier = Classifier::new();
    let mut checked = 0;
    for code in Code::values().filter(|code| code.encoding() == EncodingKind::EVEX) {
        for round in 0..4 {
            let Some(mut instruction) = instances::build(code, Memory::simple(), &mut random)
            else {
                continue;
            };
            if round % 2 == 1 && code.op_code().can_use_op_mask_register() {
                instruction.set_op_mask(Register::K1 + random.below(7) as u32);
            }
            let Some(bytes) = encode(&instruction) else {
                continue;
            };
            let site = classifier.classify(&bytes, AT);
            if site.means != Means::Trampoline {
                continue;
            }
            let Action::Store(store) = site.action else {
                panic!("{code:?}")
            };
            let mut out = [0; MAX_TRAMPOLINE_LEN];
            let emitted = maker
                .emit(&site, SiteId(1), AT + 0x1000, false, &mut out)
                .unwrap();
            let copies: Vec<_> = Decoder::with_ip(
                64,
                &out[..emitted.len_bytes],
                AT + 0x1000,
                DecoderOptions::NONE,
            )
            .into_iter()
            .filter(|instruction| instruction.code().encoding() == EncodingKind::EVEX)
            .collect();
            let on_record = if store.form == StoreForm::Masked {
                2
            } else {
                1
            };
            assert_eq!(copies.len(), 2 * (on_record + 1) + 1, "{code:?}");
            for copy in &copies {
                assert_eq!(copy.op_mask(), site.instruction.op_mask(), "{code:?}");
                assert_eq!(
                    copy.memory_size().size(),
                    site.instruction.memory_size().size(),
                    "{code:?}"
                );
                for operand in 1..copy.op_count() {
                    assert_eq!(
                        copy.op_kind(operand),
                        site.instruction.op_kind(operand),
                        "{code:?}"
                    );
                    assert_eq!(
                        copy.op_register(operand),
                        site.instruction.op_register(operand),
                        "{code:?}"
                    );
                }
            }
            let [alias, shared @ .., original] = &copies[on_record..] else {
                unreachable!()
            };
            assert_eq!(alias.code(), site.instruction.code());
            assert_eq!(alias.ip() - AT - 0x1000, emitted.work_at.unwrap() as u64);
            let shared = &shared[on_record];
            if store.kind == EventKind::StoreNonTemporal {
                assert_ne!(shared.code(), site.instruction.code());
            } else {
                assert_eq!(shared.code(), site.instruction.code());
            }
            let locked_work_at = emitted.locked_work.unwrap().work_at;
            assert_eq!(shared.ip() - AT - 0x1000, locked_work_at as u64);
            assert_eq!(original.code(), site.instruction.code());
            assert_eq!(original.memory_base(), Register::RSI);
            checked += 1;
        }
    }
    assert!(checked > 400, "only {checked}");
}
