// The cursor of a reader is a variable, because only this run uses it.
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
