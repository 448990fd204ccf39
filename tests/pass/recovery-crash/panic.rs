// powerfail: needs = "-Cpanic=abort"
// powerfail: recover = "{bin} {pool} recover"
// The table has an entry before a key refers to it: recovery never panics.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    newest: pm::Line<u64>,
    len: pm::Line<u64>,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        if pm::mode("recover") {
            let table: Vec<u64> = (0..=(*pool).len.0).collect();
            println!("{}", table[(*pool).newest.0 as usize]);
            return;
        }
        for number in 1..=3u64 {
            (*pool).len.0 = number;
            persist!((*pool).len);
            (*pool).newest.0 = number;
            persist!((*pool).newest);
        }
    }
}
