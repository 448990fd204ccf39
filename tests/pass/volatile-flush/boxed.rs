// A value in a box is copied into the pool, and only the copy is flushed.
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
