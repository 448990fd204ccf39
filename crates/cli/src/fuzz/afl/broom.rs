//! Removes what we leave if we are killed: that is how afl-fuzz ends its targets.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

/// A process that waits for our end and then removes a directory. It reads from a pipe that only we can write to,
/// so it notices however we end. The second time is for files of processes that were ending themselves.
const SCRIPT: &str = r#"cat; rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }"#;

/// See the module header.
pub(super) struct Broom {
    child: Child,
}

impl Broom {
    pub(super) fn for_directory(directory: &Path) -> anyhow::Result<Self> {
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run /bin/sh")?;
        Ok(Self { child })
    }
}

impl Drop for Broom {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
