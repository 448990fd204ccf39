// A locked operation that changes nothing, after a fence.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[inline(never)]
unsafe fn persist(place: *mut u64) {
    unsafe {
        flush!(*place);
        fence!();
        core::arch::asm!("lock or qword ptr [rsp], 0"); // expect: PF0502
    }
}

fn main() {
    let pool = pm::open_pool::<[u64; 8]>();
    for value in 1..4 {
        unsafe {
            (*pool)[0] = value;
            persist(&raw mut (*pool)[0]);
        }
    }
    pm::leave()
}
