//! `powerfail trace import`: a litmus trace as a trace file, so that everything that works on
//! recordings works on it.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context;
use powerfail_litmus::{LitmusFile, TraceFile};
use powerfail_model::{Event, Image, Place, PoolIndex, PoolOffset, SparseImage, ThreadIndex};
use powerfail_report::plural;
use powerfail_trace::{
    Body, FinalImage, ImageHasher, Mark, MarkKind, Meta, PAGE_BYTES, Pool, PoolKind, StackId,
    Thread, TraceWriter, WriterOptions,
};

use crate::args::TraceImportArgs;
use crate::exit::Exit;
use crate::output::print;

const POOL: PoolIndex = PoolIndex(0);

pub(crate) fn import(args: &TraceImportArgs) -> anyhow::Result<Exit> {
    let context = || args.file.display().to_string();
    let text = fs::read_to_string(&args.file).with_context(context)?;
    let LitmusFile::Trace(file) = LitmusFile::parse(&text).with_context(context)? else {
        anyhow::bail!(
            "{}: a program has many traces; import takes litmus traces",
            context()
        );
    };
    write(&file, args).with_context(|| args.output.display().to_string())?;
    let events = plural(file.event_count(), "event");
    print(|out| Ok(writeln!(out, "{}: {events}", args.output.display())?))?;
    Ok(Exit::Clean)
}

fn write(file: &TraceFile, args: &TraceImportArgs) -> anyhow::Result<()> {
    let mut image = file.initial_image();
    let mut pages: BTreeSet<u64> = file
        .initial_places()
        .flat_map(|at| pages_of(at, 8))
        .collect();
    let initial = snapshot(&image, &pages);
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
    let mut writer = TraceWriter::create(&args.output, &meta, WriterOptions::default())?;
    writer.define_pool(&Pool {
        path: args.file.clone(),
        kind: PoolKind::AnonymousRange,
        len_bytes,
        address: 0,
    })?;
    for (page, bytes) in &initial {
        writer.initial_image(POOL, PoolOffset(page * PAGE_BYTES as u64), bytes)?;
    }
    let threads = file
        .steps()
        .map(|step| step.thread.0)
        .max()
        .map_or(1, |last| last + 1);
    for os_id in 0..threads {
        writer.define_thread(&Thread { os_id, name: None })?;
    }
    for index in 0..file.event_count() {
        match file.step(index) {
            Some(step) => writer.append(step.thread, StackId::NONE, Body::Pm(step.event))?,
            // Events without effect keep their place, so that positions mean the same in both.
            None => writer.append(ThreadIndex(0), StackId::NONE, Body::Mark(NO_EFFECT))?,
        };
    }
    let mut hasher = ImageHasher::new(len_bytes);
    for (page, bytes) in snapshot(&image, &pages) {
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
    kind: MarkKind::Annotation { code: 0 },
    value: 0,
    payload: b"no effect",
};

fn pages_of(at: Place, len: u64) -> std::ops::RangeInclusive<u64> {
    let page = PAGE_BYTES as u64;
    at.offset.0 / page..=(at.offset.0 + len.max(1) - 1) / page
}

fn snapshot(image: &SparseImage, pages: &BTreeSet<u64>) -> Vec<(u64, Vec<u8>)> {
    pages
        .iter()
        .map(|&page| {
            let mut bytes = vec![0; PAGE_BYTES];
            image.read(
                Place::new(POOL, PoolOffset(page * PAGE_BYTES as u64)),
                &mut bytes,
            );
            (page, bytes)
        })
        .collect()
}
