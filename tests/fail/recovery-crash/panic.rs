// powerfail: needs = "-Cpanic=abort"
// powerfail: recover = "{bin} {pool} recover"
// A key refers to a table entry before the table has it: recovery panics, which aborts.
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
            (*pool).newest.0 = number; // expect: PF0401
            persist!((*pool).newest);
            (*pool).len.0 = number;
            persist!((*pool).len);
        }
    }
}
