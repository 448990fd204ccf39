// powerfail: recover = "{bin} {pool} recover"
// Two flushes, each with a fence.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    first: pm::Line<u64>,
    second: pm::Line<u64>,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        if pm::mode("recover") {
            assert!((*pool).first.0 <= 1);
            return;
        }
        (*pool).first.0 = 1;
        persist!((*pool).first);
        (*pool).second.0 = 2;
        persist!((*pool).second);
    }
    pm::leave()
}
