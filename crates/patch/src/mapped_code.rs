//! Real code for tests.

use std::fs;

/// The code of the files that this process has mapped.
pub(crate) fn mapped_code() -> Vec<Vec<u8>> {
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings of this process");
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" r-xp ")) {
        let mut words = line.split_whitespace();
        let (Some(range), Some(offset), Some(path)) = (words.next(), words.nth(1), words.nth(2))
        else {
            continue;
        };
        let Ok(file) = fs::read(path) else { continue };
        let number = |text: &str| usize::from_str_radix(text, 16).expect("a number");
        let (from, to) = range.split_once('-').expect("a range");
        let offset = number(offset);
        let end = (offset + number(to) - number(from)).min(file.len());
        all.push(file[offset..end].to_vec());
    }
    all
}
