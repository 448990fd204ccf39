//! A shell in a guest, for a user who wants to look at a crash image.
//!
//! It reads lines, as a script does: what is typed is shown by the user's terminal, and only Ctrl-C is passed on. Editors and
//! completion would need a terminal whose keys all go to the guest.

use std::fs;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Guest, Process, TOLD};
use crate::error::{Result, VmError};
use crate::machine::Machine;

/// How long a shell may take to end when the user has typed that it should.
const LEAVING_LIMIT: Duration = Duration::from_secs(5);

/// Gets the terminal of a guest before the user talks to it: what is typed there besides lines is the caller's.
pub(crate) type WithTerminal = fn(UnixStream);

impl Guest {
    /// Opens a shell on a guest whose persistent memory is a copy of an image, with the terminal of this process.
    pub fn shell(
        machine: &Machine,
        image: &fs::File,
        files: &Path,
        with_terminal: WithTerminal,
    ) -> Result<()> {
        let files = fs::read(files).map_err(VmError::file("read", files))?;
        let mut guest = machine.start()?;
        let pm = guest.pm_file();
        let memory = crate::reference::open(&pm)?;
        let copied = crate::pages::copy(image, &memory, machine.layout().pm_len);
        copied.map_err(VmError::file("write", &pm))?;
        guest.take_archive(&files)?;
        guest.process.shell(with_terminal)
    }
}

impl Process {
    /// Lets the user talk to a shell in the guest, line by line, until either ends.
    fn shell(&mut self, with_terminal: WithTerminal) -> Result<()> {
        let failed = |error: std::io::Error| VmError::Qemu(error.to_string());
        let _ = self.control.get_ref().set_read_timeout(None);
        let mut to_guest = self.control.get_ref().try_clone().map_err(failed)?;
        writeln!(to_guest, "shell").map_err(failed)?;
        with_terminal(to_guest.try_clone().map_err(failed)?);
        let is_left = Arc::new(AtomicBool::new(false));
        let leaving = Arc::clone(&is_left);
        // It ends with the process: nothing waits for it.
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
                if writeln!(to_guest, "{line}").is_err() {
                    return;
                }
            }
            let _ = writeln!(to_guest, "exit");
            // Commands of a file take as long as they take. Who types has seen that nothing comes back.
            if std::io::stdin().is_terminal() {
                std::thread::sleep(LEAVING_LIMIT);
                leaving.store(true, Ordering::Relaxed);
                let _ = to_guest.shutdown(Shutdown::Both);
            }
        });
        let mut piece = [0; 4096];
        let mut seen = Vec::new();
        loop {
            let count = self.control.read(&mut piece).map_err(failed)?;
            if count == 0 && is_left.load(Ordering::Relaxed) {
                let sentence = format!(
                    "the shell of the guest did not end within {} s; the guest was ended",
                    LEAVING_LIMIT.as_secs()
                );
                return Err(VmError::Guest(sentence));
            }
            if count == 0 {
                return Ok(());
            }
            seen.extend_from_slice(&piece[..count]);
            if let Some(at) = seen.iter().position(|byte| *byte == TOLD) {
                let _ = std::io::stdout().write_all(&seen[..at]);
                return Ok(());
            }
            let _ = std::io::stdout().write_all(&seen);
            let _ = std::io::stdout().flush();
            seen.clear();
        }
    }
}
