// powerfail: flags = "--deny warnings --only late-flush,durability,redundant-flush"
// An epoch is flushed after all that belongs to it.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    epoch: pm::Line<u64>,
    pages: [pm::Line<u64>; 16],
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        (*pool).epoch.0 = 3; // expect: PF0605
        for page in 0..12 {
            (*pool).pages[page].0 = 100 + page as u64;
            persist!((*pool).pages[page].0);
        }
        persist!((*pool).epoch.0);
    }
}
