// powerfail: recover = "{bin} {pool} recover"
// powerfail: checker = "{bin} {pool} check"
// Three blocks and their parity. The repaired recovery computes the parity again.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    blocks: [pm::Line<u64>; 3],
    parity: pm::Line<u64>,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        let parity = || (*pool).blocks[0].0 ^ (*pool).blocks[1].0 ^ (*pool).blocks[2].0;
        if pm::mode("recover") {
            return;
        }
        if pm::mode("check") {
            std::process::exit(i32::from((*pool).parity.0 != parity()));
        }
        for index in 0..3 {
            (*pool).blocks[index].0 = 7 << index; // expect: PF0303
            persist!((*pool).blocks[index]);
            (*pool).parity.0 = parity();
            persist!((*pool).parity);
        }
    }
}
