// Only a line in which something was stored is flushed.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    used: pm::Line<u64>,
    unused: pm::Line<u64>,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        (*pool).used.0 = 1;
        flush!((*pool).used);
        fence!();
    }
}
