//! The content of pools in memory.

use powerfail_model::{Image, Place, PoolIndex, PoolOffset, SparseImage};

/// Of the implementation: tests write across the borders of pages.
const PAGE_BYTES: usize = 4096;

fn place(offset: u64) -> Place {
    Place::new(PoolIndex(0), PoolOffset(offset))
}

#[test]
fn bytes_never_written_are_zero_and_pages_join() {
    let mut image = SparseImage::new();
    image.write(place(4090), &[7; 12]);
    let mut out = [1; 16];
    image.read(place(4088), &mut out);
    assert_eq!(out, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
}

#[test]
fn bytes_never_written_hold_the_fill_unless_the_pool_is_zeroed() {
    let mut image = SparseImage::filled(9);
    image.write(place(4095), &[1, 0]);
    let mut out = [7; 4];
    image.read(place(4094), &mut out);
    assert_eq!(out, [9, 1, 0, 9]);
    image.clear_from(PoolIndex(0), PoolOffset(4096));
    image.read(place(4094), &mut out);
    assert_eq!(out, [9, 1, 9, 9]);
    image.zero(PoolIndex(0));
    image.read(place(20_000), &mut out);
    assert_eq!(out, [0; 4]);
}

#[test]
fn clearing_from_an_offset_keeps_what_is_before_it() {
    let mut image = SparseImage::new();
    image.write(place(0), &[9; 3 * PAGE_BYTES]);
    image.clear_from(PoolIndex(0), PoolOffset(4100));
    let mut out = vec![1; 3 * PAGE_BYTES];
    image.read(place(0), &mut out);
    assert!(out[..4100].iter().all(|&b| b == 9));
    assert!(out[4100..].iter().all(|&b| b == 0));
}
