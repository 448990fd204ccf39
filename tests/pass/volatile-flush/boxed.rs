// A value in a box is flushed, and so is its copy in the pool.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

fn main() {
    let pool = pm::open_pool::<pm::Line<u64>>();
    let boxed = Box::new(pm::Line(9u64));
    unsafe {
        (*pool).0 = boxed.0;
        persist!((*pool).0);
    }
}
