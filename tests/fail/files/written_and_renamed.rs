// std::fs::write syncs nothing.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

fn create(path: &Path, text: &str) {
    let mut file = File::create_new(path).expect("a new file");
    file.write_all(text.as_bytes()).expect("it is written");
    file.sync_all().expect("it is synced");
}

fn recover(path: &Path) {
    if let Ok(text) = fs::read_to_string(path) {
        assert!(text == "colour=red" || text == "colour=blue", "{text:?}");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let directory = Path::new(&arguments[1]);
    let settings = directory.join("settings");
    if arguments.len() > 2 {
        return recover(&settings);
    }
    create(&directory.join("first"), "colour=red");
    fs::rename(directory.join("first"), &settings).expect("it is renamed");
    let second = directory.join("second");
    fs::write(&second, "colour=blue").expect("it is written"); // lost: PF0901
    fs::rename(&second, &settings).expect("it is renamed");
}
