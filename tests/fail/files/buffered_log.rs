//! A buffered log is flushed to the kernel and not synced before its entries are acknowledged.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^ok (.*)$"

use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Write, stdout};
use std::path::Path;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let directory = Path::new(&arguments[1]);
    let path = directory.join("entries");
    if arguments.len() > 2 {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        if arguments[2] == "dump" {
            print!("{whole}");
        }
        return;
    }
    let file = File::create(&path).unwrap();
    file.sync_all().unwrap();
    File::open(directory).unwrap().sync_all().unwrap();
    let mut log = BufWriter::new(file);
    for number in 1..=2 {
        writeln!(log, "entry-{number}").unwrap();
        log.flush().unwrap(); // lost: PF0903
        println!("ok entry-{number}");
        stdout().flush().unwrap();
    }
    log.get_ref().sync_data().unwrap();
}
