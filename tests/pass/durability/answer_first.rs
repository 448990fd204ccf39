// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "ok (\d+)"
// A key is acknowledged after it is flushed.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    keys: [pm::Line<u64>; 4],
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    if pm::mode("recover") {
        return;
    }
    if pm::mode("dump") {
        for key in unsafe { &(*pool).keys } {
            println!("{}", key.0);
        }
        return;
    }
    for index in 0..4 {
        let key = 70 + index as u64;
        unsafe {
            (*pool).keys[index].0 = key;
            persist!((*pool).keys[index]);
            pm::acknowledge(key);
        }
    }
}
