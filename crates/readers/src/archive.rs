//! Several files in one input: what a bundle or a campaign is to a fuzzer.
//!
//! Each file is the length of its name, the name, the length of its content in four bytes, and the content. What does not
//! fit is the content of the last file, so that any bytes are some files.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use powerfail_files::Directory;

pub(crate) fn pack(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        bytes.push(u8::try_from(name.len()).expect("a short name"));
        bytes.extend_from_slice(name.as_bytes());
        let len = u32::try_from(content.len()).expect("a small file");
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(content);
    }
    bytes
}

/// All files below a directory.
pub(crate) fn pack_directory(directory: &Path) -> Vec<u8> {
    let open = Directory::open(directory).expect("a directory");
    let names = open.files_below("".as_ref()).expect("files");
    let files: Vec<_> = names
        .iter()
        .map(|name| {
            let text = name.to_str().expect("a name");
            (text, fs::read(directory.join(name)).expect("a file"))
        })
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (*name, &bytes[..]))
        .collect();
    pack(&files)
}

/// Makes the files in a directory. What cannot be made is left out.
pub(crate) fn unpack(mut bytes: &[u8], directory: &Directory) {
    while let Some((name_len, rest)) = bytes.split_first() {
        let name_len = usize::from(*name_len).min(rest.len());
        let (name, rest) = rest.split_at(name_len);
        let (len, rest) = rest.split_at(rest.len().min(4));
        let mut four = [0; 4];
        four[..len.len()].copy_from_slice(len);
        let len = (u32::from_le_bytes(four) as usize).min(rest.len());
        let (content, rest) = rest.split_at(len);
        bytes = rest;
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        let name = Path::new(name);
        if let Some(parent) = name.parent() {
            let _ = directory.create_directory(parent);
        }
        let _ = directory
            .create_file(name)
            .and_then(|mut file| file.write_all(content));
    }
}

/// A directory `inside` with the files of an input, beside a file that must not change.
pub(crate) struct Unpacked {
    place: tempfile::TempDir,
}

const PRECIOUS: &str = "precious";

impl Unpacked {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join(PRECIOUS), PRECIOUS).expect("a file");
        let inside = Directory::create(&place.path().join("inside")).expect("a directory");
        unpack(bytes, &inside);
        Self { place }
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }

    /// Nothing but what was made on purpose lies in the place.
    pub(crate) fn is_confined(&self, made: &[&str]) {
        let precious = fs::read_to_string(self.path(PRECIOUS));
        assert_eq!(precious.expect("a file"), PRECIOUS);
        for entry in fs::read_dir(self.place.path())
            .expect("a directory")
            .flatten()
        {
            let name = entry.file_name();
            let is_known = ["inside", PRECIOUS]
                .iter()
                .chain(made)
                .any(|known| name == *known);
            assert!(is_known, "{} was made", name.display());
        }
    }
}
