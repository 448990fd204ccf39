//! The seal of a directory: this user made it on this machine, and it has not changed since.
//!
//! The file `seal` is a keyed hash (BLAKE3) of the machine's id, the inode of the directory, and the names and contents of
//! the files that the caller lists. The key is random and private to the user: `powerfail/key` in the state directory
//! (`$XDG_STATE_HOME`, or `~/.local/state`). So the seal does not fit
//!
//! - a directory that another user made, who lacks the key;
//! - a copy, because its inode is another one; a directory that was moved within a file system keeps its seal;
//! - a directory whose listed files have changed;
//! - another machine, also where machines share the home directory.
//!
//! A program that runs as the same user can read the key. It could run anything as that user anyway.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::directory::Directory;
use crate::output;

/// The file that holds the seal.
pub const SEAL: &str = "seal";
const KEY: &str = "powerfail/key";
const KEY_BYTES: usize = blake3::KEY_LEN;
const CONTEXT: &[u8] = b"powerfail seal 1\n";
const PARTS_CONTEXT: &[u8] = b"powerfail seal of parts 1\n";
const BYTES_CONTEXT: &[u8] = b"powerfail seal of bytes 1\n";

/// The origin of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This user made it on this machine.
    Own,
    /// Another user or machine may have made it. The sentence says how that is known.
    Foreign(&'static str),
}

/// Seals a directory with these files.
///
/// # Errors
/// A file cannot be read, or there is no key and none can be made. The directory has no seal then.
pub fn seal(directory: &Directory, names: &[PathBuf]) -> io::Result<()> {
    Keyring::of_user()?.seal(directory, names)
}

/// Whether the seal of a directory fits these files.
pub fn origin(directory: &Directory, names: &[PathBuf]) -> Origin {
    match Keyring::of_user() {
        Ok(keyring) => keyring.origin(directory, names),
        Err(_) => Origin::Foreign("there is no state directory of this user"),
    }
}

/// The seal of bytes that are kept in a directory, with their seal beside them.
///
/// # Errors
/// There is no key and none can be made.
pub fn of_bytes(directory: &Directory, bytes: &[u8]) -> io::Result<String> {
    let keyring = Keyring::of_user()?;
    let key = keyring.read().or_else(|_| keyring.make())?;
    Ok(bytes_digest(&key, directory, bytes)?.to_hex().to_string())
}

/// Whether a seal fits bytes of this directory.
pub fn origin_of_bytes(directory: &Directory, seal: Option<&str>, bytes: &[u8]) -> Origin {
    match Keyring::of_user() {
        Ok(keyring) => keyring.origin_with(seal, |key| bytes_digest(key, directory, bytes)),
        Err(_) => Origin::Foreign("there is no state directory of this user"),
    }
}

/// The seal of parts that this user has put together. It fits on every machine on which the user has the same key, and wherever
/// the parts are kept.
///
/// # Errors
/// There is no key and none can be made.
pub fn of_parts(parts: &[&[u8]]) -> io::Result<String> {
    let keyring = Keyring::of_user()?;
    let key = keyring.read().or_else(|_| keyring.make())?;
    Ok(parts_digest(&key, parts).to_hex().to_string())
}

/// Whether a seal fits parts.
pub fn origin_of_parts(seal: Option<&str>, parts: &[&[u8]]) -> Origin {
    match Keyring::of_user() {
        Ok(keyring) => keyring.origin_with(seal, |key| Ok(parts_digest(key, parts))),
        Err(_) => Origin::Foreign("there is no state directory of this user"),
    }
}

/// Where the key of a user is.
struct Keyring {
    path: PathBuf,
}

impl Keyring {
    fn of_user() -> io::Result<Self> {
        let absolute = |path: &PathBuf| path.is_absolute();
        let given = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
        let state = given.filter(absolute).or_else(|| home().filter(absolute));
        let state = state.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            path: state.join(KEY),
        })
    }

    fn seal(&self, directory: &Directory, names: &[PathBuf]) -> io::Result<()> {
        let path = directory.path().join(SEAL);
        let sealed = self
            .read()
            .or_else(|_| self.make())
            .and_then(|key| digest(&key, directory, names));
        match sealed {
            Ok(digest) => output::replace(&path, format!("{}\n", digest.to_hex()).as_bytes()),
            Err(error) => {
                // That of an earlier run fits nothing any more.
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn origin(&self, directory: &Directory, names: &[PathBuf]) -> Origin {
        let seal = directory.read_bytes(SEAL.as_ref(), 128).ok();
        let text = seal.and_then(|bytes| String::from_utf8(bytes).ok());
        self.origin_with(text.as_deref(), |key| digest(key, directory, names))
    }

    fn origin_with(
        &self,
        seal: Option<&str>,
        digest: impl FnOnce(&[u8; KEY_BYTES]) -> io::Result<blake3::Hash>,
    ) -> Origin {
        let Some(seal) = seal.and_then(|text| blake3::Hash::from_hex(text.trim()).ok()) else {
            return Origin::Foreign("it has no seal");
        };
        let Ok(key) = self.read() else {
            return Origin::Foreign("this user has no key on this machine");
        };
        match digest(&key) {
            // This comparison takes the same time for every seal.
            Ok(digest) if digest == seal => Origin::Own,
            _ => Origin::Foreign(
                "its seal is not of this user and machine, or it was copied or changed",
            ),
        }
    }

    /// The key, if only this user can have written and read it.
    fn read(&self) -> io::Result<[u8; KEY_BYTES]> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let mut file =
            Directory::open(parent)?.read(self.path.file_name().unwrap_or_default().as_ref())?;
        let metadata = file.metadata()?;
        let is_private = metadata.mode() & 0o777 == 0o600;
        if metadata.uid() != rustix::process::geteuid().as_raw() || !is_private {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut key = [0; KEY_BYTES];
        file.read_exact(&mut key)?;
        Ok(key)
    }

    /// Makes a key. Another process may be faster; then its key counts.
    fn make(&self) -> io::Result<[u8; KEY_BYTES]> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
        let mut key = [0_u8; KEY_BYTES];
        let mut filled = 0;
        while filled < KEY_BYTES {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut key[filled..], flags)?;
        }
        let mut file = tempfile::NamedTempFile::new_in(parent)?;
        file.write_all(&key)?;
        match file.persist_noclobber(&self.path) {
            Ok(_) => Ok(key),
            Err(_) => self.read(),
        }
    }
}

