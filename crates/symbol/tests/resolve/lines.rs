//! Exact lines and inlined calls, for each language, kind of executable and version of DWARF.

use std::collections::HashMap;

use powerfail_symbol::{AddressKind, LineSource, Symbolizer};
use powerfail_trace::ModuleIndex;

use crate::program::{Program, at, expect, expect_chain, instruction, marked};

const INLINED: [(&str, &str); 3] = [
    ("persist", "persist"),
    ("insert", "insert"),
    ("update", "update"),
];

fn expect_btree(program: &Program, said: &HashMap<String, u64>) {
    let offsets = program.offsets();
    let mut symbolizer = program.symbolizer();
    let inlined = instruction(&mut symbolizer, offsets["here_persist"]);
    expect_chain(&inlined, "btree.c", &INLINED);
    let after = instruction(&mut symbolizer, offsets["here_update"]);
    expect_chain(&after, "btree.c", &[("update", "update after")]);

    let mut caller = |name: &str| symbolizer.resolve(at(said[name]), AddressKind::Return);
    expect_chain(&caller("call"), "btree.c", &[("call_and_return", "call")]);
    expect_chain(
        &caller("give_up"),
        "btree.c",
        &[("call_without_return", "last call")],
    );

    let report = symbolizer.module_report(ModuleIndex(0)).unwrap();
    assert_eq!(report.lines, LineSource::Module);
    assert_eq!(report.problems, []);
}

#[test]
fn executables_of_each_kind_have_exact_lines() {
    let variants: [&[&str]; 8] = [
        &["-O0", "-gdwarf-5", "-fPIE", "-pie"],
        &["-O2", "-gdwarf-5", "-fPIE", "-pie"],
        &["-O2", "-gdwarf-4", "-fPIE", "-pie"],
        &["-O0", "-gdwarf-4", "-no-pie", "-fno-pie"],
        &["-O2", "-gdwarf-5", "-no-pie", "-fno-pie"],
        &[
            "-O2",
            "-g",
            "-fomit-frame-pointer",
            "-fno-asynchronous-unwind-tables",
        ],
        &[
            "-O2",
            "-g",
            "-fno-omit-frame-pointer",
            "-Wl,-z,noseparate-code",
        ],
        &[
            "-O2",
            "-g",
            "-no-pie",
            "-fno-pie",
            "-Wl,-Ttext-segment=0x12340000",
        ],
    ];
    for options in variants {
        let program = Program::compile("gcc", options, &["btree.c", "main.c"]);
        expect_btree(&program, &program.said_offsets());
    }
}

#[test]
fn shared_libraries_have_exact_lines() {
    for (options, name) in [
        (&["-O2", "-g", "-fPIC", "-shared"][..], "libbtree.so"),
        (
            &[
                "-O0",
                "-g",
                "-fPIC",
                "-shared",
                "-Wl,-Ttext-segment=0x200000",
            ],
            "libelsewhere.so",
        ),
    ] {
        let library = Program::compile("gcc", options, &["btree.c"]).renamed(name);
        let search = format!("-Wl,-rpath={}", library.directory().display());
        let library_path = library.path.to_str().unwrap();
        let executable = Program::compile("gcc", &[&search], &["main.c", library_path]);
        expect_btree(&library, &executable.said_offsets());
        let resolved = library.resolve("here_persist");
        assert_eq!(resolved.module.as_deref(), Some(name));
    }
}

#[test]
fn a_function_begins_at_its_first_line() {
    let program = Program::compile("gcc", &["-g", "-O0"], &["btree.c", "main.c"]);
    expect_chain(
        &program.resolve("update"),
        "btree.c",
        &[("update", "update begins")],
    );
}

#[test]
fn a_return_address_is_looked_up_at_its_call() {
    let program = Program::btree();
    let offset = program.said_offsets()["give_up"];
    let mut symbolizer = program.symbolizer();
    let exact = instruction(&mut symbolizer, offset);
    let caller = symbolizer.resolve(at(offset), AddressKind::Return);
    assert_eq!(
        caller.innermost().unwrap().function.as_deref(),
        Some("call_without_return")
    );
    let exact = exact
        .innermost()
        .and_then(|frame| frame.function.as_deref());
    assert_ne!(exact, Some("call_without_return"));
    // It is shown as it was recorded.
    assert_eq!(caller.offset(), Some(offset));
}

#[test]
fn columns_are_those_of_calls() {
    let program = Program::btree();
    let resolved = program.resolve("here_persist");
    for (frame, mark) in resolved.frames[1..].iter().zip(["insert", "update"]) {
        let (_, text) = marked("btree.c", mark);
        let column = text.find(|c: char| !c.is_whitespace()).unwrap() as u32 + 1;
        assert_eq!(frame.column, Some(column));
    }
}

#[test]
fn places_are_written_for_people() {
    let program = Program::btree();
    let line = |mark| marked("btree.c", mark).0;
    let expected = format!(
        "persist (btree.c:{}) inlined into insert (btree.c:{}) inlined into update (btree.c:{})",
        line("persist"),
        line("insert"),
        line("update")
    );
    assert_eq!(program.resolve("here_persist").to_string(), expected);
}

