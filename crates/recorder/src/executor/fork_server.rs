//! The executor: starts the target, lets it open images, and forks an execution for each input.
//!
//! The *root* is the process that stops before it touches its pool. A *template* is forked from it for each image, opens the
//! pool, and stops before it reads its input. An execution is forked from the template, or from the root if the template
//! has several threads. If the target cannot be forked at all, each execution is a new process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use powerfail_image::DirectoryContents;
use powerfail_protocol::fuzz::{
    ARGUMENTS_AT, ARGUMENTS_MAX, BRANCHES_AT, BRANCHES_LEN, ForkOrder, OBSERVATIONS_AT,
    OBSERVATIONS_MAX, Phase, flag,
};
use powerfail_protocol::shared::{DERANDOMISE_VARIABLE, DESOCK_VARIABLE};
use powerfail_trace::recording::TargetStatus;
use rustix::fs::MemfdFlags;

use crate::error::RecordError;
use crate::fresh_pool::{
    DIRECTORY_PLACEHOLDER, GivenDirectory, POOL_PLACEHOLDER, input_path, pool_directory, pool_path,
};
use crate::input::{INPUT_PLACEHOLDER, InputChannel, find, substitute};
use crate::inspect::inspect;

use super::directory::Directory;
use super::fold::{Dirty, Fold};
use super::session::{Launch, Session, Waited};
use super::{
    Coverage, End, ExecutorError, ExecutorOptions, Observation, Opened, Outcome, Speed, SpeedReport,
};

/// How long the target may take to start, including the inspection of its code.
const START_TIME: Duration = Duration::from_mins(1);
/// Opening an image may take this many times as long as an input: recovery runs, and instructions are new.
const OPEN_FACTOR: u32 = 10;
/// An execution with new instructions may take this many times as long.
const PATIENCE_FACTOR: u32 = 10;
/// How long a killed process may take to end.
const KILL_TIME: Duration = Duration::from_secs(20);
/// How often it is checked that the started process is alive.
const WATCH: Duration = Duration::from_millis(2);
/// The number of site and call stack ids that are used before the target is started again.
const NUMBERS_MAX: u32 = 1 << 22;

/// Executes a target. The processes of the target end with the thread that created this.
#[derive(Debug)]
pub struct Executor {
    options: ExecutorOptions,
    launch: Launch,
    /// The standard input of the target.
    stdin: File,
    /// The file that the input is written to, unless it is passed as arguments.
    input: Option<File>,
    input_len: u64,
    /// The input, if it is passed as arguments.
    words: Vec<u8>,
    session: Option<Session>,
    directory: Directory,
    /// The coverage before the target touched its pool.
    of_root: Fold,
    /// The coverage before the target read its input.
    before: Fold,
    /// The coverage of the last execution, including that before its input.
    fold: Fold,
    dirty: Dirty,
    /// Whether the whole directory must be compared to restore it.
    compare: bool,
    /// Whether that is always so: the target is given the directory, and writes to any files in it.
    names_directory: bool,
    /// Branches that were taken before the target touched its pool.
    branches_of_root: Vec<u8>,
    /// Branches that were taken before the target read its input.
    branches_before: Vec<u8>,
    branches: Vec<u8>,
    /// What executions start from.
    state: State,
    image: Option<DirectoryContents>,
    report: SpeedReport,
    /// Cleared and removed after the processes have ended.
    place: GivenDirectory,
    _made: Option<Made>,
}

/// A directory that was created here, removed on drop.
#[derive(Debug)]
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        // It stays if it is not empty.
        let _ = fs::remove_dir(&self.0);
    }
}

/// What executions start from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nothing.
    Nothing,
    /// A template.
    Template,
    /// The root: the target cannot be forked where it reads its input.
    Root,
    /// A new process for each.
    Process,
    /// The target ended before it read its input.
    Ended(Outcome),
}

