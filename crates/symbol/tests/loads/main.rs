//! How often files are read. One test, because the count is that of the process.

use std::fs;
use std::path::Path;
use std::process::Command;

use powerfail_symbol::{AddressKind, Symbolizer, module_loads};
use powerfail_trace::{Frame, Module, ModuleIndex};

fn compile(folder: &Path, text: &str) {
    fs::write(folder.join("program.c"), text).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-Wl,--build-id=none", "-o", "program", "program.c"]);
    assert!(gcc.current_dir(folder).status().unwrap().success());
}

/// The function at every address of the program, resolved by a new symbolizer.
fn functions(folder: &Path, load_address: u64) -> Vec<String> {
    let modules = [Module {
        path: folder.join("program"),
        build_id: Vec::new(),
        load_address,
        len_bytes: 0x10_0000,
        function: None,
    }];
    let mut symbolizer = Symbolizer::new(&modules).with_debug_directories([""; 0]);
    let mut names: Vec<String> = Vec::new();
    for offset in 0..0x2000 {
        let frame = Frame::Module {
            module: ModuleIndex(0),
            offset,
        };
        let resolved = symbolizer.resolve(frame, AddressKind::Instruction);
        let sources = resolved.frames.iter().filter(|it| it.file.is_some());
        names.extend(sources.filter_map(|it| it.function.clone()));
    }
    names.dedup();
    names
}

#[test]
fn a_module_is_read_once_for_all_symbolizers_and_threads_until_its_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compile(folder, "int main(void) { return 0; }");
    let before = module_loads();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for run in 0..8 {
                    // Each process has mapped it at another address.
                    let names =
                        functions(folder, 0x5555_0000_0000 + 0x10_0000 * (8 * thread + run));
                    assert_eq!(names, ["main"]);
                }
            });
        }
    });
    assert_eq!(module_loads() - before, 1);

    compile(folder, "void other(void) {} int main(void) { return 0; }");
    for _ in 0..2 {
        assert_eq!(functions(folder, 0x5555_0000_0000), ["other", "main"]);
    }
    assert_eq!(module_loads() - before, 2);
}
