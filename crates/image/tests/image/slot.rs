//! A prepared slot equals its image, whatever recovery did.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use powerfail_image::{
    CursorOptions, Fill, FillExtent, ImageCursor, ImageError, ImageSlot, Layout, Patch,
    RunDirectory, default_parent, write_image,
};
use powerfail_model::{
    CrashState, EventIndex, LineId, LineIndex, PoolIndex, Rules, SparseImage, StoreKind,
};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::common::{
    Initial, Naive, Op, POOL_BYTES, bytes, initial, op, pool_at, rules, trace_of, two_pools,
};

pub(crate) fn newest() -> CrashState {
    CrashState::default()
}

/// In memory and on disk.
pub(crate) fn run_directories() -> Vec<(RunDirectory, Option<tempfile::TempDir>)> {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    vec![
        (RunDirectory::create_in(&default_parent()).unwrap(), None),
        (RunDirectory::create_in(disk.path()).unwrap(), Some(disk)),
    ]
}

/// An action of a recovery on the files of its slot.
#[derive(Clone, Debug)]
enum Deed {
    Write(usize, u64, Vec<u8>),
    SetLen(usize, u64),
    Punch(usize),
    Remove(usize),
    Replace(usize, Vec<u8>),
    Rename(usize),
    Swap,
    Chmod(usize, u32),
    Link(usize),
    ExtraFile(String),
    ExtraDirectory,
    SymlinkInPlace(usize),
    DirectoryInPlace(usize),
    RemoveDirectory(usize),
    RemoveAll,
    HideDirectory,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => (0..2_usize, 0_u64..30_000, bytes()).prop_map(|(f, o, b)| Deed::Write(f, o, b)),
        3 => (0..2_usize, 0_u64..40_000).prop_map(|(f, l)| Deed::SetLen(f, l)),
        1 => (0..2_usize).prop_map(Deed::Punch),
        1 => (0..2_usize).prop_map(Deed::Remove),
        1 => (0..2_usize, bytes()).prop_map(|(f, b)| Deed::Replace(f, b)),
        1 => (0..2_usize).prop_map(Deed::Rename),
        1 => Just(Deed::Swap),
        1 => (0..2_usize, 0_u32..0o1000).prop_map(|(f, m)| Deed::Chmod(f, m)),
        1 => (0..2_usize).prop_map(Deed::Link),
        1 => "[a-z]{1,8}".prop_map(Deed::ExtraFile),
        1 => Just(Deed::ExtraDirectory),
        1 => (0..2_usize).prop_map(Deed::SymlinkInPlace),
        1 => (0..2_usize).prop_map(Deed::DirectoryInPlace),
        1 => (0..2_usize).prop_map(Deed::RemoveDirectory),
        1 => Just(Deed::RemoveAll),
        1 => Just(Deed::HideDirectory),
    ]
}

/// Performs the action, as far as earlier actions allow it.
fn recover(slot: &ImageSlot, deed: &Deed) {
    let paths: Vec<PathBuf> = slot.files().map(|(_, path)| path).collect();
    let directories: Vec<PathBuf> = slot.directories().map(|(_, path)| path).collect();
    let beside = |path: &Path, name: &str| path.with_file_name(name);
    let opened = |file: usize| File::options().write(true).open(&paths[file]);
    let _ = match deed {
        Deed::Write(file, offset, bytes) => {
            opened(*file).and_then(|file| file.write_all_at(bytes, *offset))
        }
        Deed::SetLen(file, len) => opened(*file).and_then(|file| file.set_len(*len)),
        Deed::Punch(file) => opened(*file).and_then(|file| {
            use rustix::fs::FallocateFlags as Flags;
            let flags = Flags::PUNCH_HOLE | Flags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(file, flags, 4000, 9000)?)
        }),
        Deed::Remove(file) => fs::remove_file(&paths[*file]),
        Deed::Replace(file, bytes) => {
            let other = beside(&paths[*file], "new");
            fs::write(&other, bytes).and_then(|()| fs::rename(&other, &paths[*file]))
        }
        Deed::Rename(file) => fs::rename(&paths[*file], beside(&paths[*file], "moved")),
        Deed::Swap => fs::rename(&paths[0], &paths[1]),
        Deed::Chmod(file, mode) => {
            fs::set_permissions(&paths[*file], Permissions::from_mode(*mode))
        }
        Deed::Link(file) => fs::hard_link(&paths[*file], beside(&paths[*file], "link")),
        Deed::ExtraFile(name) => fs::write(slot.directory().join(name), "extra"),
        Deed::ExtraDirectory => {
            let inner = directories[0].join("logs/old");
            fs::create_dir_all(&inner)
                .and_then(|()| fs::write(inner.join("log"), "text"))
                .and_then(|()| fs::set_permissions(&inner, Permissions::from_mode(0o000)))
        }
        Deed::SymlinkInPlace(file) => {
            fs::remove_file(&paths[*file]).and_then(|()| symlink(&paths[1 - *file], &paths[*file]))
        }
        Deed::DirectoryInPlace(file) => fs::remove_file(&paths[*file])
            .and_then(|()| fs::create_dir_all(paths[*file].join("inside"))),
        Deed::RemoveDirectory(number) => fs::remove_dir_all(&directories[*number])
            .and_then(|()| fs::write(&directories[*number], "a file now")),
        Deed::RemoveAll => fs::remove_dir_all(slot.directory()),
        Deed::HideDirectory => fs::set_permissions(&directories[1], Permissions::from_mode(0o000)),
    };
}

