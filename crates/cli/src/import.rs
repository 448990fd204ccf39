//! `powerfail trace import`: a litmus trace or the log of another tool as a trace file, so that everything that works on
//! recordings works on it. `powerfail trace export` is the way back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;
use powerfail_litmus::{LitmusFile, TraceFile};
use powerfail_model::{
    Event, Image, Place, PoolIndex, PoolOffset, Rules, SparseImage, ThreadIndex,
};
use powerfail_report::perfetto::perfetto;
use powerfail_report::plural;
use powerfail_report::trace::Places;
use powerfail_trace::{
    Annotation, Body, FinalImage, ImageHasher, Mark, MarkKind, Meta, PAGE_BYTES, Pool, PoolKind,
    StackId, Thread, TraceWriter, WriterOptions, pmemcheck,
};

use crate::args::{TraceExportArgs, TraceImportArgs};
use crate::exit::{Exit, complain};
use crate::output::print;
use crate::progress::open_trace;

const POOL: PoolIndex = PoolIndex(0);

pub(crate) fn import(args: &TraceImportArgs) -> anyhow::Result<Exit> {
    let context = || args.file.display().to_string();
    let bytes = fs::read(&args.file).with_context(context)?;
    if pmemcheck::is_log(&bytes) {
        let log = pmemcheck::Log::parse(&bytes).with_context(context)?;
        let mut initial = Vec::new();
        if let Some(path) = &args.initial {
            anyhow::ensure!(
                log.file_count() == 1,
                "--initial is for a log of one file; this one has {}",
                log.file_count()
            );
            initial = fs::read(path).with_context(|| path.display().to_string())?;
        }
        let mut events = 0;
        replace(&args.output, &args.file, |out| {
            events = pmemcheck::import(&log, &initial, out)?;
            Ok(())
        })
        .with_context(|| args.output.display().to_string())?;
        return done(&args.output, events);
    }
    anyhow::ensure!(
        args.initial.is_none(),
        "--initial is for logs of pmemcheck, and {} is none",
        context()
    );
    let LitmusFile::Trace(file) = LitmusFile::parse_bytes(&bytes).with_context(context)? else {
        anyhow::bail!(
            "{}: this litmus file is not a trace; import takes litmus traces",
            context()
        );
    };
    replace(&args.output, &args.file, |out| {
        write(&file, &args.file, out)
    })
    .with_context(|| args.output.display().to_string())?;
    done(&args.output, file.event_count())
}

fn done(output: &Path, events: u64) -> anyhow::Result<Exit> {
    let events = plural(events, "event");
    print(|out| Ok(writeln!(out, "{}: {events}", output.display())?))?;
    Ok(Exit::Clean)
}

pub(crate) fn export(args: &TraceExportArgs) -> anyhow::Result<Exit> {
    let trace = open_trace(&args.file)?;
    if args.perfetto {
        let rules = Rules {
            domain: powerfail_check::domain_of(&trace)?,
            ..Rules::default()
        };
        replace(&args.output, &args.file, |out| {
            let mut buffered = io::BufWriter::with_capacity(1 << 16, out);
            perfetto(
                &mut buffered,
                &trace,
                rules,
                &mut Places::new(&trace, true, false),
            )?;
            Ok(buffered.flush()?)
        })
        .with_context(|| args.output.display().to_string())?;
        return done(&args.output, trace.event_count());
    }
    let mut left_out = 0;
    replace(&args.output, &args.file, |out| {
        let mut buffered = io::BufWriter::new(out);
        left_out = pmemcheck::export(&trace, &mut buffered)?;
        Ok(buffered.flush()?)
    })
    .with_context(|| args.output.display().to_string())?;
    if left_out > 0 {
        complain(&format!(
            "{} of the length of a pool cannot be expressed in such a log, and {} missing",
            plural(left_out, "change"),
            if left_out == 1 { "is" } else { "are" }
        ));
    }
    done(&args.output, trace.event_count())
}

