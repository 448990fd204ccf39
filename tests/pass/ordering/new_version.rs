// powerfail: recover = "{bin} {pool} recover"
// The version is durable before the offset of the current version is.
#[macro_use]
#[path = "../../programs/pm.rs"]
mod pm;

#[repr(C)]
struct Pool {
    current: pm::Line<u64>,
    versions: [pm::Line<[u64; 2]>; 4],
}

fn main() {
    let pool = pm::open_pool::<Pool>();
    unsafe {
        if pm::mode("recover") {
            if (*pool).current.0 != 0 {
                let version = pool.cast::<u8>().add((*pool).current.0 as usize);
                let [number, check] = *version.cast::<[u64; 2]>();
                assert_eq!(number, !check);
            }
            return;
        }
        for index in 0..4 {
            (*pool).versions[index].0[0] = index as u64;
            (*pool).versions[index].0[1] = !(index as u64);
            persist!((*pool).versions[index]);
            (*pool).current.0 = 64 + 64 * index as u64;
            persist!((*pool).current);
        }
    }
}
