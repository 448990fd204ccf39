// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "^ok"
// Of two pairs, the one that is not in use is changed.
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
            let place = 1 - (*pool).current.0 as usize;
            (*pool).pairs[place][0].0 = number;
            persist!((*pool).pairs[place][0]);
            (*pool).pairs[place][1].0 = number * number;
            persist!((*pool).pairs[place][1]);
            (*pool).current.0 = place as u64;
            persist!((*pool).current);
            pm::acknowledge(number);
        }
    }
}