impl Executor {
    /// Starts the target. `runtime` is the shared object that is preloaded.
    ///
    /// # Errors
    /// See [`ExecutorError`].
    pub fn start(options: &ExecutorOptions, runtime: &[u8]) -> Result<Self, ExecutorError> {
        let (command, arguments) = options
            .command
            .split_first()
            .ok_or(RecordError::EmptyCommand)?;
        let executable = inspect(command)?;
        let failed = |error| ExecutorError::system("create a directory for the pool", error);
        let is_new = !options.directory.exists();
        let mut place = GivenDirectory::new(&options.directory).map_err(failed)?;
        // The kernel reports paths without symbolic links.
        place.path = place.path.canonicalize().map_err(failed)?;
        fs::create_dir(pool_directory(&place.path)).map_err(failed)?;
        let (stdin, input) = input_files(options.input, &place)?;
        let identity = input
            .as_ref()
            .map(File::metadata)
            .transpose()
            .map_err(|error| ExecutorError::system("inspect the input", error))?;
        let has_file = options.input == InputChannel::File;
        let names_directory =
            { arguments.iter() }.any(|it| find(it.as_bytes(), DIRECTORY_PLACEHOLDER).is_some());
        let launch = Launch {
            executable,
            command: command.clone(),
            arguments: arguments_for(arguments, options.input, &place)?,
            runtime: runtime.to_vec(),
            variables: variables(options),
            file_limit_bytes: options.file_limit_bytes,
            chunk_count: options.chunk_count,
            stacks: options.stacks,
            records_files: names_directory,
            flags: flags(options),
            input_path: has_file.then(|| input_path(&place.path)),
            input_identity: identity.map_or((0, 0), |metadata| (metadata.dev(), metadata.ino())),
        };
        let mut executor = Self {
            options: options.clone(),
            launch,
            stdin,
            input,
            input_len: 0,
            words: Vec::new(),
            session: None,
            directory: Directory::new(pool_directory(&place.path)),
            of_root: Fold::new(),
            before: Fold::new(),
            fold: Fold::new(),
            dirty: Dirty::default(),
            compare: false,
            names_directory,
            branches_of_root: vec![0; BRANCHES_LEN],
            branches_before: vec![0; BRANCHES_LEN],
            branches: Vec::new(),
            state: State::Nothing,
            image: None,
            report: SpeedReport {
                speed: Speed::FromTemplates,
                reason: None,
                from_templates: 0,
                from_root: 0,
                new_processes: 0,
                templates: 0,
                restarts: 0,
                compared: 0,
            },
            _made: is_new.then(|| Made(place.path.clone())),
            place,
        };
        executor.start_root()?;
        Ok(executor)
    }

    /// Starts the target, up to where it touches its pool.
    fn start_root(&mut self) -> Result<(), ExecutorError> {
        self.session = None;
        self.before.clear();
        self.of_root.clear();
        let session = Session::start(&self.launch, &self.directory, &self.stdin, None)?;
        let session = self.session.insert(session);
        let waited = session.wait(
            &mut self.directory,
            &mut self.fold,
            &mut self.dirty,
            |area| area.root.phase.load(Ordering::Acquire) != Phase::Away as u32,
            Instant::now() + START_TIME,
            Some(WATCH),
        )?;
        match waited {
            Waited::Done if phase_of_root(session) == Phase::Crowded as u32 => {
                self.report.speed = Speed::NewProcesses;
                self.report.reason = Some(
                    "the target has several threads, or a pool, before it touches its pool".into(),
                );
                self.session = None;
            }
            Waited::Done => {
                self.fold.clear();
                session.drain(&mut self.fold, &mut self.dirty, false);
                session.forget_execution();
                session
                    .shared()
                    .read_area(BRANCHES_AT, &mut self.branches_of_root);
                self.keep_before();
                self.of_root.clone_from(&self.before);
            }
            Waited::Gone(status) => {
                if !session.is_greeted() {
                    return Err(RecordError::RuntimeSilent { status }.into());
                }
                if let Some(reason) = session.take_fatal() {
                    return Err(ExecutorError::Refused { reason });
                }
                self.fold.clear();
                session.drain(&mut self.fold, &mut self.dirty, false);
                let outcome = Outcome {
                    end: end_of_status(status),
                    operations: self.fold.count,
                    truncated: false,
                    elapsed: Duration::ZERO,
                    fatal: None,
                };
                self.session = None;
                self.state = State::Ended(outcome);
                self.report.speed = Speed::NewProcesses;
                self.report.reason = Some("the target touches neither pool nor input".into());
            }
            Waited::Late => {
                return Err(ExecutorError::Silent {
                    reason: "it reaches neither its pool nor its input nor its end".into(),
                });
            }
        }
        Ok(())
    }

