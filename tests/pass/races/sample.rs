// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// The last sample is durable before the number of samples counts it.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    count: pm::Line<u64>,
    samples: [pm::Line<u64>; 4],
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        if pm::mode("recover") {
            let count = (*pool).count.0 as usize;
            for index in 0..count {
                let sample = (*pool).samples[index].0;
                assert_eq!(sample, 7 * (index as u64 + 1));
            }
            return;
        }
        for index in 0..3 {
            (*pool).samples[index].0 = 7 * (index as u64 + 1);
            persist!((*pool).samples[index]);
            // Both numbers are correct.
            (*pool).count.0 = index as u64 + 1; // warning: PF0701
            persist!((*pool).count);
        }
    }
}