/// Writes a file beside `output` and gives it that name when it is complete, so that a failure
/// leaves what was there. Refuses to replace `input`, and what is not a regular file. A link is not followed.
fn replace(
    output: &Path,
    input: &Path,
    write: impl FnOnce(&mut fs::File) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match fs::symlink_metadata(output) {
        Ok(found) => {
            powerfail_files::output::refuse_link(output)?;
            let input = fs::metadata(input)?;
            anyhow::ensure!(
                (found.dev(), found.ino()) != (input.dev(), input.ino()),
                "this is the input itself; --output must name another file"
            );
            anyhow::ensure!(found.is_file(), "not a regular file");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".powerfail-")
        // As any new file: the umask decides.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        // The name of a temporary file means nothing to a user.
        .map_err(|error| io::Error::from(error.kind()))?;
    write(file.as_file_mut())?;
    file.persist(output).map_err(|error| error.error)?;
    Ok(())
}

fn write(file: &TraceFile, source: &Path, out: &mut fs::File) -> anyhow::Result<()> {
    let initial = file.initial_image();
    let initial_pages: BTreeSet<u64> = file
        .initial_places()
        .flat_map(|at| pages_of(at, 8))
        .collect();
    let mut image = file.initial_image();
    let mut pages = initial_pages.clone();
    for step in file.steps() {
        if let Event::Store { at, bytes, .. } = step.event {
            image.write(at, bytes);
            pages.extend(pages_of(at, bytes.len() as u64));
        }
    }
    let len_bytes = pages.last().map_or(1, |page| page + 1) * PAGE_BYTES as u64;
    let meta = Meta {
        powerfail_version: env!("CARGO_PKG_VERSION").to_owned(),
        notes: vec![("imported".to_owned(), file.name.clone())],
        ..Meta::default()
    };
    let mut writer = TraceWriter::new(out, &meta, WriterOptions::default())?;
    writer.define_pool(&Pool {
        path: source.to_owned(),
        kind: PoolKind::AnonymousRange,
        len_bytes,
        address: 0,
    })?;
    for (page, bytes) in content(&initial, &initial_pages) {
        writer.initial_image(POOL, PoolOffset(page * PAGE_BYTES as u64), &bytes)?;
    }
    // Threads are numbered as they appear: the file may call them what it likes.
    let mut threads: BTreeMap<ThreadIndex, ThreadIndex> = BTreeMap::new();
    for index in 0..file.event_count() {
        let number = file.thread(index).unwrap_or(ThreadIndex(0));
        let thread = match threads.get(&number) {
            Some(&thread) => thread,
            None => {
                let thread = writer.define_thread(&Thread {
                    os_id: number.0,
                    name: None,
                })?;
                threads.insert(number, thread);
                thread
            }
        };
        // Events without effect keep their place, so that positions mean the same in both.
        let body = file
            .step(index)
            .map_or(Body::Mark(NO_EFFECT), |step| Body::Pm(step.event));
        writer.append(thread, StackId::NONE, body)?;
    }
    let mut hasher = ImageHasher::new(len_bytes);
    for (page, bytes) in content(&image, &pages) {
        hasher.update(page * PAGE_BYTES as u64, &bytes);
    }
    writer.finish(&[FinalImage {
        pool: POOL,
        len_bytes,
        hash: hasher.finish(),
    }])?;
    Ok(())
}

const NO_EFFECT: Mark<'static> = Mark {
    kind: MarkKind::Annotation(Annotation::Other(0)),
    value: 0,
    payload: b"no effect",
};

fn pages_of(at: Place, len: u64) -> std::ops::RangeInclusive<u64> {
    let page = PAGE_BYTES as u64;
    at.offset.0 / page..=(at.offset.0 + len.max(1) - 1) / page
}

/// The content of each of `pages`.
fn content(
    image: &SparseImage,
    pages: &BTreeSet<u64>,
) -> impl Iterator<Item = (u64, [u8; PAGE_BYTES])> {
    pages.iter().map(|&page| {
        let mut bytes = [0; PAGE_BYTES];
        let at = Place::new(POOL, PoolOffset(page * PAGE_BYTES as u64));
        image.read(at, &mut bytes);
        (page, bytes)
    })
}