    /// Lets the target open an image, up to where it touches its input.
    ///
    /// # Errors
    /// See [`ExecutorError`].
    pub fn open(&mut self, image: &DirectoryContents) -> Result<Opened, ExecutorError> {
        if let (State::Ended(outcome), None, None) = (&self.state, &self.session, &self.image) {
            // It never reaches its pool.
            return Ok(Opened::Ended(outcome.clone()));
        }
        self.end_template()?;
        self.put_back()?;
        self.directory
            .become_contents(image)
            .map_err(|error| ExecutorError::system("write the image", error))?;
        self.image = Some(image.clone());
        let is_worn = |session: &Session| session.shared().next_site() > NUMBERS_MAX;
        let is_single = self.report.speed == Speed::NewProcesses;
        if !is_single && self.session.as_ref().is_none_or(is_worn) {
            self.report.restarts += 1;
            self.start_root()?;
        }
        if self.report.speed == Speed::NewProcesses {
            self.state = State::Process;
            self.before.clear();
            return Ok(Opened::Ready);
        }
        self.make_template()
    }

    /// Adds the coverage so far to that before every execution.
    fn keep_before(&mut self) {
        let mut locations = std::mem::take(&mut self.before.locations);
        locations.append(&mut self.fold.locations);
        self.before.begin(&self.fold);
        self.before.locations = locations;
    }

    /// Kills the template and its children.
    fn end_template(&mut self) -> Result<(), ExecutorError> {
        let is_there = self.state == State::Template;
        self.state = State::Nothing;
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        if is_there {
            Session::kill(session.area().template.process.load(Ordering::Acquire));
            let deadline = Instant::now() + KILL_TIME;
            let waited = session.wait(
                &mut self.directory,
                &mut self.fold,
                &mut self.dirty,
                |area| area.root.phase.load(Ordering::Acquire) != Phase::Away as u32,
                deadline,
                None,
            )?;
            if waited != Waited::Done {
                self.session = None;
                return Ok(());
            }
        }
        session.forget_template();
        Ok(())
    }

    fn make_template(&mut self) -> Result<Opened, ExecutorError> {
        let Some(session) = &mut self.session else {
            return Err(ExecutorError::NothingOpen);
        };
        self.report.templates += 1;
        self.before.clone_from(&self.of_root);
        reset(session, &self.before, &mut self.fold);
        session
            .shared()
            .write_area(BRANCHES_AT, &self.branches_of_root);
        let area = session.area();
        area.template.child.store(0, Ordering::Relaxed);
        area.template
            .phase
            .store(Phase::Away as u32, Ordering::Release);
        let begun = Instant::now();
        session.order(|area| &area.root, ForkOrder::Fork);
        let deadline = begun + OPEN_FACTOR * self.options.timeout;
        let waited = session.wait(
            &mut self.directory,
            &mut self.fold,
            &mut self.dirty,
            |area| {
                area.template.phase.load(Ordering::Acquire) != Phase::Away as u32
                    || area.root.phase.load(Ordering::Acquire) != Phase::Away as u32
            },
            deadline,
            None,
        )?;
        let area = session.area();
        if waited == Waited::Done
            && area.template.phase.load(Ordering::Acquire) == Phase::Reached as u32
        {
            session.drain(&mut self.fold, &mut self.dirty, false);
            session.keep_template();
            session
                .shared()
                .read_area(BRANCHES_AT, &mut self.branches_before);
            let compare =
                session.area().disorder.load(Ordering::Acquire) != 0 || self.dirty.resized;
            self.keep_before();
            let kept = self.directory.keep(&mut self.dirty, compare);
            kept.map_err(|error| ExecutorError::system("read the image", error))?;
            self.state = State::Template;
            self.report.speed = Speed::FromTemplates;
            return Ok(Opened::Ready);
        }
        if area.template.phase.load(Ordering::Acquire) == Phase::Crowded as u32 {
            return self.do_without_template();
        }
        let is_late = waited != Waited::Done;
        if is_late {
            let process = session.area().root.child.load(Ordering::Acquire);
            Session::kill(process);
        }
        let end = self.end_of(false, is_late)?;
        let outcome = self.conclude(end, begun)?;
        self.state = State::Ended(outcome.clone());
        Ok(Opened::Ended(outcome))
    }

