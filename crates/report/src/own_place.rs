//! Where an event is in the sources of the program itself, and not in a library that it calls.

use std::path::Path;

use powerfail_symbol::{AddressKind, Symbolizer};
use powerfail_trace::{StackId, Trace};

/// Further out, a place says little about an event.
const FRAMES_MAX: usize = 12;

/// The innermost place of a call stack in the program's own sources, or else in other ones: `map.c:41 in insert`.
pub(crate) fn own_place(
    trace: &Trace,
    symbolizer: &mut Symbolizer,
    stack: StackId,
) -> Option<String> {
    let kinds = std::iter::once(AddressKind::Instruction);
    let kinds = kinds.chain(std::iter::repeat(AddressKind::Return));
    let mut fallback = None;
    for (frame, kind) in trace.stack(stack).zip(kinds).take(FRAMES_MAX) {
        let resolved = symbolizer.resolve(frame, kind);
        for source in &resolved.frames {
            let Some(file) = &source.file else { continue };
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let mut text = name.into_owned();
            if let Some(line) = source.line {
                text = format!("{text}:{line}");
            }
            if let Some(function) = &source.function {
                text = format!("{text} in {function}");
            }
            if !is_library(file) {
                return Some(text);
            }
            fallback.get_or_insert(text);
        }
    }
    fallback
}

/// Headers with annotations, whose functions stand for their callers.
const HEADERS: [&str; 2] = ["powerfail.h", "xfdetector_interface.h"];

/// Headers and sources of the system, of glibc and of the standard library of Rust, and those with annotations.
fn is_library(file: &Path) -> bool {
    let text = file.to_string_lossy();
    file.starts_with("/usr")
        || HEADERS.iter().any(|it| file.ends_with(it))
        || ["/rustc/", "/lib/rustlib/", "/sysdeps/"]
            .iter()
            .any(|part| text.contains(part))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::is_library;

    #[test]
    fn the_standard_library_is_not_the_program() {
        for file in [
            "/usr/include/x86_64-linux-gnu/bits/string_fortified.h",
            "/rustc/0c27f869/library/core/src/ptr/mod.rs",
            "/home/me/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/ptr/mod.rs",
            "./io/../sysdeps/unix/sysv/linux/open64.c",
            "/home/me/store/include/powerfail.h",
        ] {
            assert!(is_library(Path::new(file)), "{file}");
        }
        assert!(!is_library(Path::new("/home/me/store/src/ptr/mod.rs")));
    }
}
