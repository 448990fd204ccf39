//! Builds targets, records them, and reads the recordings.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::Value;
use tempfile::TempDir;

/// Ends a recording that hangs. Far longer than any recording takes.
const GUARD_SECONDS: &str = "120";

/// How stores are intercepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Patch,
    Trap,
}

impl Mode {
    pub(crate) const BOTH: [Self; 2] = [Self::Patch, Self::Trap];

    const fn name(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Trap => "trap",
        }
    }
}

/// By compiler command line: the path of the binary, and its number.
type Built = HashMap<String, (Arc<OnceLock<PathBuf>>, usize)>;

/// The binaries built in this run of the tests, by compiler command line.
fn built() -> &'static (TempDir, Mutex<Built>) {
    static BUILT: OnceLock<(TempDir, Mutex<Built>)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder for targets");
        (folder, Mutex::default())
    })
}

/// Builds a target, once for each set of flags.
pub(crate) fn target(source: &str, flags: &[&str]) -> PathBuf {
    target_with(source, "", flags)
}

/// The same, into a file whose name has an extension: `lib{stem}-{number}.{extension}`.
pub(crate) fn target_with(source: &str, extension: &str, flags: &[&str]) -> PathBuf {
    let (folder, built) = built();
    let key = format!("{source} {}", flags.join(" "));
    let (cell, number) = {
        let mut built = built.lock().expect("no test panics with the lock");
        let number = built.len();
        let (cell, number) = built.entry(key).or_insert_with(|| (Arc::default(), number));
        (Arc::clone(cell), *number)
    };
    cell.get_or_init(|| {
        let file = Path::new(source);
        let stem = file.file_stem().expect("a name").to_string_lossy();
        let name = match extension {
            "" => format!("{stem}-{number}"),
            _ => format!("lib{stem}-{number}.{extension}"),
        };
        let binary = folder.path().join(name);
        compile(source, flags, &binary);
        binary
    })
    .clone()
}

fn compile(source: &str, flags: &[&str], binary: &Path) {
    let path = targets().join(source);
    let extension = path.extension().expect("a language");
    let mut compiler = match extension.to_str() {
        Some("c") => Command::new("gcc"),
        Some("cpp") => Command::new("g++"),
        Some("rs") => Command::new("rustc"),
        _ => panic!("no compiler for {source}"),
    };
    if extension == "rs" {
        compiler.args(["--edition=2024", "-Dwarnings"]);
    } else {
        compiler.args(["-Wall", "-Wextra", "-Werror", "-g"]);
    }
    compiler.arg(&path).arg("-o").arg(binary).args(flags);
    let output = compiler.output().expect("the compiler is installed");
    assert!(
        output.status.success(),
        "{source} does not compile: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The directory of the sources of targets.
pub(crate) fn targets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets")
}

/// Runs a target without powerfail, for comparison.
pub(crate) fn native(program: &Path, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .arg(GUARD_SECONDS)
        .arg(program)
        .args(arguments)
        .output()
        .expect("the target runs")
}

/// A recording to be made. `{pool}` in an argument is a fresh pool.
pub(crate) struct Recorder {
    folder: TempDir,
    options: Vec<OsString>,
    command: Vec<OsString>,
    mode: Mode,
}

impl Recorder {
    pub(crate) fn new(program: impl AsRef<Path>, arguments: &[&str]) -> Self {
        let mut command = vec![program.as_ref().as_os_str().to_owned()];
        command.extend(arguments.iter().map(OsString::from));
        Self {
            folder: tempfile::tempdir().expect("a folder for the trace"),
            options: Vec::new(),
            command,
            mode: Mode::Patch,
        }
    }

    pub(crate) fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn option(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.options.push(name.into());
        self.options.push(value.into());
        self
    }

    /// Like `option`, for an option without a value.
    pub(crate) fn flag(mut self, name: &str) -> Self {
        self.options.push(name.into());
        self
    }

    /// A folder that lives as long as the recording.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Adds an argument, for arguments that name something in the folder.
    pub(crate) fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.command.push(argument.into());
        self
    }

    /// The command itself, for a test that must communicate with the target while it runs.
    pub(crate) fn to_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_powerfail"));
        self.complete(&mut command);
        command
    }

    fn complete(&self, command: &mut Command) {
        command
            // What happens to pools, and to the trees that a test names.
            .args(["record", "--tree", "none"])
            .args(["--json", "--mode", self.mode.name(), "-o"])
            .arg(self.trace())
            .args(&self.options)
            .arg("--")
            .args(&self.command);
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// Runs the target, whatever the result is.
    pub(crate) fn attempt(&self) -> Attempt {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=10", GUARD_SECONDS])
            .arg(env!("CARGO_BIN_EXE_powerfail"));
        self.complete(&mut command);
        command.output().expect("powerfail runs").into()
    }

    /// Runs the target; fails unless the recording is sound.
    pub(crate) fn run(self) -> Recording {
        let attempt = self.attempt();
        self.finish(attempt)
    }

    /// Checks that an attempt went well, and reads its trace.
    pub(crate) fn finish(self, attempt: Attempt) -> Recording {
        assert_eq!(attempt.code, 0, "record failed: {attempt:?}");
        let (output, summary) = attempt.split();
        assert_eq!(summary["self_check_failure"], Value::Null);
        assert_eq!(summary["fatal"].as_array().map(Vec::len), Some(0));
        let recording = Recording {
            mode: self.mode,
            output,
            errors: attempt.stderr,
            summary,
            folder: self.folder,
        };
        let check = recording.look(&["check", "--json"]);
        let check: Value = serde_json::from_str(&check).expect("JSON");
        assert_eq!(check["sound"], true, "{check}");
        assert_eq!(check["complete"], true, "{check}");
        recording
    }
}

