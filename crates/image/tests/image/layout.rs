//! Which file belongs to which pool, and which other files are copied.

use std::fs;
use std::path::Path;

use powerfail_image::{
    CursorOptions, ImageCursor, ImageError, Layout, RunDirectory, default_parent, find_companions,
};
use powerfail_model::{CrashState, EventIndex, PoolIndex, StoreKind};

use crate::common::{Op, pool_at, trace_of};

fn newest() -> CrashState {
    CrashState::default()
}

#[test]
fn pools_of_one_directory_lie_side_by_side() {
    let pools = [pool_at("/pm/a", 4096), pool_at("/pm/x/../b", 4096)];
    let layout = Layout::of(&trace_of(&pools, &Vec::new(), &[]), &[]).unwrap();
    let files: Vec<_> = layout.files().collect();
    assert_eq!(files[0], (Path::new("/pm/a"), Path::new("a")));
    assert_eq!(files[1], (Path::new("/pm/b"), Path::new("b")));
    assert_eq!(
        layout.directories().collect::<Vec<_>>(),
        [(Path::new("/pm"), Path::new(""))]
    );
}

#[test]
fn companions_come_along_and_are_restored() {
    let original = tempfile::tempdir().unwrap();
    let pool = original.path().join("pool");
    fs::write(&pool, [0; 4096]).unwrap();
    fs::write(original.path().join("pool.set"), "PMEMPOOLSET").unwrap();
    fs::write(original.path().join("large"), [0; 2000]).unwrap();
    fs::create_dir(original.path().join("directory")).unwrap();
    let pools = [pool_at(pool.to_str().unwrap(), 4096)];
    let trace = trace_of(&pools, &Vec::new(), &[]);
    let companions = find_companions(&trace, 1000).unwrap();
    assert_eq!(companions, [original.path().join("pool.set")]);
    let layout = Layout::of(&trace, &companions).unwrap();
    let run = RunDirectory::create_in(&default_parent()).unwrap();
    let mut slot = run.slot(0, &layout);
    let cursor = ImageCursor::new(&trace, CursorOptions::default()).unwrap();
    slot.prepare(&cursor, &newest()).unwrap();
    let copy = slot.directory().join("pool.set");
    for damage in ["PMEMPOOLSEX", "short", ""] {
        assert_eq!(fs::read_to_string(&copy).unwrap(), "PMEMPOOLSET");
        fs::write(&copy, damage).unwrap();
        slot.prepare(&cursor, &newest()).unwrap();
    }
    fs::remove_file(&copy).unwrap();
    slot.prepare(&cursor, &newest()).unwrap();
    assert_eq!(fs::read_to_string(&copy).unwrap(), "PMEMPOOLSET");
    let refused = Layout::of(&trace, &[original.path().join("directory")]);
    assert!(matches!(refused, Err(ImageError::NotACompanion { .. })));
}

#[test]
fn a_pool_made_anew_takes_the_place_of_the_old_one() {
    let pools = [pool_at("/pm/pool", 4096), pool_at("/pm/pool", 8192)];
    let store = |pool, byte| Op::Store(StoreKind::Plain, pool, 0, vec![byte]);
    let trace = trace_of(&pools, &Vec::new(), &[store(0, 1), store(1, 2)]);
    let layout = Layout::of(&trace, &[]).unwrap();
    let run = RunDirectory::create_in(&default_parent()).unwrap();
    let mut slot = run.slot(0, &layout);
    let mut cursor = ImageCursor::new(&trace, CursorOptions::default()).unwrap();
    for (at, len, byte) in [(0, 4096, 0), (1, 4096, 1), (2, 8192, 2)] {
        cursor.move_to(EventIndex(at)).unwrap();
        slot.prepare(&cursor, &newest()).unwrap();
        let image = fs::read(slot.path_of(PoolIndex(1)).unwrap()).unwrap();
        assert_eq!((image.len(), image[0]), (len, byte));
    }
}
