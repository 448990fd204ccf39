//! A file is written and renamed with the functions of the standard library, which sync nothing.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::exit;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let directory = Path::new(&arguments[1]);
    let (path, temporary) = (directory.join("state.json"), directory.join("state.json.tmp"));
    if arguments.len() > 2 {
        let text = fs::read_to_string(&path).unwrap_or("[1]".to_owned());
        exit(i32::from(text != "[1]" && text != "[1,2]"));
    }
    let mut first = File::create(&temporary).unwrap();
    first.write_all(b"[1]").unwrap();
    first.sync_all().unwrap();
    fs::rename(&temporary, &path).unwrap();
    File::open(directory).unwrap().sync_all().unwrap();
    let mut file = File::create(&temporary).unwrap();
    file.write_all(b"[1,2]").unwrap(); // lost: PF0901
    drop(file);
    fs::rename(&temporary, &path).unwrap();
}
