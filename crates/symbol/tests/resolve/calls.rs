//! Calls to functions in other modules.

use powerfail_trace::{Frame, ModuleIndex};

use crate::program::{Program, at, run};

const WAYS_TO_LINK: [&[&str]; 4] = [
    &["-Wl,-z,lazy"],
    &["-Wl,-z,now"],
    &["-Wl,-z,now", "-Wl,-z,ibtplt"],
    &["-Wl,-z,lazy", "-no-pie"],
];

#[test]
fn a_call_through_a_slot_has_the_name_of_the_function_in_the_other_module() {
    for options in WAYS_TO_LINK {
        let program = Program::compile("gcc", options, &["calls.S"]);
        let offsets = program.offsets();
        run("strip", ["--strip-all".as_ref(), program.path.as_os_str()]);
        let mut symbolizer = program.symbolizer();
        let mut called = |symbol| symbolizer.called(at(offsets[symbol]));
        assert_eq!(
            called("behind_stub").as_deref(),
            Some("labs"),
            "{options:?}"
        );
        assert_eq!(
            called("behind_slot").as_deref(),
            Some("llabs"),
            "{options:?}"
        );
        assert_eq!(called("behind_near"), None, "{options:?}");
        assert_eq!(called("behind_pointer"), None, "{options:?}");
        // Not a call.
        assert_eq!(called("main"), None, "{options:?}");
    }
}

#[test]
fn an_unknown_call_has_no_name() {
    let program = Program::compile("gcc", &[], &["calls.S"]);
    let behind_stub = program.offsets()["behind_stub"];
    let mut symbolizer = program.symbolizer();
    for offset in [0, 1, u64::MAX] {
        assert_eq!(symbolizer.called(at(offset)), None);
    }
    let elsewhere = Frame::Module {
        module: ModuleIndex(1),
        offset: behind_stub,
    };
    assert_eq!(symbolizer.called(elsewhere), None);
    let address = behind_stub;
    assert_eq!(symbolizer.called(Frame::Absolute { address }), None);
    // Another file has replaced it.
    let mut symbolizer = program.symbolizer();
    let other = Program::compile("gcc", &["-g"], &["labels.S"]);
    std::fs::copy(&other.path, &program.path).unwrap();
    assert_eq!(symbolizer.called(at(behind_stub)), None);
}
