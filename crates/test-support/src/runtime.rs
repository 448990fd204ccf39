//! The runtime library, built once for the workspace with the settings that ship.
//!
//! Cargo does not build it for tests by itself, because nothing can be linked with it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The path of the library, for `LD_PRELOAD`.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let own = std::env::current_exe().expect("the path of this test");
        // Test binaries and benchmarks are TARGET/PROFILE/deps/NAME.
        let target_directory = own.ancestors().nth(3).expect("a target directory");
        powerfail_runtime_build::build(target_directory)
    })
}

/// The library itself, as the recorder and the oracle expect it.
pub fn bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| std::fs::read(path()).expect("the runtime can be read"))
}
