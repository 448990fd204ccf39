// powerfail: flags = "--deny warnings"
// Two fields of a struct, each with its own flush.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    key: u64,
    value: u64,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        (*pool).key = 1;
        persist!((*pool).key);
        (*pool).value = 2;
        persist!((*pool).value);
    }
}
