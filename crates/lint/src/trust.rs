//! Which modules are trusted, and what that means for those who call them.

use std::path::Path;

/// What a module is to the lint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// The user's: everything that happens in it is reported there.
    User,
    /// A library of primitives, such as libpmem: it does what its caller asks for, so what it does
    /// is reported at the caller.
    Primitives,
    /// The C library: its stores are its caller's (memcpy). Its flushes and fences are its own,
    /// because it copies to volatile memory with non-temporal stores too.
    Runtime,
    /// A library with persistent data of its own, such as libpmemobj: what it does is its own
    /// business, except in functions that only pass their caller's range on.
    Opaque,
}

/// Which modules are trusted. The default knows the libraries of PMDK and the C library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    patterns: Vec<(String, Standing)>,
}

const PRIMITIVES: [&str; 2] = ["libpmem", "libpmem2"];
const OPAQUE: [&str; 3] = ["libpmemobj", "libpmemlog", "libpmemblk"];
const RUNTIME: [&str; 6] = [
    "libc",
    "libpthread",
    "ld",
    "ld-linux",
    "ld-linux-x86-64",
    "linux-vdso",
];

impl Default for Trust {
    fn default() -> Self {
        let mut trust = Self::none();
        for (names, standing) in [
            (&PRIMITIVES[..], Standing::Primitives),
            (&OPAQUE[..], Standing::Opaque),
            (&RUNTIME[..], Standing::Runtime),
        ] {
            for name in names {
                trust.add(name, standing);
            }
        }
        trust
    }
}

impl Trust {
    /// Trusts no module: everything is reported at its innermost frame.
    pub const fn none() -> Self {
        Self {
            patterns: Vec::new(),
        }
    }

    /// The default, with modules that are trusted besides and modules that are not. The latter have precedence.
    pub fn with(trusted: &[String], untrusted: &[String]) -> Self {
        let mut trust = Self::default();
        for module in trusted {
            trust.add(module, Standing::Opaque);
        }
        for module in untrusted {
            trust.add(module, Standing::User);
        }
        trust
    }

    /// Adds modules. A pattern is the name of a file, whole (`libkv.so.2`) or without its versions
    /// (`libkv`), or the beginning of one followed by `*`. What is added later has precedence.
    pub fn add(&mut self, pattern: &str, standing: Standing) {
        self.patterns.push((pattern.to_owned(), standing));
    }

    /// What the module in this file is.
    pub fn standing(&self, module: &Path) -> Standing {
        let Some(name) = module.file_name().and_then(|name| name.to_str()) else {
            return Standing::User;
        };
        let matching = self
            .patterns
            .iter()
            .rev()
            .find(|(pattern, _)| matches(pattern, name));
        matching.map_or(Standing::User, |(_, standing)| *standing)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name || pattern == stem(name),
    }
}

/// The name of a shared object without its versions: `libc-2.31.so` and `libc.so.6` are `libc`.
fn stem(name: &str) -> &str {
    let Some(end) = name.find(".so") else {
        return name;
    };
    let stem = &name[..end];
    match stem.rsplit_once('-') {
        Some((before, version)) if version.contains('.') => before,
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_known_by_the_names_of_their_files() {
        let trust = Trust::default();
        for (path, standing) in [
            (
                "/usr/lib/x86_64-linux-gnu/libpmem.so.1",
                Standing::Primitives,
            ),
            ("/lib/libpmem.so.1.0.0", Standing::Primitives),
            ("/lib/libpmem2.so.1", Standing::Primitives),
            ("/lib/libpmemobj.so.1", Standing::Opaque),
            ("/lib/libpmemblk.so.1", Standing::Opaque),
            ("/lib/libc.so.6", Standing::Runtime),
            ("/lib/libc-2.31.so", Standing::Runtime),
            ("/lib64/ld-linux-x86-64.so.2", Standing::Runtime),
            ("linux-vdso.so.1", Standing::Runtime),
            ("/lib/libpmemkv.so.1", Standing::User),
            ("/lib/libcrypto.so.3", Standing::User),
            ("/home/libc/program", Standing::User),
            ("", Standing::User),
        ] {
            assert_eq!(trust.standing(Path::new(path)), standing, "{path}");
        }
    }

    #[test]
    fn the_last_word_counts() {
        let mut trust = Trust::default();
        trust.add("libpmem*", Standing::User);
        trust.add("libkv", Standing::Opaque);
        assert_eq!(
            trust.standing(Path::new("/l/libpmemobj.so.1")),
            Standing::User
        );
        assert_eq!(trust.standing(Path::new("/l/libkv.so.2")), Standing::Opaque);
        assert_eq!(
            Trust::none().standing(Path::new("/l/libc.so.6")),
            Standing::User
        );
    }
}