/// Every path below a directory, relative to it, sorted.
fn listing(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            }
            found.push(entry.path().strip_prefix(root).unwrap().to_path_buf());
        }
    }
    found.sort_unstable();
    found
}

fn assert_equal(slot: &ImageSlot, expected: &Naive) {
    for ((_, path), expected) in slot.files().zip(&expected.0) {
        let metadata = path.symlink_metadata().unwrap();
        assert!(metadata.is_file());
        assert_eq!(metadata.mode() & 0o7777, 0o600);
        let found = fs::read(&path).unwrap();
        assert_eq!(found.len(), expected.len());
        let first = found.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(
            first,
            None,
            "the first byte of {} that differs",
            path.display()
        );
    }
    let expected: Vec<PathBuf> = ["0", "0/pool", "1", "1/other"].map(PathBuf::from).to_vec();
    assert_eq!(listing(slot.directory()), expected);
}

/// The pools in a crash state, by the model's own sparse image.
fn apply_state(pools: &mut Naive, ops: &[Op], initial: &Initial, rules: Rules, state: &CrashState) {
    use powerfail_model::{Frontier, Image, Place, PoolOffset, Step, ThreadIndex};
    let mut image = SparseImage::new();
    for (pool, offset, bytes) in initial {
        image.write(Place::new(PoolIndex(*pool), PoolOffset(*offset)), bytes);
    }
    let mut frontier = Frontier::new(rules, image);
    let mut lens = POOL_BYTES;
    for (op, index) in ops.iter().zip(0..) {
        let mut op = op.clone();
        match &mut op {
            // Bytes beyond the end never get into the file.
            Op::Store(_, pool, offset, bytes) => {
                bytes.truncate(lens[*pool as usize].saturating_sub(*offset) as usize);
            }
            Op::Resize(pool, len) => lens[*pool as usize] = *len,
            _ => {}
        }
        frontier.apply(&Step {
            index: EventIndex(index),
            thread: ThreadIndex(0),
            event: op.event(),
        });
    }
    for &(id, version) in &state.versions {
        let line = frontier.open_line(id).unwrap();
        for (at, byte) in (line.offset().0 as usize..).zip(line.version(version)) {
            if let Some(place) = pools.0[id.pool.0 as usize].get_mut(at) {
                *place = byte;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_slot_equals_its_image_whatever_recovery_did(
        initial in initial(),
        ops in prop::collection::vec(op(), 1..40),
        rules in rules(),
        stops in prop::collection::vec(
            (any::<Index>(), prop::collection::vec(deed(), 0..5), any::<Index>()), 1..6),
    ) {
        let trace = trace_of(&two_pools(), &initial, &ops);
        let layout = Layout::of(&trace, &[]).unwrap();
        for (run, _disk) in run_directories() {
            let mut stops: Vec<_> = stops
                .iter()
                .map(|(at, deeds, state)| (at.index(ops.len() + 1), deeds, state))
                .collect();
            stops.sort_by_key(|(at, _, _)| *at);
            let options = CursorOptions { rules: Some(rules), ..CursorOptions::default() };
            let mut cursor = ImageCursor::new(&trace, options).unwrap();
            let mut slot = run.slot(7, &layout);
            let mut naive = Naive::new(&initial);
            let mut done = 0;
            for (at, deeds, chosen) in stops {
                for op in &ops[done..at] {
                    naive.apply(op);
                }
                done = at;
                cursor.move_to(EventIndex(at as u64)).unwrap();
                // Any version of each open line.
                let lines = cursor.frontier().unwrap().open_lines_sorted();
                let state = CrashState {
                    versions: lines
                        .iter()
                        .map(|line| (line.id(), chosen.index(line.version_count())))
                        .collect(),
                };
                let mut expected = naive.clone();
                apply_state(&mut expected, &ops[..at], &initial, rules, &state);
                slot.prepare(&cursor, &state).unwrap();
                assert_equal(&slot, &expected);
                for deed in deeds {
                    recover(&slot, deed);
                }
                slot.prepare(&cursor, &newest()).unwrap();
                assert_equal(&slot, &naive);
                let again = slot.prepare(&cursor, &newest()).unwrap();
                prop_assert_eq!(again, powerfail_image::Prepared::default());
                for deed in deeds {
                    recover(&slot, deed);
                }
            }
        }
    }
}

pub(crate) fn store(pool: u32, offset: u64, bytes: &[u8]) -> Op {
    Op::Store(StoreKind::Plain, pool, offset, bytes.to_vec())
}

#[test]
fn a_huge_pool_takes_its_pages_only() {
    let len = 8 << 30;
    let ops = [store(0, 5 << 30, &[1; 5000]), store(0, len - 1, &[2])];
    let trace = trace_of(&[pool_at("/nowhere/huge", len)], &Vec::new(), &ops);
    let layout = Layout::of(&trace, &[]).unwrap();
    for (run, _disk) in run_directories() {
        let mut cursor = ImageCursor::new(&trace, CursorOptions::default()).unwrap();
        cursor.move_to_end().unwrap();
        let mut slot = run.slot(0, &layout);
        slot.prepare(&cursor, &newest()).unwrap();
        let path = slot.path_of(PoolIndex(0)).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), len);
        assert!(file.metadata().unwrap().blocks() * 512 < 100 * 4096);
        file.write_all_at(&[3; 10_000], 1 << 30).unwrap();
        let prepared = slot.prepare(&cursor, &newest()).unwrap();
        assert_eq!(prepared.pages_written, 0);
        assert!(prepared.pages_punched >= 3);
        assert!(file.metadata().unwrap().blocks() * 512 < 100 * 4096);
        let mut out = [9; 10_000];
        file.read_exact_at(&mut out, 1 << 30).unwrap();
        assert_eq!(out, [0; 10_000]);
        file.read_exact_at(&mut out[..5000], 5 << 30).unwrap();
        assert_eq!(out[..5000], [1; 5000]);
    }
}

#[test]
fn only_what_differs_is_written() {
    let ops = [
        store(0, 0, &vec![1; 4096 * 5]),
        store(0, 4096, &[2]),
        Op::Fence,
    ];
    let trace = trace_of(&two_pools(), &Vec::new(), &ops);
    let layout = Layout::of(&trace, &[]).unwrap();
    let run = RunDirectory::create_in(&default_parent()).unwrap();
    let mut slot = run.slot(0, &layout);
    let mut cursor = ImageCursor::new(&trace, CursorOptions::default()).unwrap();
    cursor.move_to(EventIndex(1)).unwrap();
    let first = slot.prepare(&cursor, &newest()).unwrap();
    assert_eq!((first.pages_written, first.files_created), (5, 2));
    cursor.move_to(EventIndex(2)).unwrap();
    let second = slot.prepare(&cursor, &newest()).unwrap();
    assert_eq!((second.pages_written, second.files_created), (1, 0));
}

#[test]
fn states_that_are_not_possible_are_refused() {
    let trace = trace_of(&two_pools(), &Vec::new(), &[store(0, 0, &[1]), Op::Fence]);
    let layout = Layout::of(&trace, &[]).unwrap();
    let run = RunDirectory::create_in(&default_parent()).unwrap();
    let mut slot = run.slot(0, &layout);
    let lost = |line, version| {
        let pool = PoolIndex(0);
        let line = LineId {
            pool,
            line: LineIndex(line),
        };
        CrashState {
            versions: vec![(line, version)],
        }
    };
    let mut blind = ImageCursor::new(&trace, CursorOptions::default()).unwrap();
    blind.move_to_end().unwrap();
    let refused = slot.prepare(&blind, &lost(0, 0));
    assert!(matches!(refused, Err(ImageError::NoFrontier)));
    let options = CursorOptions {
        rules: Some(Rules::default()),
        ..CursorOptions::default()
    };
    let mut cursor = ImageCursor::new(&trace, options).unwrap();
    cursor.move_to_end().unwrap();
    for state in [lost(0, 2), lost(1, 0)] {
        let refused = slot.prepare(&cursor, &state);
        assert!(matches!(refused, Err(ImageError::NoSuchVersion { .. })));
    }
    slot.prepare(&cursor, &lost(0, 0)).unwrap();
    assert_eq!(fs::read(slot.path_of(PoolIndex(0)).unwrap()).unwrap()[0], 0);
}

#[test]
fn several_threads_prepare_from_one_cursor() {
    let ops = [store(0, 100, b"shared"), Op::Fence];
    let trace = trace_of(&two_pools(), &Vec::new(), &ops);
    let layout = Layout::of(&trace, &[]).unwrap();
    let run = RunDirectory::create_in(&default_parent()).unwrap();
    let mut slots: Vec<ImageSlot> = (0..4).map(|number| run.slot(number, &layout)).collect();
    let mut cursor = ImageCursor::new(&trace, CursorOptions::default()).unwrap();
    cursor.move_to_end().unwrap();
    std::thread::scope(|scope| {
        for slot in &mut slots {
            let cursor = &cursor;
            scope.spawn(move || slot.prepare(cursor, &newest()).unwrap());
        }
    });
    for slot in &slots {
        let image = fs::read(slot.path_of(PoolIndex(0)).unwrap()).unwrap();
        assert_eq!(image[100..106], *b"shared");
    }
}

#[test]
fn an_image_to_keep_replaces_nothing() {
    let ops = [store(0, 100, b"kept"), store(1, 0, b"too")];
    let trace = trace_of(&two_pools(), &Vec::new(), &ops);
    let layout = Layout::of(&trace, &[]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("images");
    let options = CursorOptions {
        fill: Some(Fill {
            byte: 0xaa,
            extent: FillExtent::WholePool,
        }),
        ..CursorOptions::default()
    };
    let mut cursor = ImageCursor::new(&trace, options).unwrap();
    cursor.move_to_end().unwrap();
    let written = write_image(&cursor, &newest(), &[], &layout, &target).unwrap();
    assert_eq!(written[0].0, Path::new("/nowhere/a/pool"));
    assert_eq!(written[1].0, Path::new("/nowhere/run/other"));
    let first = fs::read(&written[0].1).unwrap();
    assert_eq!(first.len(), 5 * 4096 + 100);
    assert_eq!(first[98..106], *b"\xaa\xaakept\xaa\xaa");
    assert!(first[106..].iter().all(|&byte| byte == 0xaa));
    assert_eq!(fs::read(&written[1].1).unwrap()[..3], *b"too");
    let again = write_image(&cursor, &newest(), &[], &layout, &target);
    assert!(matches!(again, Err(ImageError::File { .. })));
}

/// Bytes written by a recovery are applied on top of the crash state, and are cut at the end of the pool.
#[test]
fn bytes_on_top_of_a_crash_state() {
    let ops = [store(0, 4090, &[1; 20]), store(1, 0, &[2; 8])];
    let trace = trace_of(&two_pools(), &Initial::default(), &ops);
    let parent = tempfile::tempdir().unwrap();
    let run = RunDirectory::create_in(parent.path()).unwrap();
    let mut slot = run.slot(0, &Layout::of(&trace, &[]).unwrap());
    let mut cursor = ImageCursor::new(&trace, CursorOptions::default()).unwrap();
    cursor.move_to(EventIndex(2)).unwrap();
    let len_bytes = cursor.len_bytes(PoolIndex(0)).unwrap();
    let patch = |pool, offset, bytes: &[u8]| Patch {
        pool: PoolIndex(pool),
        offset,
        bytes: bytes.to_vec(),
    };
    let overlay = [
        patch(0, 4094, &[7; 4]),
        patch(0, 4095, &[8]),
        patch(0, len_bytes - 1, &[9, 9]),
    ];
    slot.prepare_with(&cursor, &newest(), &overlay).unwrap();
    let read = |slot: &ImageSlot| std::fs::read(slot.path_of(PoolIndex(0)).unwrap()).unwrap();
    let image = read(&slot);
    assert_eq!(image[4090..4100], [1, 1, 1, 1, 7, 8, 7, 7, 1, 1]);
    assert_eq!(image.len() as u64, len_bytes);
    assert_eq!(image.last(), Some(&9));
    slot.prepare(&cursor, &newest()).unwrap();
    assert_eq!(read(&slot)[4090..4100], [1; 10]);
}
