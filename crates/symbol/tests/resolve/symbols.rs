//! Modules without debug information: names from symbol tables, or only offsets.

use powerfail_symbol::{NameSource, NoSource, Problem, SourceFrame};
use powerfail_trace::ModuleIndex;

use crate::program::{Program, instruction, run};

fn strip(program: &Program, option: &str) {
    run("strip", [option.as_ref(), program.path.as_os_str()]);
}

/// A function by symbol, three bytes from its beginning.
fn expect_symbol(program: &Program, offset: u64, name: &str, source: NameSource) {
    let mut symbolizer = program.symbolizer();
    let resolved = instruction(&mut symbolizer, offset + 3);
    let frame = SourceFrame {
        function: Some(name.into()),
        symbol_offset: Some(3),
        ..SourceFrame::default()
    };
    assert_eq!(resolved.frames, [frame]);
    let no_debug_info = Problem::NoDebugInfo {
        path: program.path.clone(),
    };
    assert_eq!(
        resolved.no_source,
        Some(NoSource::Module(no_debug_info.clone().into()))
    );
    assert_eq!(
        resolved.to_string(),
        format!("{name}+0x3 (program+{:#x})", offset + 3)
    );
    let report = symbolizer.module_report(ModuleIndex(0)).unwrap();
    assert_eq!(report.names, source);
    assert_eq!(report.problems, [no_debug_info]);
}

#[test]
fn without_debug_information_functions_have_names() {
    for options in [&["-O2"][..], &["-O2", "-no-pie", "-fno-pie"]] {
        let program = Program::compile("gcc", options, &["btree.c", "main.c"]);
        expect_symbol(
            &program,
            program.offsets()["update"],
            "update",
            NameSource::AllSymbols,
        );
    }
    let program = Program::compile("g++", &["-O2", "-g"], &["tree.cpp"]);
    strip(&program, "--strip-debug");
    let offset = program.offsets()["_ZN5store4fillEi"];
    expect_symbol(&program, offset, "store::fill(int)", NameSource::AllSymbols);
}

#[test]
fn a_stripped_library_has_the_names_that_it_exports() {
    let program = Program::compile("gcc", &["-O2", "-g", "-fPIC", "-shared"], &["btree.c"]);
    strip(&program, "--strip-all");
    expect_symbol(
        &program,
        program.offsets()["update"],
        "update",
        NameSource::DynamicSymbols,
    );
}

#[test]
fn a_stripped_executable_has_offsets_only() {
    let program = Program::btree();
    let offset = program.offsets()["update"];
    strip(&program, "--strip-all");
    let mut symbolizer = program.symbolizer();
    let resolved = instruction(&mut symbolizer, offset);
    assert_eq!(resolved.frames, []);
    assert_eq!(resolved.to_string(), format!("program+{offset:#x}"));
    let report = symbolizer.module_report(ModuleIndex(0)).unwrap();
    assert_eq!(report.names, NameSource::None);
}
