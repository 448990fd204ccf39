//! Files in memory that cannot be changed any more.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

/// How often sealing is tried. Each time, the kernel waits for about a third of a second.
const SEAL_TRIES: u32 = 20;

/// A file with these bytes, which stay as they are. It is not inherited by what is executed.
pub fn sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create(name, flags)?);
    file.write_all(bytes)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    // While something in the kernel looks at its pages, as what watches the use of memory does, they cannot be sealed.
    for _ in 1..SEAL_TRIES {
        match rustix::fs::fcntl_add_seals(&file, seals) {
            Err(Errno::BUSY) => {}
            sealed => {
                sealed?;
                return Ok(file.into());
            }
        }
    }
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn a_sealed_file_has_its_bytes_and_keeps_them() {
        let mut file = File::from(sealed("test", b"bytes").unwrap());
        let mut read = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"bytes");
        file.rewind().unwrap();
        assert!(file.write_all(b"other").is_err());
        assert!(file.set_len(1).is_err());
    }
}
