// powerfail: flags = "--deny warnings --only neighbour-flush,durability,redundant-flush"
// A version with a flush of its own.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    version: u64,
    payload: u64,
}

#[inline(never)]
unsafe fn next_version(pool: *mut Pool) {
    unsafe {
        (*pool).version += 1;
        persist!((*pool).version);
    }
}

#[inline(never)]
unsafe fn write(pool: *mut Pool, payload: u64) {
    unsafe {
        (*pool).payload = payload;
        persist!((*pool).payload);
    }
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    for payload in 10..13 {
        unsafe {
            next_version(pool);
            write(pool, payload);
        }
    }
}
