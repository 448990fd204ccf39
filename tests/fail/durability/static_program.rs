// powerfail: recover = "{bin} {pool} recover"
// powerfail: opt = "-C target-feature=+crt-static"
// A statically linked program, which is recorded under QEMU. Its second flush has no fence.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    name: pm::Line<u64>,
    balance: pm::Line<u64>,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        if pm::mode("recover") {
            assert!((*pool).balance.0 <= 70);
            return;
        }
        (*pool).name.0 = 4711;
        persist!((*pool).name);
        (*pool).balance.0 = 70; // expect: PF0102@balance
        flush!((*pool).balance); // expect: PF0102@balance
    }
    pm::leave()
}
