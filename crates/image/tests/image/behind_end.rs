//! The bytes between the end of a file and the end of its last page can be changed through a mapping. They do not
//! belong to the file, but the next mapping shows them, and so may a later extension of the file.
//!
//! # Safety
//!
//! Each mapping is of a file that is long enough to reach into its last page, lives within one
//! function, and nothing else in this process touches the file meanwhile.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::path::Path;
use std::ptr;

use powerfail_image::{CursorOptions, ImageCursor, Layout};
use powerfail_model::{EventIndex, PoolIndex};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::common::{Op, pool_at, trace_of};
use crate::slot::{newest, run_directories, store};

const LEN: usize = 4096 + 100;

/// Reads the bytes after the end, and fills them with `byte` if there is one.
fn behind_end(path: &Path, byte: Option<u8>) -> Vec<u8> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), LEN as u64);
    // SAFETY: a new mapping of two pages at an address chosen by the kernel; the file reaches into both, and it is
    // used within its bounds and unmapped. The slot's own mapping is not used meanwhile.
    unsafe {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let base = mmap(ptr::null_mut(), 8192, flags, MapFlags::SHARED, &file, 0).unwrap();
        let tail = base.cast::<u8>().add(LEN);
        let found = std::slice::from_raw_parts(tail, 8192 - LEN).to_vec();
        if let Some(byte) = byte {
            ptr::write_bytes(tail, byte, 8192 - LEN);
        }
        munmap(base, 8192).unwrap();
        found
    }
}

#[test]
fn bytes_behind_the_end_do_not_reach_the_next_recovery() {
    let ops = [
        store(0, 0, &[1]),
        store(0, 4096, &[2]),
        Op::Resize(0, 3 * 4096),
    ];
    let pools = [pool_at("/nowhere/pool", LEN as u64)];
    let trace = trace_of(&pools, &Vec::new(), &ops);
    let layout = Layout::of(&trace, &[]).unwrap();
    for (run, _disk) in run_directories() {
        let mut slot = run.slot(0, &layout);
        let mut cursor = ImageCursor::new(&trace, CursorOptions::default()).unwrap();
        // Once with an empty last page, once with one that has content.
        for at in [1, 2] {
            cursor.move_to(EventIndex(at)).unwrap();
            slot.prepare(&cursor, &newest()).unwrap();
            let path = slot.path_of(PoolIndex(0)).unwrap();
            behind_end(&path, Some(7));
            assert_eq!(behind_end(&path, None), [7; 8192 - LEN]);
            slot.prepare(&cursor, &newest()).unwrap();
            assert_eq!(behind_end(&path, Some(8)), [0; 8192 - LEN]);
        }
        cursor.move_to_end().unwrap();
        slot.prepare(&cursor, &newest()).unwrap();
        let mut expected = vec![0; 3 * 4096];
        (expected[0], expected[4096]) = (1, 2);
        assert_eq!(
            fs::read(slot.path_of(PoolIndex(0)).unwrap()).unwrap(),
            expected
        );
    }
}
