// powerfail: recover = "{bin} {pool} recover"
// A value and its complement, one after the other. Recovery completes the pair.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    value: pm::Line<u64>,
    complement: pm::Line<u64>,
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        if pm::mode("recover") {
            let (value, complement) = ((*pool).value.0, (*pool).complement.0);
            if value != 0 && value != !complement {
                (*pool).complement.0 = !value;
                persist!((*pool).complement);
            }
            return;
        }
        for number in 1..=3u64 {
            (*pool).value.0 = number;
            persist!((*pool).value);
            (*pool).complement.0 = !number;
            persist!((*pool).complement);
        }
    }
}
