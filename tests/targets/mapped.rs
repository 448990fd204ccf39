//! A Rust program that keeps a small log in a pool, and only uses functions of the C library.

use std::ffi::{CString, c_int, c_long, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

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
    fn munmap(at: *mut c_void, len: usize) -> c_int;
}

const LEN: usize = 1 << 20;

fn main() {
    let path = std::env::args().nth(1).expect("a path");
    let path = CString::new(path).expect("no zero");
    let (read_write_create, both, shared) = (0o102, 3, 1);
    let pool = unsafe {
        let fd = open(path.as_ptr(), read_write_create, 0o600);
        assert!(fd >= 0);
        assert_eq!(ftruncate(fd, LEN as c_long), 0);
        let pool = mmap(std::ptr::null_mut(), LEN, both, shared, fd, 0);
        assert!(pool as isize != -1);
        pool.cast::<u8>()
    };
    let head = unsafe { &*pool.cast::<AtomicU64>() };
    let threads: Vec<_> = (0..2u8)
        .map(|number| {
            let start = pool as usize;
            std::thread::spawn(move || {
                for round in 0..100u64 {
                    let text = format!("thread {number} round {round}");
                    let head = unsafe { &*(start as *const AtomicU64) };
                    let place = head.fetch_add(1, Ordering::SeqCst);
                    let entry = (start + 64 + place as usize * 64) as *mut u8;
                    unsafe {
                        std::ptr::copy_nonoverlapping(text.as_ptr(), entry.add(8), text.len());
                        core::arch::x86_64::_mm_sfence();
                        entry.cast::<u64>().write_volatile(text.len() as u64);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let caught = std::panic::catch_unwind(|| {
        head.fetch_add(1000, Ordering::Release);
        panic!("through a store");
    });
    assert!(caught.is_err());
    println!("{}", head.load(Ordering::Acquire));
    assert_eq!(unsafe { munmap(pool.cast(), LEN) }, 0);
}
