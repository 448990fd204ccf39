//! Every annotation once, as `annotated.c` has them.

use std::ffi::{CString, c_int, c_long, c_void};

use powerfail_annotate as annotate;
use powerfail_annotate::Stage;

unsafe extern "C" {
    fn open(path: *const i8, flags: c_int, ...) -> c_int;
    fn ftruncate(fd: c_int, len: c_long) -> c_int;
    fn mmap(
        at: *mut c_void,
        len: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        off: c_long,
    ) -> *mut c_void;
}

const LEN: usize = 1 << 20;

static VOLATILE_WORD: u64 = 0;

fn map(path: &str) -> *mut u8 {
    let path = CString::new(path).expect("no zero");
    let (read_write_create, both, shared) = (0o102, 3, 1);
    unsafe {
        let fd = open(path.as_ptr(), read_write_create, 0o600);
        assert!(fd >= 0);
        assert_eq!(ftruncate(fd, LEN as c_long), 0);
        let pool = mmap(std::ptr::null_mut(), LEN, both, shared, fd, 0);
        assert!(pool as isize != -1);
        pool.cast::<u8>()
    }
}

fn work(pool: *mut u8) {
    let variable = pool.cast::<u64>();
    let range = std::ptr::slice_from_raw_parts(pool.wrapping_add(64).cast::<u64>(), 16);
    annotate::commit_variable(variable);
    annotate::commit_range(variable, range);
    annotate::commit_variable(&raw const VOLATILE_WORD);
    let operation = annotate::operation(7);
    unsafe { pool.add(64).cast::<u64>().write_volatile(1) };
    annotate::failure_point();
    unsafe {
        core::arch::x86_64::_mm_clflush(pool.add(64));
        core::arch::x86_64::_mm_sfence();
    }
    operation.end();
    annotate::mark(42, b"payload");
    annotate::mark(43, &[b'l'; 2000]);
    annotate::mark(44, &[]);
}

fn main() {
    let pool = map(&std::env::args().nth(1).expect("a path"));
    let _recovery = annotate::region_of_interest(Stage::After);
    {
        let _region = annotate::region_of_interest(Stage::Before);
        drop(annotate::skip_failure());
        drop(annotate::skip_detection(Stage::Both));
        work(pool);
    }
    annotate::complete(Stage::Both);
    annotate::complete(Stage::After);
    println!("{}", unsafe { pool.add(64).cast::<u64>().read_volatile() });
}
