//! scratch
use powerfail_benches::Workload;
use powerfail_model::EventIndex;
use powerfail_trace::*;
use std::time::Instant;
fn main() {
    let w = Workload::index_inserts(2_000_000, 1);
    for (level, epb) in [
        (1, 1 << 16),
        (1, 1 << 15),
        (-1, 1 << 16),
        (-1, 1 << 15),
        (-2, 1 << 16),
        (-3, 1 << 16),
        (-5, 1 << 16),
        (3, 1 << 16),
        (100, 1 << 16),
    ] {
        let o = WriterOptions {
            compression: if level == 100 {
                Compression::None
            } else {
                Compression::Zstd { level }
            },
            events_per_block: epb,
            bytes_per_block: 1 << 20,
        };
        let mut best = f64::MAX;
        let mut r = f64::MAX;
        let mut bytes = Vec::new();
        w.write(&mut bytes, o).unwrap();
        let n = bytes.len();
        let t = Trace::from_bytes(bytes).unwrap();
        for _ in 0..5 {
            let s = Instant::now();
            w.write(std::io::sink(), o).unwrap();
            best = best.min(s.elapsed().as_secs_f64());
            let s = Instant::now();
            let mut c = t.records_from(EventIndex(0));
            while let Some(x) = c.next_record().unwrap() {
                std::hint::black_box(&x);
            }
            r = r.min(s.elapsed().as_secs_f64());
        }
        println!(
            "level {level} epb {epb}: {:.2} B/ev write {:.1} M/s read {:.1} M/s",
            n as f64 / 2e6,
            2.0 / best,
            2.0 / r
        );
    }
}