fn digest(
    key: &[u8; KEY_BYTES],
    directory: &Directory,
    names: &[PathBuf],
) -> io::Result<blake3::Hash> {
    let mut hasher = hasher(key, CONTEXT, directory)?;
    for name in names {
        put(&mut hasher, name.as_os_str().as_bytes());
        put_file(&mut hasher, directory.read(name)?)?;
    }
    Ok(hasher.finalize())
}

fn bytes_digest(
    key: &[u8; KEY_BYTES],
    directory: &Directory,
    bytes: &[u8],
) -> io::Result<blake3::Hash> {
    let mut hasher = hasher(key, BYTES_CONTEXT, directory)?;
    put(&mut hasher, bytes);
    Ok(hasher.finalize())
}

fn parts_digest(key: &[u8; KEY_BYTES], parts: &[&[u8]]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(PARTS_CONTEXT);
    for part in parts {
        put(&mut hasher, part);
    }
    hasher.finalize()
}

/// One that has the machine and the directory already.
fn hasher(
    key: &[u8; KEY_BYTES],
    context: &[u8],
    directory: &Directory,
) -> io::Result<blake3::Hasher> {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(context);
    put(
        &mut hasher,
        &fs::read("/etc/machine-id").unwrap_or_default(),
    );
    hasher.update(&directory.inode()?.to_le_bytes());
    Ok(hasher)
}

/// Bytes behind their length, so that two lists of them are never the same bytes.
fn put(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn put_file(hasher: &mut blake3::Hasher, mut file: File) -> io::Result<()> {
    let mut content = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => content.update(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
    }
    hasher.update(content.finalize().as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Made {
        place: tempfile::TempDir,
        keyring: Keyring,
    }

    impl Made {
        /// A sealed directory `made` with two files.
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let made = Self {
                keyring: Keyring {
                    path: place.path().join("state/powerfail/key"),
                },
                place,
            };
            fs::create_dir(made.path("made")).unwrap();
            for name in names() {
                fs::write(made.path("made").join(name), "content").unwrap();
            }
            let directory = Directory::open(&made.path("made")).unwrap();
            made.keyring.seal(&directory, &names()).unwrap();
            made
        }

        fn path(&self, name: &str) -> PathBuf {
            self.place.path().join(name)
        }

        fn is_own(&self, name: &str) -> bool {
            let directory = Directory::open(&self.path(name)).unwrap();
            self.keyring.origin(&directory, &names()) == Origin::Own
        }
    }

    fn names() -> [PathBuf; 2] {
        ["one".into(), "two".into()]
    }

    #[test]
    fn a_sealed_directory_is_ones_own_also_after_it_was_moved() {
        let made = Made::new();
        assert!(made.is_own("made"));
        fs::rename(made.path("made"), made.path("moved")).unwrap();
        assert!(made.is_own("moved"));
    }

    #[test]
    fn a_copy_is_foreign() {
        let made = Made::new();
        fs::create_dir(made.path("copy")).unwrap();
        for name in ["one", "two", SEAL] {
            fs::copy(made.path("made").join(name), made.path("copy").join(name)).unwrap();
        }
        assert!(!made.is_own("copy"));
    }

    #[test]
    fn a_change_of_any_file_makes_it_foreign() {
        for name in names() {
            let made = Made::new();
            fs::write(made.path("made").join(name), "other").unwrap();
            assert!(!made.is_own("made"));
        }
        let made = Made::new();
        fs::remove_file(made.path("made/seal")).unwrap();
        assert!(!made.is_own("made"));
    }

    #[test]
    fn another_user_or_machine_has_another_key() {
        let mut made = Made::new();
        made.keyring.path = made.path("other/powerfail/key");
        assert!(!made.is_own("made"), "no key");
        made.keyring.make().unwrap();
        assert!(!made.is_own("made"), "another key");
    }

    #[test]
    fn a_key_that_others_can_read_is_none() {
        let made = Made::new();
        let permissions = |mode| fs::Permissions::from_mode(mode);
        let key = &made.keyring.path;
        assert_eq!(fs::metadata(key).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(key, permissions(0o644)).unwrap();
        assert!(!made.is_own("made"));
        fs::set_permissions(key, permissions(0o600)).unwrap();
        assert!(made.is_own("made"));
    }

    #[test]
    fn parts_are_not_joined() {
        let key = [7; KEY_BYTES];
        let digest = |parts: &[&[u8]]| parts_digest(&key, parts);
        assert_eq!(digest(&[b"ab", b"c"]), digest(&[b"ab", b"c"]));
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"ab", b"c", b""]));
    }

    #[test]
    fn the_first_key_counts() {
        let made = Made::new();
        let first = made.keyring.read().unwrap();
        assert_eq!(made.keyring.make().unwrap(), first);
    }
}
