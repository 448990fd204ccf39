//! A workload in a guest, as a trace.
//!
//! The plugin writes what the guest does to its persistent memory; here that becomes the same trace that the recorder of programs
//! writes: one pool, the kernel and its modules, call stacks, operations between marks. Replaying it must give the memory that the
//! guest left.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powerfail_files::Directory;
use powerfail_model::{
    Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};
use powerfail_protocol::EventKind;
use powerfail_protocol::log::{Frame, Frames, words};
use powerfail_trace::{
    Annotation, Body, DOMAIN_NOTE, DeclaredContent, FinalImage, Frame as CodeFrame, ImageHasher,
    Mark, MarkKind, Meta, Module, POOL_NOTE, Pool, PoolKind, StackId, Thread, Trace, TraceError,
    TraceWriter, WriterOptions, replay,
};

use crate::archive::Archive;
use crate::code_map::CodeMap;
use crate::debug_info::{DebugFile, LinkedFile};
use crate::elf::{self, Section};
use crate::error::{Result, VmError};
use crate::file_system::Promise;
use crate::guest::{Guest, PluginNotes, PluginUse};
use crate::kallsyms::{self, KERNEL, KernelSymbol};
use crate::machine::{Machine, run_directory, write};
use crate::operations::{Operations, lines};
use crate::pages;
use crate::reference::{Reference, open, succeeded};
use crate::workload::Workload;

/// The marks of the guest: the number of a line of the workload is stored here when it begins, behind it when it ends, and behind
/// that the number of a system call that has returned.
const BEGIN_AT: u64 = 0;
const END_AT: u64 = 8;
const CALL_AT: u64 = 16;

/// What is recorded, and where to.
#[derive(Debug)]
pub struct Recording<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The workload.
    pub workload: &'a Workload,
    /// The files that the guest gets.
    pub files: &'a Archive,
    /// What the workload should leave.
    pub reference: &'a Reference,
    /// When operations are durable.
    pub promise: Promise,
    /// What persistent memory has before the workload.
    pub image: &'a File,
    /// The library of QEMU that records.
    pub plugin: &'a [u8],
    /// How long the workload may take.
    pub limit: Duration,
    /// The trace.
    pub trace: &'a Path,
    /// The path of the pool in the trace, and thus in recoveries.
    pub pool: &'a Path,
    /// The directory for files with the names of the kernel's functions.
    pub symbols: &'a Path,
    /// Files with debug information of the kernel or of modules.
    pub debug_files: &'a [PathBuf],
}

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// How many stores to persistent memory it has.
    pub stores: u64,
    /// How many flushes.
    pub flushes: u64,
    /// How many fences.
    pub fences: u64,
    /// Flushes whose address is not known: their lines count as not flushed.
    pub unknown_flushes: u64,
    /// Where the functions of the kernel are.
    pub code: CodeMap,
    /// How many operations the workload has: system calls that change something, and lines that make none.
    pub operations: usize,
    /// Lines of the workload that are compared as a whole although they make system calls that change something, and why.
    pub whole_lines: Vec<(usize, &'static str)>,
}

/// Records a workload.
pub fn record(recording: &Recording<'_>) -> Result<Recorded> {
    let run = run_directory()?;
    let plugin = run.path().join("plugin.so");
    write(&plugin, recording.plugin)?;
    let log = run.path().join("log");
    let mut guest = Guest::start(
        recording.machine,
        Some(&PluginUse {
            plugin,
            log: log.clone(),
            notes: PluginNotes::Stores,
        }),
    )?;
    let len = recording.machine.layout().pm_len;
    let pm = guest.pm_file();
    let memory = open(&pm)?;
    pages::copy(recording.image, &memory, len).map_err(VmError::file("write", &pm))?;
    guest.take_files(recording.files)?;
    let answer = guest.obey("workload record", recording.limit);
    let answer = answer.map_err(|end| end.error("the workload fails while it is recorded"))?;
    succeeded(recording.workload, &answer)?;
    let _files = guest.quit()?;
    let bytes = fs::read(&log).map_err(VmError::file("read", &log))?;
    let operations = Operations::new(&recording.reference.lines, &lines(&answer));
    let mut converter = Converter::begin(recording, operations, len)?;
    let frames = Frames::new(&bytes).ok_or_else(|| incomplete(&log))?;
    converter.convert(frames, &log)?;
    let recorded = converter.finish(&memory)?;
    check(recording.trace)?;
    Ok(recorded)
}

fn incomplete(log: &Path) -> VmError {
    VmError::Malformed {
        path: log.to_path_buf(),
        problem: "the log of the QEMU plugin is incomplete".to_owned(),
    }
}

/// Replays the trace; it must give what the guest left.
fn check(path: &Path) -> Result<()> {
    let trace = Trace::open(path)?;
    for pool in replay::replay(&trace)? {
        if pool.matches() != Some(true) {
            return Err(VmError::SelfCheck(
                "the recorded stores do not give the memory that the guest left; please report it"
                    .to_owned(),
            ));
        }
    }
    Ok(())
}

