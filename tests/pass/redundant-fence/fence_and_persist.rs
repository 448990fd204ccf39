// No fence between store and flush: a store to the cache needs none.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

fn main() {
    let pool = pm::open_pool::<pm::Line<u64>>();
    unsafe {
        (*pool).0 = 1;
        persist!((*pool).0);
    }
}
