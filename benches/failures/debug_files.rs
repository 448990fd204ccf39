//! Which files with debug information of installed libraries are opened, and how often.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;

/// Where Debian has them, in a folder for each first byte of a build id.
const FOLDER: &str = "/usr/lib/debug/.build-id";

pub(crate) struct DebugFiles(OwnedFd);

impl DebugFiles {
    /// Watches all of them.
    pub(crate) fn watch() -> Self {
        let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
        let folders = std::fs::read_dir(FOLDER).expect("libc6-dbg is installed");
        for folder in folders {
            let folder = folder.expect("a folder").path();
            add_watch(&events, folder, WatchFlags::OPEN | WatchFlags::ONLYDIR).expect("a watch");
        }
        Self(events)
    }

    /// Those that were opened since, and how often.
    pub(crate) fn opened(&self) -> BTreeMap<String, u32> {
        let mut opened = BTreeMap::new();
        let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
        let mut reader = Reader::new(&self.0, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    // Without a name it is the folder.
                    if let Some(name) = event.file_name() {
                        let name = name.to_string_lossy().into_owned();
                        *opened.entry(name).or_insert(0) += 1;
                    }
                }
                Err(Errno::AGAIN) => return opened,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