struct Converter<'a> {
    recording: &'a Recording<'a>,
    writer: TraceWriter<File>,
    pool: PoolIndex,
    thread: ThreadIndex,
    len: u64,
    stacks: BTreeMap<u64, StackId>,
    operations: Operations,
    /// The operations of the line that runs which have not ended.
    left: Range<usize>,
    recorded: Recorded,
}

impl<'a> Converter<'a> {
    fn begin(recording: &'a Recording<'a>, operations: Operations, len: u64) -> Result<Self> {
        let meta = Meta {
            powerfail_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: vec!["guest".into()],
            working_directory: PathBuf::from("/"),
            started_unix_ms: 0,
            notes: vec![
                (POOL_NOTE.to_owned(), recording.pool.display().to_string()),
                (DOMAIN_NOTE.to_owned(), "adr".to_owned()),
                ("recorder".to_owned(), "QEMU plugin".to_owned()),
            ],
        };
        let mut writer = TraceWriter::create(recording.trace, &meta, WriterOptions::default())?;
        let pool = writer.define_pool(&Pool {
            path: recording.pool.to_path_buf(),
            kind: PoolKind::File,
            len_bytes: len,
            address: crate::layout::MemoryLayout::pm_address(),
        })?;
        let thread = writer.define_thread(&Thread {
            os_id: 0,
            name: Some(b"processor 0".to_vec()),
        })?;
        pages::pieces(recording.image, len, |at, bytes| {
            writer.initial_image(pool, PoolOffset(at), bytes)
        })?;
        let mut converter = Self {
            recording,
            writer,
            pool,
            thread,
            len,
            stacks: BTreeMap::new(),
            recorded: Recorded {
                // Besides the mount and the unmount.
                operations: operations.all.len().saturating_sub(2),
                whole_lines: operations.whole_lines.clone(),
                ..Recorded::default()
            },
            left: operations.of_line(0),
            operations,
        };
        converter.define_modules()?;
        Ok(converter)
    }

    /// Makes a module of the kernel and of each of its modules, with a file that has the names of its functions, and lines if
    /// there is debug information.
    fn define_modules(&mut self) -> Result<()> {
        let directory = self.recording.symbols;
        Directory::create(directory).map_err(VmError::file("create", directory))?;
        let files = self.recording.debug_files.iter();
        let files: Result<BTreeMap<String, DebugFile>> =
            files.map(|path| DebugFile::read(path)).collect();
        let files = files?;
        for (name, symbols) in kallsyms::parse(&self.recording.reference.symbols) {
            let debug = files.get(&name);
            let is_other = || {
                let sentence = format!(
                    "the debug information of {name} is not that of the {} in the guest",
                    if name == KERNEL { "kernel" } else { "module" }
                );
                VmError::Guest(sentence)
            };
            if let Some(linked) = debug.and_then(DebugFile::linked) {
                if !debug.is_some_and(|it| it.fits(&symbols)) {
                    return Err(is_other());
                }
                self.define_module(linked, &symbols)?;
                continue;
            }
            let loads = debug.map_or_else(Vec::new, |debug| debug.loads(&symbols));
            if debug.is_some() && loads.is_empty() {
                return Err(is_other());
            }
            if loads.is_empty() {
                self.write_module(&directory.join(&name), &symbols, &[])?;
            }
            for (number, load) in loads.iter().enumerate() {
                let name = match number {
                    0 => name.clone(),
                    number => format!("{name}-{}", number + 1),
                };
                self.write_module(&directory.join(name), &load.symbols, &load.sections)?;
            }
        }
        self.recorded.code.sort();
        Ok(())
    }

    fn write_module(
        &mut self,
        path: &Path,
        symbols: &[KernelSymbol],
        debug: &[Section],
    ) -> Result<()> {
        let Some((begin, _)) = elf::range(symbols) else {
            return Ok(());
        };
        write(path, &elf::write(symbols, debug))?;
        let path = fs::canonicalize(path).map_err(VmError::file("open", path))?;
        let written = LinkedFile {
            path: &path,
            begin,
            build_id: Vec::new(),
        };
        self.define_module(written, symbols)
    }

    /// Makes a module of a file.
    fn define_module(&mut self, file: LinkedFile<'_>, symbols: &[KernelSymbol]) -> Result<()> {
        let Some((first, len)) = elf::range(symbols) else {
            return Ok(());
        };
        let begin = file.begin;
        let index = self.writer.define_module(&Module {
            path: file.path.to_path_buf(),
            build_id: file.build_id,
            load_address: begin,
            len_bytes: first + len - begin.min(first),
            function: None,
        })?;
        let addresses = symbols.iter().map(|symbol| symbol.address);
        self.recorded.code.add(begin, index, addresses);
        Ok(())
    }