    /// The template has several threads: executions are forked from the root instead.
    fn do_without_template(&mut self) -> Result<Opened, ExecutorError> {
        self.state = State::Template;
        self.end_template()?;
        if let Some(session) = &mut self.session {
            session.drain(&mut self.fold, &mut self.dirty, false);
        }
        self.compare = true;
        self.put_back()?;
        self.before.clone_from(&self.of_root);
        self.branches_before.clone_from(&self.branches_of_root);
        self.state = State::Root;
        self.report.speed = Speed::FromRoot;
        self.report.reason =
            Some("the target has several threads when it touches its input".into());
        Ok(Opened::Ready)
    }

    /// Restores the directory after the last execution.
    fn put_back(&mut self) -> Result<(), ExecutorError> {
        self.report.compared += u64::from(self.compare);
        let same = self
            .directory
            .put_back(&mut self.dirty, self.compare)
            .map_err(|error| ExecutorError::system("restore the pool", error))?;
        self.compare = false;
        if !same && self.state == State::Template {
            // Its pool is another file now.
            self.reopen()?;
        }
        Ok(())
    }

    /// Opens the image again.
    fn reopen(&mut self) -> Result<(), ExecutorError> {
        let Some(image) = self.image.clone() else {
            return Err(ExecutorError::NothingOpen);
        };
        self.open(&image)?;
        Ok(())
    }

    /// Runs an input on the image.
    ///
    /// # Errors
    /// See [`ExecutorError`].
    pub fn run(&mut self, input: &[u8]) -> Result<Outcome, ExecutorError> {
        if let State::Ended(outcome) = &self.state {
            // The directory still contains what it left.
            return Ok(outcome.clone());
        }
        self.put_back()?;
        if self.state == State::Nothing {
            self.reopen()?;
        }
        self.write_input(input)?;
        match &self.state {
            State::Nothing => Err(ExecutorError::NothingOpen),
            State::Ended(outcome) => Ok(outcome.clone()),
            State::Template => {
                self.report.from_templates += 1;
                self.run_forked(true)
            }
            State::Root => {
                self.report.from_root += 1;
                self.run_forked(false)
            }
            State::Process => {
                self.report.new_processes += 1;
                self.run_process()
            }
        }
    }

    /// Runs an input as [`Self::run`] does, and notes what the target does with it: [`Self::observations`].
    ///
    /// # Errors
    /// See [`ExecutorError`].
    pub fn observe(&mut self, input: &[u8]) -> Result<Outcome, ExecutorError> {
        self.set_observe(true);
        let outcome = self.run(input);
        self.set_observe(false);
        outcome
    }

