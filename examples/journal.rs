//! A journal in a file, in Rust: each line is acknowledged on standard output when it is written.
//!
//! `write` does not wait for the disk, so a power failure can lose lines that were acknowledged. With `--cfg fixed` the
//! file and its directory are synced before.
//!
//! `journal DIR add` appends three lines, `journal DIR list` prints them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

fn add(directory: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut journal = options
        .create(true)
        .append(true)
        .open(directory.join("journal"))?;
    if cfg!(fixed) {
        // The name of the new file.
        File::open(directory)?.sync_all()?;
    }
    for line in ["first", "second", "third"] {
        journal.write_all(format!("{line}\n").as_bytes())?;
        if cfg!(fixed) {
            journal.sync_data()?;
        }
        println!("saved {line}");
        io::stdout().flush()?;
    }
    Ok(())
}

fn list(directory: &Path) {
    // Before the first line there is no file.
    let text = std::fs::read(directory.join("journal")).unwrap_or_default();
    print!("{}", String::from_utf8_lossy(&text));
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        [_, directory, word] if word == "add" => add(Path::new(directory))?,
        [_, directory, word] if word == "list" => list(Path::new(directory)),
        _ => eprintln!("usage: journal DIR add|list"),
    }
    Ok(())
}
