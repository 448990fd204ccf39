//! Writes the seeds of all fuzz targets: `cargo run --bin seeds -- corpus`, then `cargo +nightly fuzz run NAME`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let Some(corpus) = std::env::args().nth(1) else {
        eprintln!("usage: seeds DIRECTORY");
        std::process::exit(2)
    };
    for reader in powerfail_readers::ALL {
        let folder = Path::new(&corpus).join(reader.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (reader.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