    fn set_observe(&mut self, is_on: bool) {
        let change = |flags: u32| {
            if is_on {
                flags | flag::OBSERVE
            } else {
                flags & !flag::OBSERVE
            }
        };
        self.launch.flags = change(self.launch.flags);
        if let Some(session) = &self.session {
            let flags = &session.area().flags;
            flags.store(change(flags.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    fn write_input(&mut self, input: &[u8]) -> Result<(), ExecutorError> {
        let failed = |error: io::Error| ExecutorError::system("write the input", error);
        let Some(file) = &mut self.input else {
            let input = &input[..input.len().min(ARGUMENTS_MAX)];
            self.words = input.to_vec();
            if let Some(session) = &self.session {
                session.shared().write_area(ARGUMENTS_AT, input);
                let len = &session.area().arguments_len;
                len.store(input.len() as u32, Ordering::Release);
            }
            return Ok(());
        };
        if self.options.input == InputChannel::File {
            // The target may have removed or replaced it.
            let path = input_path(&self.place.path);
            let is_same = fs::metadata(&path).is_ok_and(|metadata| {
                (metadata.dev(), metadata.ino()) == self.launch.input_identity
                    && metadata.len() == self.input_len
            });
            if !is_same {
                let _ = fs::remove_file(&path);
                *file = File::create(&path).map_err(failed)?;
                self.input_len = 0;
            }
        }
        if self.input_len != input.len() as u64 {
            file.set_len(input.len() as u64).map_err(failed)?;
            self.input_len = input.len() as u64;
        }
        file.write_all_at(input, 0).map_err(failed)?;
        rustix::fs::seek(&self.stdin, rustix::fs::SeekFrom::Start(0))
            .map_err(|error| failed(error.into()))?;
        Ok(())
    }

    /// Lets the template or the root fork an execution. Repeats an execution that timed out because instructions were new to
    /// the runtime.
    fn run_forked(&mut self, from_template: bool) -> Result<Outcome, ExecutorError> {
        let before = self.note_count();
        let outcome = self.fork(from_template, self.options.timeout)?;
        let is_late = outcome.end == End::Timeout && self.note_count() != before;
        if !is_late || self.state == State::Nothing {
            return Ok(outcome);
        }
        self.put_back()?;
        let seek = rustix::fs::seek(&self.stdin, rustix::fs::SeekFrom::Start(0));
        seek.map_err(|error| ExecutorError::system("write the input", error))?;
        self.fork(from_template, self.options.timeout * PATIENCE_FACTOR)
    }

    fn note_count(&self) -> u32 {
        let count = |session: &Session| session.area().note_count.load(Ordering::Acquire);
        self.session.as_ref().map_or(0, count)
    }

    /// Lets the template or the root fork.
    fn fork(&mut self, from_template: bool, timeout: Duration) -> Result<Outcome, ExecutorError> {
        let Some(session) = &mut self.session else {
            return Err(ExecutorError::NothingOpen);
        };
        reset(session, &self.before, &mut self.fold);
        if session.area().guards.load(Ordering::Relaxed) != 0 {
            session
                .shared()
                .write_area(BRANCHES_AT, &self.branches_before);
        }
        let begun = Instant::now();
        let ended = Phase::Away as u32;
        if from_template {
            session.order(|area| &area.template, ForkOrder::Fork);
        } else {
            session.order(|area| &area.root, ForkOrder::ForkThrough);
        }
        let waited = session.wait(
            &mut self.directory,
            &mut self.fold,
            &mut self.dirty,
            |area| {
                from_template && area.template.phase.load(Ordering::Acquire) != ended
                    || area.root.phase.load(Ordering::Acquire) != ended
            },
            begun + timeout,
            None,
        )?;
        let is_late = waited != Waited::Done;
        if is_late {
            let area = session.area();
            let server = if from_template {
                &area.template
            } else {
                &area.root
            };
            Session::kill(server.child.load(Ordering::Acquire));
        }
        let end = self.end_of(from_template, is_late)?;
        self.conclude(end, begun)
    }

    /// How the forked process has ended.
    fn end_of(&mut self, from_template: bool, is_late: bool) -> Result<End, ExecutorError> {
        let Some(session) = &mut self.session else {
            return Err(ExecutorError::NothingOpen);
        };
        let away = Phase::Away as u32;
        let waited = session.wait(
            &mut self.directory,
            &mut self.fold,
            &mut self.dirty,
            |area| {
                from_template && area.template.phase.load(Ordering::Acquire) != away
                    || area.root.phase.load(Ordering::Acquire) != away
            },
            Instant::now() + KILL_TIME,
            None,
        )?;
        let silent = |reason: &str| ExecutorError::Silent {
            reason: reason.into(),
        };
        if waited != Waited::Done {
            self.session = None;
            self.state = State::Nothing;
            return Err(silent("a process that was killed does not end"));
        }
        let area = session.area();
        let is_of_root = !from_template || area.root.phase.load(Ordering::Acquire) != away;
        let server = if is_of_root {
            &area.root
        } else {
            &area.template
        };
        if from_template && is_of_root {
            // The template has ended, and the execution with it.
            self.state = State::Nothing;
            self.compare = true;
        }
        if server.phase.load(Ordering::Acquire) == Phase::Failed as u32 {
            return Err(silent("the target cannot fork"));
        }
        if is_late {
            return Ok(End::Timeout);
        }
        Ok(end_of_word(server.status.load(Ordering::Acquire)))
    }

    /// Executes the target as a new process.
    fn run_process(&mut self) -> Result<Outcome, ExecutorError> {
        self.session = None;
        self.before.clear();
        self.fold.clear();
        let begun = Instant::now();
        let session = Session::start(
            &self.launch,
            &self.directory,
            &self.stdin,
            Some(&self.words),
        )?;
        let session = self.session.insert(session);
        let waited = session.wait(
            &mut self.directory,
            &mut self.fold,
            &mut self.dirty,
            |_| false,
            // This includes the start of the process.
            begun + START_TIME.min(self.options.timeout * OPEN_FACTOR + Duration::from_secs(2)),
            Some(WATCH),
        )?;
        let end = match waited {
            Waited::Gone(status) => end_of_status(status),
            Waited::Done | Waited::Late => {
                session.kill_target();
                session.wait(
                    &mut self.directory,
                    &mut self.fold,
                    &mut self.dirty,
                    |_| false,
                    Instant::now() + KILL_TIME,
                    Some(WATCH),
                )?;
                End::Timeout
            }
        };
        session.kill_target();
        self.conclude(end, begun)
    }

    /// Collects the results of an execution.
    fn conclude(&mut self, end: End, begun: Instant) -> Result<Outcome, ExecutorError> {
        let elapsed = begun.elapsed();
        let Some(session) = &mut self.session else {
            return Err(ExecutorError::NothingOpen);
        };
        session.drain(&mut self.fold, &mut self.dirty, false);
        session.forget_execution();
        let area = session.area();
        self.branches.clear();
        if area.guards.load(Ordering::Relaxed) != 0 {
            self.branches.resize(BRANCHES_LEN, 0);
            session.shared().read_area(BRANCHES_AT, &mut self.branches);
        }
        let is_disordered = area.disorder.load(Ordering::Acquire) != 0
            || self.dirty.resized
            || matches!(end, End::Timeout | End::Signal(9));
        let fatal = session.take_fatal();
        self.compare |= is_disordered
            || self.names_directory
            || self
                .directory
                .is_disordered()
                .map_err(|error| ExecutorError::system("inspect the pool", error))?;
        Ok(Outcome {
            end,
            operations: self.fold.count,
            truncated: self.fold.is_cut(),
            elapsed,
            fatal,
        })
    }

    /// The coverage of the last execution, including that before its input.
    pub fn coverage(&self) -> Coverage<'_> {
        Coverage {
            pm: &self.fold.map,
            branches: &self.branches,
        }
    }

    /// The contents of the directory after the last execution.
    ///
    /// # Errors
    /// See [`ExecutorError`].
    pub fn contents(&mut self) -> Result<DirectoryContents, ExecutorError> {
        self.directory
            .contents(&self.dirty, self.compare)
            .map_err(|error| ExecutorError::system("read the pool", error))
    }

    /// The contents before an execution: the image, with the changes of the target before it reads its input.
    pub const fn base(&self) -> &DirectoryContents {
        self.directory.base()
    }

    /// What the target did with its input in the last execution, if that was [observed](Self::observe): in order and
    /// without duplicates.
    pub fn observations(&self) -> Vec<Observation> {
        let Some(session) = &self.session else {
            return Vec::new();
        };
        let count = session.area().observations.load(Ordering::Acquire) as usize;
        let mut bytes = vec![0; count.min(OBSERVATIONS_MAX) * Observation::LEN];
        session.shared().read_area(OBSERVATIONS_AT, &mut bytes);
        Observation::read_all(&bytes)
    }

    /// The locations of the last execution, in their order.
    pub fn operations(&self) -> impl Iterator<Item = u32> + use<'_> {
        let before = self.before.locations.iter();
        before.chain(&self.fold.locations).copied()
    }

    /// How executions are started, and why not in a faster way.
    pub fn speed_report(&self) -> SpeedReport {
        self.report.clone()
    }
}

/// Prepares for the next fork.
fn reset(session: &mut Session, before: &Fold, fold: &mut Fold) {
    fold.begin(before);
    // An execution that was killed may have had it.
    session.shared().reset_file_lock();
    let area = session.area();
    area.disorder.store(0, Ordering::Relaxed);
    area.observations.store(0, Ordering::Relaxed);
}

fn phase_of_root(session: &Session) -> u32 {
    session.area().root.phase.load(Ordering::Acquire)
}

fn end_of_status(status: TargetStatus) -> End {
    match status {
        TargetStatus::Exited(code) => End::Exit(code),
        TargetStatus::Killed(signal) => End::Signal(signal),
    }
}

/// Decodes a status of `waitpid`.
fn end_of_word(status: u32) -> End {
    let status = status.cast_signed();
    if libc::WIFSIGNALED(status) {
        End::Signal(libc::WTERMSIG(status))
    } else {
        End::Exit(libc::WEXITSTATUS(status))
    }
}

/// Standard input, and the file that the input is written to.
fn input_files(
    way: InputChannel,
    place: &GivenDirectory,
) -> Result<(File, Option<File>), ExecutorError> {
    let failed = |error: io::Error| ExecutorError::system("create the input", error);
    let nothing = || File::open("/dev/null").map_err(failed);
    match way {
        InputChannel::Stdin => {
            let file = rustix::fs::memfd_create("powerfail-input", MemfdFlags::CLOEXEC)
                .map_err(|error| failed(error.into()))?;
            let file = File::from(file);
            let number = std::os::fd::AsRawFd::as_raw_fd(&file);
            // Opened again, for reading only.
            let stdin = File::open(format!("/proc/self/fd/{number}")).map_err(failed)?;
            Ok((stdin, Some(file)))
        }
        InputChannel::File => {
            let file = File::create(input_path(&place.path)).map_err(failed)?;
            Ok((nothing()?, Some(file)))
        }
        InputChannel::Arguments => Ok((nothing()?, None)),
    }
}

/// The arguments of the target, with paths instead of placeholders.
fn arguments_for(
    arguments: &[OsString],
    way: InputChannel,
    place: &GivenDirectory,
) -> Result<Vec<OsString>, ExecutorError> {
    let has_input = |argument: &OsString| match way {
        InputChannel::Arguments => argument.as_bytes() == INPUT_PLACEHOLDER,
        _ => find(argument.as_bytes(), INPUT_PLACEHOLDER).is_some(),
    };
    if way != InputChannel::Stdin && !arguments.iter().any(has_input) {
        return Err(ExecutorError::NoInput);
    }
    let (pool, input) = (pool_path(&place.path), input_path(&place.path));
    let directory = pool_directory(&place.path);
    let replace = |argument: &OsString| {
        let argument = substitute(argument, POOL_PLACEHOLDER, pool.as_os_str());
        let argument = substitute(&argument, DIRECTORY_PLACEHOLDER, directory.as_os_str());
        if way == InputChannel::File {
            substitute(&argument, INPUT_PLACEHOLDER, input.as_os_str())
        } else {
            argument
        }
    };
    Ok(arguments.iter().map(replace).collect())
}

fn variables(options: &ExecutorOptions) -> Vec<(OsString, OsString)> {
    let switch = |on: bool, name: &str| on.then(|| (name.into(), "1".into()));
    let switches = [
        switch(options.derandomise, DERANDOMISE_VARIABLE),
        switch(options.desock, DESOCK_VARIABLE),
    ];
    let mut variables = options.variables.clone();
    variables.extend(switches.into_iter().flatten());
    variables
}

fn flags(options: &ExecutorOptions) -> u32 {
    let way = match options.input {
        InputChannel::Stdin => flag::STDIN,
        InputChannel::File => flag::FILE,
        InputChannel::Arguments => flag::ARGUMENTS,
    };
    let switch = |on: bool, bit| if on { bit } else { 0 };
    way | switch(options.derandomise, flag::DERANDOMISE) | switch(options.desock, flag::DESOCK)
}
