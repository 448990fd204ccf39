// powerfail: flags = "--deny warnings"
// Two fields of a struct with one flush.
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
        (*pool).key = 1; // expect: PF0601@fields
        (*pool).value = 2; // expect: PF0601@fields
        persist!((*pool).value); // expect: PF0601@fields
    }
}