#[test]
fn cpp_functions_have_the_names_of_the_source() {
    for optimisation in ["-O0", "-O2"] {
        let program = Program::compile("g++", &["-g", optimisation], &["tree.cpp"]);
        let offsets = program.offsets();
        let mut symbolizer = program.symbolizer();
        let constructor = instruction(&mut symbolizer, offsets["here_constructor"]);
        let chain = [
            ("store::Tree<int>::Tree(int)", "constructor"),
            ("store::fill(int)", "fill"),
        ];
        expect_chain(&constructor, "tree.cpp", &chain);
        let insert = instruction(&mut symbolizer, offsets["here_insert"]);
        expect_chain(
            &insert,
            "tree.cpp",
            &[("store::Tree<int>::insert(int, long)", "insert")],
        );
        let lambda = instruction(&mut symbolizer, offsets["here_lambda"]);
        let name = "store::fill(int)::{lambda(int)#1}::operator()(int) const";
        expect(&lambda.frames[0], name, "tree.cpp", "lambda after");
        let hidden = instruction(&mut symbolizer, offsets["here_hidden"]);
        let name = "store::(anonymous namespace)::hidden(int)";
        expect_chain(&hidden, "tree.cpp", &[(name, "hidden")]);
        let plain = instruction(&mut symbolizer, offsets["here_plain"]);
        expect_chain(&plain, "tree.cpp", &[("plain", "plain")]);
    }
}

#[test]
fn rust_functions_have_the_names_of_the_source() {
    for options in [
        &["-Copt-level=0"][..],
        &["-Copt-level=2"],
        &["-Copt-level=2", "-Csymbol-mangling-version=v0"],
    ] {
        let options = [&["-g", "--edition=2021"], options].concat();
        let program = Program::compile("rustc", &options, &["hash.rs"]);
        let offsets = program.offsets();
        // The default mangling depends on the compiler. Only one of them has type arguments.
        let is_v0 = offsets
            .keys()
            .any(|it| it.starts_with("_R") && it.contains("5Table6insert"));
        let names = if is_v0 {
            [
                "<hash::Table>::persist",
                "<hash::Table>::insert::<u32>",
                "hash::main::{closure#0}",
            ]
        } else {
            [
                "hash::Table::persist",
                "hash::Table::insert",
                "hash::main::{{closure}}",
            ]
        };
        let mut symbolizer = program.symbolizer();
        let persist = instruction(&mut symbolizer, offsets["here_persist"]);
        expect_chain(
            &persist,
            "hash.rs",
            &[(names[0], "persist"), (names[1], "insert")],
        );
        let closure = instruction(&mut symbolizer, offsets["here_closure"]);
        expect(&closure.frames[0], names[2], "hash.rs", "closure");
    }
}

#[test]
fn rust_functions_with_line_tables_only_have_whole_names() {
    let options = [
        "-Cdebuginfo=line-tables-only",
        "-Copt-level=2",
        "--edition=2021",
    ];
    let program = Program::compile("rustc", &options, &["hash.rs"]);
    let resolved = program.resolve("here_persist");
    assert_eq!(resolved.frames.len(), 2);
    // An inlined function has no symbol.
    expect(&resolved.frames[0], "persist", "hash.rs", "persist");
    let function = resolved.frames[1].function.as_deref().unwrap();
    assert!(
        ["hash::Table::insert", "<hash::Table>::insert::<u32>"].contains(&function),
        "{function}"
    );
}

#[test]
fn assembly_code_has_lines_and_the_names_of_its_symbols() {
    let program = Program::compile("gcc", &["-g"], &["labels.S"]);
    let offsets = program.offsets();
    let mut symbolizer = program.symbolizer();
    let main = instruction(&mut symbolizer, offsets["here_main"]);
    expect_chain(&main, "labels.S", &[("main", "main")]);
    let label = instruction(&mut symbolizer, offsets["bare_label"] + 1);
    expect_chain(&label, "labels.S", &[("bare_label", "label")]);
    assert_eq!(label.frames[0].symbol_offset, Some(1));
}

#[test]
fn split_debug_information_is_read_from_its_files() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let options = ["-O2", "-gsplit-dwarf", version];
        let compile = || Program::compile("gcc", &options, &["btree.c", "main.c"]);
        let program = compile();
        expect_btree(&program, &program.said_offsets());

        // Without them there are still lines, and a note about the loss. What was read of a program is kept, so this
        // is another one.
        let program = compile();
        for entry in std::fs::read_dir(program.directory()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "dwo") {
                std::fs::remove_file(path).unwrap();
            }
        }
        let mut symbolizer = program.symbolizer();
        let resolved = instruction(&mut symbolizer, program.offsets()["here_persist"]);
        expect_chain(&resolved, "btree.c", &[("update", "persist")]);
        let problems: Vec<_> = symbolizer
            .problems()
            .map(|(_, it)| it.to_string())
            .collect();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("btree.dwo"), "{problems:?}");
    }
}

#[test]
fn a_symbolizer_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Symbolizer>();
}
