// powerfail: recover = "{bin} {pool} recover"
// powerfail: checker = "{bin} {pool} check"
// Three blocks and their parity. Recovery recomputes the parity.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    blocks: [pm::Line<u64>; 3],
    parity: pm::Line<u64>,
}

unsafe fn parity(pool: *const Pool) -> u64 {
    unsafe { (*pool).blocks[0].0 ^ (*pool).blocks[1].0 ^ (*pool).blocks[2].0 }
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        if pm::mode("recover") {
            (*pool).parity.0 = parity(pool);
            persist!((*pool).parity);
            return;
        }
        if pm::mode("check") {
            std::process::exit(i32::from((*pool).parity.0 != parity(pool)));
        }
        for index in 0..3 {
            (*pool).blocks[index].0 = 7 << index;
            persist!((*pool).blocks[index]);
            (*pool).parity.0 = parity(pool);
            persist!((*pool).parity);
        }
    }
}
