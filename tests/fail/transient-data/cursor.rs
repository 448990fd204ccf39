// The cursor of a reader is in the pool, but only this run uses it.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    value: pm::Line<u64>,
    cursor: pm::Line<u64>,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        (*pool).value.0 = 4;
        persist!((*pool).value);
        (*pool).cursor.0 = 1; // expect: PF0504
        assert_eq!((*pool).cursor.0, 1);
    }
}
