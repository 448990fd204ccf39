//! The names of code that a target has generated, as its runtime writes them for profilers: `/tmp/perf-PID.map`.
//!
//! The JVM writes it with `-XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit`, V8 with `--perf-basic-prof`. A line is the
//! address of a function, its length, both in hexadecimal, and its name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Longer files are cut.
const MAX_BYTES: u64 = 256 << 20;
/// Longer names are left out.
const NAME_MAX: usize = 4096;

/// The functions in which addresses lie that a process has generated.
pub(crate) fn names(process: i32, addresses: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(
        (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK)
            .bits()
            .cast_signed(),
    );
    let Ok(file) = options.open(format!("/tmp/perf-{process}.map")) else {
        return BTreeMap::new();
    };
    // Others can write to this directory, too.
    let own = rustix::process::geteuid().as_raw();
    let is_own = file
        .metadata()
        .is_ok_and(|it| it.is_file() && it.uid() == own);
    let mut bytes = Vec::new();
    if !is_own || file.take(MAX_BYTES).read_to_end(&mut bytes).is_err() {
        return BTreeMap::new();
    }
    names_in(&String::from_utf8_lossy(&bytes), addresses)
}

/// Of functions at the same addresses, the last is the newest.
fn names_in(map: &str, addresses: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mut names = BTreeMap::new();
    for line in map.lines() {
        let mut parts = line.splitn(3, ' ');
        let mut number = || {
            let text = parts.next()?;
            u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
        };
        let (Some(start), Some(len)) = (number(), number()) else {
            continue;
        };
        let name = parts.next().unwrap_or_default().trim();
        if name.is_empty() || name.len() > NAME_MAX {
            continue;
        }
        let Some(end) = start.checked_add(len).filter(|end| *end > start) else {
            continue;
        };
        for address in addresses.range(start..end) {
            names.insert(*address, name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::names_in;

    #[test]
    fn functions_by_address() {
        let map = "0x1000 0x10 Interpreter\n1010 20 int Store.put(int, int)\nnonsense\n2000 0 empty\n1018 4 newer\n\
                   ffffffffffffffff ff behind the end\n3000 10 \n";
        let addresses = BTreeSet::from([
            0x0fff, 0x1000, 0x1010, 0x1019, 0x102f, 0x1030, 0x2000, 0x3000,
        ]);
        let names: Vec<_> = names_in(map, &addresses).into_iter().collect();
        let expected = [
            (0x1000, "Interpreter"),
            (0x1010, "int Store.put(int, int)"),
            (0x1019, "newer"),
            (0x102f, "int Store.put(int, int)"),
        ];
        assert_eq!(names, expected.map(|(at, name)| (at, name.to_owned())));
    }
}