/// Records a target in one mode; it must exit with zero.
pub(crate) fn record(mode: Mode, program: &Path, arguments: &[&str]) -> Recording {
    let recording = Recorder::new(program, arguments).mode(mode).run();
    recording.assert_exit(0);
    recording
}

/// The result of a run of `powerfail record`.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Attempt {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Attempt {
    /// The output of the target, followed by the summary.
    fn split(&self) -> (String, Value) {
        let at = self
            .stdout
            .match_indices("{\n")
            .map(|(at, _)| at)
            .find(|at| serde_json::from_str::<Value>(&self.stdout[*at..]).is_ok());
        let at = at.unwrap_or_else(|| panic!("no summary: {self:?}"));
        let summary = serde_json::from_str(&self.stdout[at..]).expect("just tried");
        (self.stdout[..at].to_owned(), summary)
    }
}

/// A sound recording.
pub(crate) struct Recording {
    mode: Mode,
    /// Standard output of the target.
    pub(crate) output: String,
    /// Standard error of the target.
    pub(crate) errors: String,
    pub(crate) summary: Value,
    folder: TempDir,
}

impl Recording {
    /// The file.
    pub(crate) fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// `powerfail trace` with some arguments.
    pub(crate) fn look(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_powerfail"))
            .arg("trace")
            .args(arguments)
            .arg(self.trace())
            .output()
            .expect("powerfail runs");
        let attempt = Attempt::from(output);
        assert_eq!(attempt.code, 0, "{attempt:?}");
        attempt.stdout
    }

    pub(crate) fn assert_exit(&self, code: i32) {
        assert_eq!(
            self.summary["exit_code"], code,
            "{:?}: {} {}",
            self.mode, self.summary, self.errors
        );
    }

    pub(crate) fn assert_signal(&self, signal: i32) {
        assert_eq!(self.summary["signal"], signal, "{}", self.summary);
    }

    /// The number of events of a kind.
    pub(crate) fn count(&self, kind: &str) -> u64 {
        self.summary["counts"][kind].as_u64().expect("a count")
    }

