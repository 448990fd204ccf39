//! Frames of whole call stacks, and frames that no module explains.

use std::sync::Arc;

use powerfail_symbol::{AddressKind, NoSource, Symbolizer};
use powerfail_trace::{Frame, Module, ModuleIndex};

use crate::program::{Program, at, expect_chain};

#[test]
fn only_the_innermost_frame_is_taken_literally() {
    let program = Program::btree();
    let said = program.said_offsets();
    let stack = [at(said["call"]), at(said["call"]), at(said["give_up"])];
    let mut symbolizer = program.symbolizer();
    let resolved = symbolizer.resolve_stack(stack);
    assert_eq!(resolved.len(), 3);
    expect_chain(
        &resolved[0],
        "btree.c",
        &[("call_and_return", "after call")],
    );
    expect_chain(&resolved[1], "btree.c", &[("call_and_return", "call")]);
    expect_chain(
        &resolved[2],
        "btree.c",
        &[("call_without_return", "last call")],
    );
}

#[test]
fn an_address_outside_of_modules_is_shown_as_such() {
    let mut symbolizer = Symbolizer::new(&[]);
    let frame = Frame::Absolute {
        address: 0x7fff_f7fc_1000,
    };
    let resolved = symbolizer.resolve(frame, AddressKind::Return);
    assert_eq!(resolved.to_string(), "0x7ffff7fc1000");
    assert_eq!(resolved.no_source, Some(NoSource::NoModule));
    assert_eq!(resolved.frame, frame);
    assert_eq!(resolved.offset(), None);
}

#[test]
fn a_function_of_an_interpreter_has_lines_without_a_file_of_tables() {
    let modules = [Module {
        path: "/srv/store.py".into(),
        function: Some("Store.put".into()),
        ..Module::default()
    }];
    let mut symbolizer = Symbolizer::new(&modules);
    let frame = Frame::Module {
        module: ModuleIndex(0),
        offset: 12,
    };
    for kind in [AddressKind::Instruction, AddressKind::Return] {
        let resolved = symbolizer.resolve(frame, kind);
        assert_eq!(format!("{resolved:#}"), "Store.put (/srv/store.py:12)");
        assert_eq!(resolved.no_source, None);
    }
    assert_eq!(symbolizer.called(frame), None);
    assert_eq!(symbolizer.problems().count(), 0);
}

#[test]
fn a_module_that_the_trace_does_not_define_has_no_name() {
    let mut symbolizer = Symbolizer::new(&[]);
    let frame = Frame::Module {
        module: ModuleIndex(5),
        offset: 0x10,
    };
    let resolved = symbolizer.resolve(frame, AddressKind::Instruction);
    assert_eq!(resolved.to_string(), "module 5+0x10");
    assert_eq!(resolved.no_source, Some(NoSource::UnknownModule));
    assert_eq!(symbolizer.module_report(ModuleIndex(5)), None);
}

#[test]
fn a_place_is_looked_up_once_and_the_module_read_once() {
    let program = Program::btree();
    let offset = program.offsets()["here_persist"];
    let mut symbolizer = program.symbolizer();
    let first = symbolizer.resolve(at(offset), AddressKind::Instruction);
    std::fs::remove_file(&program.path).unwrap();
    let second = symbolizer.resolve(at(offset), AddressKind::Instruction);
    assert!(Arc::ptr_eq(&first, &second));
    let elsewhere = symbolizer.resolve(at(offset + 1), AddressKind::Instruction);
    assert_eq!(elsewhere.no_source, None);
}

#[test]
fn extreme_offsets_are_nowhere() {
    let program = Program::compile(
        "gcc",
        &["-g", "-no-pie", "-fno-pie"],
        &["btree.c", "main.c"],
    );
    let mut symbolizer = program.symbolizer();
    for offset in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        for kind in [AddressKind::Instruction, AddressKind::Return] {
            let resolved = symbolizer.resolve(at(offset), kind);
            assert_eq!(resolved.frames, []);
            assert_eq!(resolved.no_source, Some(NoSource::NotCovered));
            assert_eq!(resolved.to_string(), format!("program+{offset:#x}"));
        }
    }
}
