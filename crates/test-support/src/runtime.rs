//! The runtime library and the plugin of QEMU, built once for the workspace with the settings that ship.
//!
//! Cargo does not build it for tests by itself, because nothing can be linked with it.

use std::path::Path;
use std::sync::OnceLock;

use powerfail_runtime_build::Libraries;

/// The path of the library, for `LD_PRELOAD`.
pub fn path() -> &'static Path {
    &libraries().runtime
}

/// The plugin of QEMU, as the recorder expects it.
pub fn plugin() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| std::fs::read(&libraries().plugin).expect("the plugin can be read"))
}

fn libraries() -> &'static Libraries {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
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
