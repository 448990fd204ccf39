//! The mappings of a process, as the kernel reports them.

use std::path::{Path, PathBuf};

use super::event::Site;

/// One line of `/proc/<pid>/maps` that maps a file.
struct Mapping {
    start: u64,
    end: u64,
    file_offset: u64,
    is_writable: bool,
    is_shared: bool,
    path: PathBuf,
}

/// All files that a process has mapped.
#[derive(Default)]
pub(super) struct Mappings(Vec<Mapping>);

impl Mappings {
    pub(super) fn of(process: u32) -> Self {
        let path = format!("/proc/{process}/maps");
        let text = std::fs::read_to_string(path).expect("the process is there");
        Self(text.lines().filter_map(parse).collect())
    }

    /// The pool that contains an address, and the offset in its file.
    pub(super) fn in_pool(&self, address: u64, pools: &[PathBuf]) -> Option<(usize, u64)> {
        let mapping = self.at(address).filter(|mapping| mapping.may_be_pool())?;
        let pool = pools.iter().position(|pool| *pool == mapping.path)?;
        Some((pool, address - mapping.start + mapping.file_offset))
    }

    /// The files in a folder that are mapped as pools.
    pub(super) fn pools_in<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a Path> {
        self.0
            .iter()
            .filter(|mapping| mapping.may_be_pool())
            .map(|mapping| mapping.path.as_path())
            .filter(move |path| path.starts_with(folder))
    }

    /// The instruction at an address.
    pub(super) fn site(&self, address: u64) -> Site {
        let mapping = self.at(address).expect("code of a module");
        let first = self.0.iter().find(|other| other.path == mapping.path);
        let load_address = first.expect("at least itself").start;
        let name = mapping.path.file_name().expect("a file");
        Site {
            module: name.to_string_lossy().into_owned(),
            offset: address - load_address,
        }
    }

    fn at(&self, address: u64) -> Option<&Mapping> {
        self.0
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))
    }
}

impl Mapping {
    fn may_be_pool(&self) -> bool {
        self.is_writable && self.is_shared
    }
}

fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let file_offset = words.next()?;
    let path = words.nth(2).filter(|path| path.starts_with('/'))?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        file_offset: number(file_offset)?,
        is_writable: rights[1] == b'w',
        is_shared: rights[3] == b's',
        path: path.into(),
    })
}
