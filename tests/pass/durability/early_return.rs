// powerfail: recover = "{bin} {pool} recover"
// All return paths of a function flush.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    used: u64,
    full: u64,
}

unsafe fn push(pool: *mut Pool) {
    unsafe {
        if (*pool).used == 2 {
            (*pool).full = 1;
            persist!((*pool).full);
            return;
        }
        (*pool).used += 1;
        persist!((*pool).used);
    }
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    if pm::mode("recover") {
        assert!(unsafe { (*pool).used } <= 2);
        return;
    }
    for _ in 0..3 {
        unsafe { push(pool) };
    }
}