    pub(crate) fn pool_count(&self) -> usize {
        self.summary["pools"].as_array().expect("pools").len()
    }

    fn events_of(&self, filter: &[&str]) -> Vec<Event> {
        let events = self.json_events_of(filter);
        events.iter().map(Event::parse).collect()
    }

    /// Events as `trace events` prints them, with further options.
    pub(crate) fn json_events_of(&self, filter: &[&str]) -> Vec<Value> {
        let arguments = [&["events", "--json"], filter].concat();
        self.look(&arguments)
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// All events as `trace events` prints them, in order.
    pub(crate) fn json_events(&self) -> Vec<Value> {
        self.json_events_of(&[])
    }

    /// All events, in order.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.events_of(&[])
    }

    /// The effects of the target on its pools: no outputs, no starts and ends of threads.
    pub(crate) fn pool_events(&self) -> Vec<Event> {
        let mut events = self.events();
        events.retain(|event| !event.is_mark());
        events
    }

    /// The stores, in order.
    pub(crate) fn stores(&self) -> Vec<Event> {
        self.events_of(&["--kind", "stores"])
    }

    /// The last store. Unlike [`Self::stores`], reads only this one.
    pub(crate) fn last_store(&self) -> Event {
        let stores = self.look(&["events", "--json", "--no-source", "--kind", "stores"]);
        let last = stores.lines().next_back().expect("stores");
        Event::parse(&serde_json::from_str(last).expect("JSON"))
    }

    /// The outputs, in order.
    pub(crate) fn outputs(&self) -> Vec<Event> {
        self.events_of(&["--kind", "output"])
    }
}

/// One event of a trace, without its code location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) thread: u64,
    pub(crate) kind: String,
    pub(crate) pool: u64,
    /// The offset in the pool; for an output, the descriptor.
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Event {
    fn parse(value: &Value) -> Self {
        let number = |name: &str| value[name].as_u64();
        let bytes = value["bytes"].as_str().or(value["payload"].as_str());
        let bytes = bytes.map(parse_hex).unwrap_or_default();
        let len = number("len_bytes").or(number("full_len_bytes"));
        Self {
            thread: number("thread").expect("a thread"),
            kind: value["kind"].as_str().expect("a kind").to_owned(),
            pool: number("pool").unwrap_or(0),
            offset: number("offset").or(number("fd")).unwrap_or(0),
            len_bytes: len.unwrap_or(bytes.len() as u64),
            bytes,
        }
    }

    pub(crate) fn is_store(&self) -> bool {
        ["store", "ntstore", "locked-store", "system-store"].contains(&self.kind.as_str())
    }

    fn is_mark(&self) -> bool {
        ["output", "thread-start", "thread-end"].contains(&self.kind.as_str())
    }

    /// The stored value as a number.
    pub(crate) fn value(&self) -> u64 {
        let mut word = [0; 8];
        word[..self.bytes.len()].copy_from_slice(&self.bytes);
        u64::from_le_bytes(word)
    }
}

pub(crate) fn parse_hex(text: &str) -> Vec<u8> {
    powerfail_finding::from_hex(text).unwrap_or_else(|| panic!("not hexadecimal: {text}"))
}

/// Fails at the first difference between two recordings of one program.
pub(crate) fn assert_same_events(one: &Recording, other: &Recording) {
    let (left, right) = (one.pool_events(), other.pool_events());
    for (at, (left, right)) in left.iter().zip(&right).enumerate() {
        assert_eq!(
            left, right,
            "event {at}: {:?} mode and {:?} mode differ",
            one.mode, other.mode
        );
    }
    assert_eq!(left.len(), right.len());
}

/// Records in both modes, which must give the same events, and returns the patched recording.
pub(crate) fn record_both(program: &Path, arguments: &[&str]) -> Recording {
    let [patch, trap] = Mode::BOTH.map(|mode| record(mode, program, arguments));
    assert_same_events(&patch, &trap);
    patch
}
