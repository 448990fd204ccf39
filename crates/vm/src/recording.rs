//! A workload in a guest, as a trace.
//!
//! The plugin writes what the guest does to its persistent memory; here that becomes the same trace that the recorder of programs
//! writes: one pool, the kernel and its modules, call stacks, operations between marks. Replaying it must give the memory that the
//! guest left.

use std::collections::BTreeMap;
use std::fs::{self, File};
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
    Mark, MarkKind, Meta, Module, ModuleIndex, POOL_NOTE, Pool, PoolKind, StackId, Thread, Trace,
    TraceError, TraceWriter, WriterOptions, replay,
};

use crate::archive::Archive;
use crate::elf;
use crate::error::{Result, VmError};
use crate::file_system::Promise;
use crate::guest::{Guest, PluginUse};
use crate::kallsyms;
use crate::machine::{Machine, run_directory, write};
use crate::pages;
use crate::reference::{Reference, open, succeeded};
use crate::workload::Workload;

/// The marks of the guest: the number of an operation is stored here when it begins, and behind it when it ends.
const BEGIN_AT: u64 = 0;
const END_AT: u64 = 8;

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
            loads: false,
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
    let mut converter = Converter::begin(recording, len)?;
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
    /// The addresses of all functions in order, each with the begin of its module. A module that was loaded again has functions
    /// in two places, with others in between.
    functions: Vec<(u64, u64, ModuleIndex)>,
    stacks: BTreeMap<u64, StackId>,
    recorded: Recorded,
}

impl<'a> Converter<'a> {
    fn begin(recording: &'a Recording<'a>, len: u64) -> Result<Self> {
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
            functions: Vec::new(),
            stacks: BTreeMap::new(),
            recorded: Recorded::default(),
        };
        converter.define_modules()?;
        Ok(converter)
    }

    /// Makes a module of the kernel and of each of its modules, with a file that has the names of its functions.
    fn define_modules(&mut self) -> Result<()> {
        let directory = self.recording.symbols;
        Directory::create(directory).map_err(VmError::file("create", directory))?;
        for (name, symbols) in kallsyms::parse(&self.recording.reference.symbols) {
            let Some((begin, len)) = elf::range(&symbols) else {
                continue;
            };
            let path = directory.join(&name);
            write(&path, &elf::write(&symbols))?;
            let path = fs::canonicalize(&path).map_err(VmError::file("open", &path))?;
            let index = self.writer.define_module(&Module {
                path,
                build_id: Vec::new(),
                load_address: begin,
                len_bytes: len,
                function: None,
            })?;
            let addresses = symbols.iter().map(|symbol| symbol.address);
            self.functions
                .extend(addresses.map(|address| (address, begin, index)));
        }
        self.functions.sort_unstable();
        Ok(())
    }

    fn convert(&mut self, mut frames: Frames<'_>, log: &Path) -> Result<()> {
        for frame in frames.by_ref() {
            match frame {
                Frame::Stack { number, addresses } => {
                    let code: Vec<CodeFrame> = words(addresses)
                        .map(|address| self.place(address))
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

    /// The module of a code address: that of the last function that begins before it.
    fn place(&self, address: u64) -> CodeFrame {
        let next = self
            .functions
            .partition_point(|(begin, ..)| *begin <= address);
        match next.checked_sub(1).map(|last| self.functions[last]) {
            Some((function, begin, module)) if address - function < elf::FUNCTION_LEN_MAX => {
                CodeFrame::Module {
                    module,
                    offset: address - begin,
                }
            }
            _ => CodeFrame::Absolute { address },
        }
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
                let name = self.recording.workload.name(number as usize);
                let kind = MarkKind::Annotation(Annotation::User);
                self.append_mark(kind, number, name.as_bytes())?;
                self.append_mark(MarkKind::OperationBegin, number, &[])
            }
            END_AT => {
                let payload = self.declared(number as usize);
                self.append_mark(MarkKind::OperationEnd, number, &payload)
            }
            _ => Ok(()),
        }
    }

    /// What an operation leaves, as the mark at its end says.
    fn declared(&self, number: usize) -> Vec<u8> {
        let trees = &self.recording.reference.trees;
        // The unmount changes nothing.
        let Some(tree) = trees.get(number).or(trees.last()) else {
            return Vec::new();
        };
        let content = tree.text();
        let promise = self.recording.promise;
        let durable = self.recording.workload.durable(number, promise);
        DeclaredContent { durable, content }.to_bytes()
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
