//! The monitor of QEMU: one JSON object a line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{Result, VmError};

/// How long QEMU may take to answer. It answers at once, but the computer may be busy.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);

/// A connection to the monitor.
pub(crate) struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Waits for the greeting.
    pub(crate) fn greet(stream: UnixStream) -> Result<Self> {
        let limit = stream.set_read_timeout(Some(ANSWER_LIMIT));
        limit.map_err(|error| VmError::Qemu(error.to_string()))?;
        let mut qmp = Self {
            stream: BufReader::new(stream),
        };
        qmp.line()?;
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Gives a command and waits for its result.
    pub(crate) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let text = json!({ "execute": command, "arguments": arguments });
        // In one piece: QEMU obeys when the object is complete, and may have ended before a later piece is written.
        let sent = self
            .stream
            .get_mut()
            .write_all(format!("{text}\n").as_bytes());
        sent.map_err(|error| VmError::Qemu(error.to_string()))?;
        loop {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(VmError::Qemu(format!("{command}: {error}")));
            }
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            // Anything else is an event.
        }
    }

    /// Waits until the state of the machine is saved or loaded.
    pub(crate) fn wait_for_migration(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < ANSWER_LIMIT {
            let state = self.execute("query-migrate", &json!({}))?;
            match state.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed") => return Err(VmError::Qemu(format!("migration failed: {state}"))),
                // There is no event for the side that loads before the machine runs.
                _ => thread::sleep(Duration::from_millis(2)),
            }
        }
        Err(VmError::Qemu("migration does not end".to_owned()))
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        match read {
            Ok(0) => Err(VmError::Qemu("it has ended".to_owned())),
            Ok(_) => serde_json::from_str(&line).map_err(|error| VmError::Qemu(error.to_string())),
            Err(error) => Err(VmError::Qemu(error.to_string())),
        }
    }
}
