//! Removes the directory of the pool when this process is killed, which is how afl-fuzz ends its targets.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::AflError;

/// Waits for the end of this process, and then removes a directory. It reads from a pipe whose only writer is this
/// process, so it notices the end in any case. The second attempt is for files that ending processes still wrote.
const SCRIPT: &str = r#"cat; rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }"#;

/// The process that cleans up.
pub(super) struct Cleanup {
    child: Child,
}

impl Cleanup {
    pub(super) fn of_directory(directory: &Path) -> Result<Self, AflError> {
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| AflError::System {
                what: "run /bin/sh",
                source,
            })?;
        Ok(Self { child })
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
