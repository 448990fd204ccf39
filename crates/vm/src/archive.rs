//! An archive of files in the format that the kernel unpacks at boot: cpio, new ASCII ("newc").
//!
//! Each entry is a header of hexadecimal numbers, a name and the content, each padded to four bytes. The same format
//! carries files into a running guest, where busybox unpacks it.

use std::collections::BTreeMap;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const TRAILER: &str = "TRAILER!!!";
const ALIGNMENT: usize = 4;

/// Files by their names, without a leading slash. Directories above them are added by themselves.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    mode: u32,
    content: Vec<u8>,
}

impl Archive {
    /// Adds a directory.
    pub fn directory(&mut self, name: &str) {
        let mut parents: Vec<&str> = Vec::new();
        let mut rest = name.trim_matches('/');
        while !rest.is_empty() {
            parents.push(rest);
            rest = rest.rfind('/').map_or("", |at| &rest[..at]);
        }
        for name in parents {
            self.entries.entry(name.to_owned()).or_insert(Entry {
                mode: DIRECTORY | 0o755,
                content: Vec::new(),
            });
        }
    }

    /// Adds a file, in place of one of the same name.
    pub fn file(&mut self, name: &str, permissions: u32, content: Vec<u8>) {
        self.entry(name, REGULAR | (permissions & 0o7777), content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.entry(name, SYMLINK | 0o777, target.as_bytes().to_vec());
    }

    fn entry(&mut self, name: &str, mode: u32, content: Vec<u8>) {
        let name = name.trim_matches('/');
        if let Some(at) = name.rfind('/') {
            self.directory(&name[..at]);
        }
        self.entries
            .insert(name.to_owned(), Entry { mode, content });
    }

    /// The bytes of the archive. Equal archives have equal bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, (name, entry)) in (1..).zip(&self.entries) {
            append(&mut out, number, name, entry.mode, &entry.content);
        }
        append(&mut out, 0, TRAILER, 0, &[]);
        out
    }
}

fn append(out: &mut Vec<u8>, inode: u32, name: &str, mode: u32, content: &[u8]) {
    let links = if mode & DIRECTORY != 0 { 2 } else { 1 };
    let fields: [u32; 13] = [
        inode,
        mode,
        0,
        0,
        links,
        0,
        u32::try_from(content.len()).unwrap_or(u32::MAX),
        0,
        0,
        0,
        0,
        name.len() as u32 + 1,
        0,
    ];
    out.extend_from_slice(b"070701");
    for field in fields {
        out.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(content);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::Archive;

    fn sample() -> Archive {
        let mut archive = Archive::default();
        archive.file("bin/tool", 0o755, b"#!/bin/sh\n".to_vec());
        archive.file("etc/deep/er/config", 0o600, b"odd length!".to_vec());
        archive.file("empty", 0o644, Vec::new());
        archive.link("bin/sh", "tool");
        archive
    }

    /// The reader is that of busybox, which also runs in guests.
    #[test]
    fn busybox_unpacks_what_was_packed() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new("busybox")
            .args(["cpio", "-i", "-d"])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("busybox-static is installed");
        child
            .stdin
            .take()
            .unwrap()
            .write_all(&sample().bytes())
            .unwrap();
        assert!(child.wait().unwrap().success());
        let read = |name: &str| std::fs::read(directory.path().join(name)).unwrap();
        assert_eq!(read("bin/tool"), b"#!/bin/sh\n");
        assert_eq!(read("bin/sh"), b"#!/bin/sh\n");
        assert_eq!(read("etc/deep/er/config"), b"odd length!");
        assert_eq!(read("empty"), b"");
        let mode = std::fs::metadata(directory.path().join("etc/deep/er/config")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn everything_is_aligned_and_ends_with_the_trailer() {
        let bytes = sample().bytes();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"070701"));
        let end = String::from_utf8_lossy(&bytes[bytes.len() - 16..]).into_owned();
        assert!(end.contains("TRAILER!!!"), "{end:?}");
    }

    #[test]
    fn directories_come_before_what_is_in_them() {
        let text = String::from_utf8_lossy(&sample().bytes()).into_owned();
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("etc\0") < at("etc/deep\0"));
        assert!(at("etc/deep/er\0") < at("etc/deep/er/config\0"));
    }
}
