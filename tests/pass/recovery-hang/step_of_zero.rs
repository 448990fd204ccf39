// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--timeout 2s"
// Recovery iterates over a pool with a step size that becomes durable before the total size.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    whole: pm::Line<u64>,
    step: pm::Line<u64>,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        if pm::mode("recover") {
            let mut at = 0;
            while at < (*pool).whole.0 {
                at += (*pool).step.0;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            return;
        }
        (*pool).step.0 = 16;
        persist!((*pool).step);
        (*pool).whole.0 = 64;
        persist!((*pool).whole);
    }
}