    fn convert(&mut self, mut frames: Frames<'_>, log: &Path) -> Result<()> {
        for frame in frames.by_ref() {
            match frame {
                Frame::Stack { number, addresses } => {
                    let code: Vec<CodeFrame> = words(addresses)
                        .map(|address| self.recorded.code.place(address))
                        .collect();
                    let stack = self.writer.intern_stack(&code)?;
                    self.stacks.insert(number, stack);
                }
                Frame::Event { record, .. } => {
                    let stack = self.stacks.get(&u64::from(record.header.site.0));
                    let stack = stack.copied().unwrap_or(StackId::NONE);
                    self.event(stack, &record)?;
                }
                Frame::UnknownFlush { .. } => self.recorded.unknown_flushes += 1,
                Frame::Load { .. } => {}
            }
        }
        if frames.left() > 0 {
            return Err(incomplete(log));
        }
        Ok(())
    }

    fn event(&mut self, stack: StackId, record: &powerfail_protocol::Record<'_>) -> Result<()> {
        let at = record.address.unwrap_or_default();
        if record.address.is_some() && at >= self.len {
            return self.mark(at - self.len, record);
        }
        let place = Place::new(self.pool, PoolOffset(at));
        let store = |kind| {
            Body::Pm(Event::Store {
                kind,
                at: place,
                bytes: record.value(),
            })
        };
        let flush = |kind| Body::Pm(Event::Flush { kind, at: place });
        let fence = |kind| Body::Pm(Event::Fence(kind));
        let body = match record.header.kind {
            EventKind::StorePlain => store(StoreKind::Plain),
            EventKind::StoreNonTemporal => store(StoreKind::NonTemporal),
            EventKind::StoreLocked => store(StoreKind::Locked),
            EventKind::StoreSystem => store(StoreKind::System),
            EventKind::Clflush => flush(FlushKind::Clflush),
            EventKind::Clflushopt => flush(FlushKind::Clflushopt),
            EventKind::Clwb => flush(FlushKind::Clwb),
            EventKind::Sfence => fence(FenceKind::Sfence),
            EventKind::Mfence => fence(FenceKind::Mfence),
            EventKind::FenceLocked => fence(FenceKind::Locked),
            _ => return Ok(()),
        };
        match body {
            Body::Pm(Event::Store { .. }) => self.recorded.stores += 1,
            Body::Pm(Event::Flush { .. }) => self.recorded.flushes += 1,
            _ => self.recorded.fences += 1,
        }
        self.writer.append(self.thread, stack, body)?;
        Ok(())
    }

    /// A store to the page of marks.
    fn mark(&mut self, at: u64, record: &powerfail_protocol::Record<'_>) -> Result<()> {
        let mut value = [0; 8];
        let bytes = record.value();
        if bytes.len() != value.len() {
            return Ok(());
        }
        value.copy_from_slice(bytes);
        let number = u64::from_le_bytes(value);
        match at {
            BEGIN_AT => {
                self.left = self.operations.of_line(number as usize);
                self.operation_begins()
            }
            CALL_AT => {
                let left = self.operations.all.get(self.left.clone());
                // A line that is one operation ends with the line.
                if left
                    .and_then(|left| left.first())
                    .is_some_and(|it| it.call.is_some())
                {
                    self.operation_ends()?;
                    self.operation_begins()?;
                }
                Ok(())
            }
            END_AT => self.operation_ends(),
            _ => Ok(()),
        }
    }

    fn operation_begins(&mut self) -> Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        let number = self.left.start;
        let name = self.operations.name(number, self.recording.workload);
        let kind = MarkKind::Annotation(Annotation::User);
        self.append_mark(kind, number as u64, name.as_bytes())?;
        self.append_mark(MarkKind::OperationBegin, number as u64, &[])
    }

    fn operation_ends(&mut self) -> Result<()> {
        let Some(number) = self.left.next() else {
            return Ok(());
        };
        let content = self.operations.all[number].tree.text();
        let durable = self.operations.durable(
            number,
            self.recording.workload,
            self.recording.machine.file_system(),
            self.recording.promise,
        );
        let payload = DeclaredContent { durable, content }.to_bytes();
        self.append_mark(MarkKind::OperationEnd, number as u64, &payload)
    }

    fn append_mark(&mut self, kind: MarkKind, value: u64, payload: &[u8]) -> Result<()> {
        let mark = Mark {
            kind,
            value,
            payload,
        };
        self.writer
            .append(self.thread, StackId::NONE, Body::Mark(mark))?;
        Ok(())
    }

    fn finish(self, memory: &File) -> Result<Recorded> {
        let mut hasher = ImageHasher::new(self.len);
        pages::pieces::<TraceError>(memory, self.len, |at, bytes| {
            hasher.update(at, bytes);
            Ok(())
        })?;
        self.writer.finish(&[FinalImage {
            pool: self.pool,
            len_bytes: self.len,
            hash: hasher.finish(),
        }])?;
        Ok(self.recorded)
    }
}
