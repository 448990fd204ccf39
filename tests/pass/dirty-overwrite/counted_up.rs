// A counter is incremented once, by two, before it is made durable.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

fn main() {
    let pool = pm::open_pool::<pm::Line<u64>>();
    unsafe {
        (*pool).0 += 2;
        persist!((*pool).0);
    }
}
