// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--timeout 2s"
// Recovery hangs on the pool of an uninterrupted run.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

fn main() {
    let pool = pm::open_pool::<pm::Line<u64>>();
    unsafe {
        if pm::mode("recover") {
            while (*pool).0 > 3 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            return;
        }
        for number in 1..=3 {
            (*pool).0 = number;
            persist!((*pool).0);
        }
    }
}
