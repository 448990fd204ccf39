//! `File::create` truncates the file that is to be replaced.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::exit;

fn save(path: &Path, text: &str) {
    let mut file = File::create(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let directory = Path::new(&arguments[1]);
    let path = directory.join("users");
    if arguments.len() > 2 {
        let text = fs::read_to_string(&path).unwrap_or("ann\n".to_owned());
        exit(i32::from(text != "ann\n" && text != "ann\nbob\n"));
    }
    let temporary = directory.join("users.new");
    fs::write(&temporary, "ann\n").unwrap();
    File::open(&temporary).unwrap().sync_all().unwrap();
    fs::rename(&temporary, &path).unwrap();
    File::open(directory).unwrap().sync_all().unwrap();
    save(&temporary, "ann\nbob\n");
    fs::rename(&temporary, &path).unwrap();
}
