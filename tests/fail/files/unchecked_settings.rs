//! Settings get their name before they are synced, and recovery takes whatever is in the file.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: flags = "--races --strict"

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let directory = Path::new(&arguments[1]);
    let (path, temporary) = (directory.join("settings"), directory.join("settings.tmp"));
    if arguments.len() > 2 {
        println!("{:?}", fs::read(&path).unwrap_or_default());
        return;
    }
    let mut file = File::create(&temporary).unwrap();
    file.write_all(b"colour=blue").unwrap(); // expect: PF0701
    drop(file);
    fs::rename(&temporary, &path).unwrap();
}
