// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "^ok"
// A pair is changed in place. The repaired program changes the pair that is not in use.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    current: pm::Line<u64>,
    pairs: [[pm::Line<u64>; 2]; 2],
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        let current = (*pool).current.0 as usize;
        if pm::mode("recover") {
            return;
        }
        if pm::mode("dump") {
            println!("{} {}", (*pool).pairs[current][0].0, (*pool).pairs[current][1].0);
            return;
        }
        for number in 1..=3u64 {
            let place = current;
            (*pool).pairs[place][0].0 = number; // expect: PF0302
            persist!((*pool).pairs[place][0]);
            (*pool).pairs[place][1].0 = number * number;
            persist!((*pool).pairs[place][1]);
            pm::acknowledge(number);
        }
    }
}
