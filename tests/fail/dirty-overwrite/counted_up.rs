// A counter is incremented twice before it is made durable.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

fn main() {
    let pool = pm::open_pool::<pm::Line<u64>>();
    unsafe {
        (*pool).0 += 1; // expect: PF0505@counter
        (*pool).0 += 1; // expect: PF0505@counter
        persist!((*pool).0);
    }
}
