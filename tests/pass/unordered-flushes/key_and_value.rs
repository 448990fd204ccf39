// powerfail: flags = "--deny warnings"
// Key and value are on two lines, each with its own fence.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    key: pm::Line<u64>,
    value: pm::Line<u64>,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        (*pool).key.0 = 1;
        flush!((*pool).key);
        fence!();
        (*pool).value.0 = 2;
        flush!((*pool).value);
        fence!();
    }
}
