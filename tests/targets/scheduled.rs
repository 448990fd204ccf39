//! Rust threads that wait for each other by a mutex, a condition variable, a channel and parking.

use std::ffi::{CString, c_int, c_long, c_void};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;

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

const LEN: usize = 4096;
const THREADS: usize = 3;
const ROUNDS: u64 = 10;

fn map(path: &str) -> usize {
    let path = CString::new(path).expect("no zero");
    let (read_write_create, both, shared) = (0o102, 3, 1);
    unsafe {
        let fd = open(path.as_ptr(), read_write_create, 0o600);
        assert!(fd >= 0);
        assert_eq!(ftruncate(fd, LEN as c_long), 0);
        let pool = mmap(std::ptr::null_mut(), LEN, both, shared, fd, 0);
        assert!(pool as isize != -1);
        pool as usize
    }
}

fn store(pool: usize, place: usize, value: u64) {
    unsafe {
        ((pool + 64 * place) as *mut u64).write_volatile(value);
        core::arch::x86_64::_mm_sfence();
    }
}

fn main() {
    let pool = map(&std::env::args().nth(1).expect("a path"));
    let turn = Arc::new((Mutex::new(0), Condvar::new()));
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (turn, sender) = (Arc::clone(&turn), sender.clone());
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    let (mutex, condition) = &*turn;
                    let mut now = mutex.lock().unwrap();
                    while *now % THREADS != number {
                        now = condition.wait(now).unwrap();
                    }
                    store(pool, 0, *now as u64);
                    *now += 1;
                    condition.notify_all();
                    drop(now);
                    store(pool, number + 1, round);
                    sender.send(round).unwrap();
                }
                thread::park();
                store(pool, number + 1, ROUNDS);
            })
        })
        .collect();
    drop(sender);
    for value in receiver.iter().take(THREADS * ROUNDS as usize) {
        store(pool, THREADS + 1, value);
    }
    for thread in threads {
        thread.thread().unpark();
        thread.join().unwrap();
    }
}
