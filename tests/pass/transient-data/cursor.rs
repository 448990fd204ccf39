// The cursor of a reader lives in the pool, but is of this run only.
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
        let cursor = 1;
        assert_eq!(cursor, 1);
    }
}
