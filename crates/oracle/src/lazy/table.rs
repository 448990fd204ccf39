//! Writes the description of a crash into the shared file, and reads which lines were read.

use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use powerfail_protocol::explore::{
    CHOICES_AT, CONTENTS_AT, KNOWLEDGE_AT, LINES_AT, LineEntry, MAGIC, OPEN_PAGES_AT,
    OUTPUT_MARK_BYTES, OVERWRITTEN_BYTES, OpenPage, PAGES_AT, POOLS_AT, PREFIX_AT, PoolEntry,
    RecoveryControl, VERSION, WATCHES_AT, WATCHES_MAX, Watch,
};

use crate::lazy::file::{SharedFile, control};
use crate::lazy::{LineTable, PageMask};

const PAGE_BYTES: u64 = 4096;
/// The number of bytes that a bit of a mask stands for.
const UNIT_BYTES: u64 = 64;
/// The greatest number of processes that wait in branches.
const WAITING_MAX: u32 = 256;

/// Why a table cannot be explored.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It is invalid, or too large.
    Table(String),
    /// The file cannot be written.
    System(io::Error),
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Writes the first page, with a random mark, and the pools, by the paths that recovery
/// sees. Executions then run on the image as it is.
pub(crate) fn write_pools(file: &SharedFile, paths: &[&Path]) -> io::Result<()> {
    let mut mark = [0; OUTPUT_MARK_BYTES];
    let mut filled = 0;
    while filled < mark.len() {
        filled +=
            rustix::rand::getrandom(&mut mark[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    let mut pools = Vec::new();
    let mut names = Vec::new();
    let names_at = POOLS_AT + (paths.len() * size_of::<PoolEntry>()) as u64;
    for path in paths {
        let name = path.as_os_str().as_bytes();
        pools.extend((names_at + names.len() as u64).to_ne_bytes());
        pools.extend((name.len() as u64).to_ne_bytes());
        names.extend_from_slice(name);
        // Zero-terminated, for the kernel.
        names.push(0);
    }
    pools.append(&mut names);
    if POOLS_AT + pools.len() as u64 > LINES_AT {
        return Err(io::Error::other("the paths of pools are too long"));
    }
    file.write(POOLS_AT, &pools)?;
    let mut first = FirstPage::default();
    first.long(control!(magic), MAGIC);
    first.word(control!(version), VERSION);
    first.word(control!(pool_count), paths.len() as u32);
    first.word(control!(line_bytes), 64);
    first.word(control!(waiting_max), WAITING_MAX);
    first.bytes(control!(output_mark), &mark);
    file.write(0, &first.0)
}

/// How an execution proceeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders<'a> {
    /// Choices to follow.
    pub(crate) prefix: &'a [u32],
    pub(crate) watches: &'a [Watch],
    /// Bits of `flag`.
    pub(crate) flags: u32,
}

/// Watches that are in the file.
#[derive(Debug)]
pub(crate) struct WrittenWatches {
    /// As they were given, with the number of each pool in the file.
    given: Vec<Watch>,
    places: Vec<u32>,
    /// The pages that they are in.
    pages: Vec<(u32, u64)>,
    count: u32,
}

impl WrittenWatches {
    /// Writes watches, unless `before`, which are in the file, are the same. Failure points that learn from each other have
    /// the same ones.
    fn of(
        file: &SharedFile,
        watches: &[Watch],
        places: &[u32],
        before: Option<Self>,
    ) -> Result<Self, Unfit> {
        if let Some(before) = before
            && before.given == watches
            && before.places == places
        {
            return Ok(before);
        }
        let (written, bytes) = Self::encoded(watches, places)?;
        file.write(WATCHES_AT, &bytes)?;
        Ok(written)
    }

    fn encoded(watches: &[Watch], places: &[u32]) -> Result<(Self, Vec<u8>), Unfit> {
        let mut bytes_of_lines: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for watch in watches.iter().filter(|it| it.bytes != 0) {
            let place = place_of(places, watch.pool)?;
            if !watch.offset.is_multiple_of(UNIT_BYTES) {
                let offset = watch.offset;
                return Err(Unfit::Table(format!("there is no line at {offset}")));
            }
            *bytes_of_lines.entry((place, watch.offset)).or_default() |= watch.bytes;
        }
        if bytes_of_lines.len() > WATCHES_MAX as usize {
            return Err(Unfit::Table("there are too many watched lines".into()));
        }
        let page_of = |(place, offset): &(u32, u64)| (*place, offset - offset % PAGE_BYTES);
        let mut pages: Vec<(u32, u64)> = bytes_of_lines.keys().map(page_of).collect();
        pages.dedup();
        let written = Self {
            given: watches.to_vec(),
            places: places.to_vec(),
            pages,
            count: bytes_of_lines.len() as u32,
        };
        let bytes = bytes_of_lines.into_iter().flat_map(watch_record).collect();
        Ok((written, bytes))
    }
}

/// The number in the file of a pool of a table.
fn place_of(places: &[u32], pool: u32) -> Result<u32, Unfit> {
    match places.get(pool as usize) {
        Some(place) => Ok(*place),
        None => Err(Unfit::Table(format!("there is no pool {pool}"))),
    }
}

/// Writes a table and how an execution proceeds. `places` has the number in the file of each pool of the table. `written`
/// are the watches that are in the file, before and after.
/// Returns the lines in the order in which the file numbers them.
pub(crate) fn write_table(
    file: &SharedFile,
    table: &LineTable,
    places: &[u32],
    orders: Orders<'_>,
    written: &mut Option<WrittenWatches>,
) -> Result<Vec<u32>, Unfit> {
    let watches = WrittenWatches::of(file, orders.watches, places, written.take())?;
    let watches = written.insert(watches);
    let encoded = Encoded::of(table, &watches.pages, places)?;
    let prefix = orders.prefix;
    let prefix_bytes: Vec<u8> = prefix.iter().flat_map(|it| it.to_ne_bytes()).collect();
    if prefix_bytes.len() as u64 > CHOICES_AT - PREFIX_AT {
        return Err(Unfit::Table("there are too many choices".into()));
    }
    file.write(LINES_AT, &encoded.lines)?;
    file.write(CONTENTS_AT, &encoded.contents)?;
    file.write(OPEN_PAGES_AT, &encoded.pages)?;
    file.write(PREFIX_AT, &prefix_bytes)?;
    let mut first = FirstPage(file.read(0, size_of::<RecoveryControl>())?);
    first.word(control!(flags), orders.flags);
    first.word(control!(line_bytes), table.line_bytes);
    first.word(control!(line_count), encoded.order.len() as u32);
    first.word(control!(page_count), encoded.page_count);
    first.word(control!(prefix_len), prefix.len() as u32);
    first.word(control!(watch_count), watches.count);
    for zero in [
        control!(choice_count),
        control!(active),
        control!(waiting),
        control!(attached),
        control!(begun),
        control!(note_count),
        control!(attention),
    ] {
        first.word(zero, 0);
    }
    for zero in [
        control!(log_len),
        control!(traps),
        control!(steps),
        control!(forced),
    ] {
        first.long(zero, 0);
    }
    file.write(0, &first.0)?;
    Ok(encoded.order)
}

/// A table in the form that it has in the file.
#[derive(Debug)]
struct Encoded {
    /// The lines by pool and offset: where they are in the table.
    order: Vec<u32>,
    lines: Vec<u8>,
    contents: Vec<u8>,
    pages: Vec<u8>,
    page_count: u32,
}

impl Encoded {
    /// `noted` are the pages of watches.
    fn of(table: &LineTable, noted: &[(u32, u64)], places: &[u32]) -> Result<Self, Unfit> {
        let place_of = |pool: u32| place_of(places, pool);
        let line_bytes = u64::from(table.line_bytes);
        let fits = line_bytes.is_multiple_of(UNIT_BYTES) && PAGE_BYTES.is_multiple_of(line_bytes);
        if line_bytes == 0 || !fits {
            return Err(Unfit::Table(format!("lines of {line_bytes} bytes")));
        }
        let mut order: Vec<u32> = (0..table.lines.len() as u32).collect();
        order.sort_by_key(|number| {
            let line = &table.lines[*number as usize];
            (places.get(line.pool as usize), line.offset)
        });
        let mut lines = Vec::with_capacity(order.len() * size_of::<LineEntry>());
        let mut contents = Vec::new();
        let mut knowledge_bytes = 0_u64;
        // How many lines are open, and which are watched.
        let mut pages: BTreeMap<(u32, u64), (u32, u64)> = BTreeMap::new();
        for number in &order {
            let line = &table.lines[*number as usize];
            let place = place_of(line.pool)?;
            let count = line.contents.len() as u64 / line_bytes;
            let is_whole = (line.contents.len() as u64).is_multiple_of(line_bytes);
            if !line.offset.is_multiple_of(line_bytes) || count == 0 || !is_whole {
                let offset = line.offset;
                return Err(Unfit::Table(format!("the line at {offset} makes no sense")));
            }
            let page = line.offset - line.offset % PAGE_BYTES;
            pages.entry((place, page)).or_default().0 += 1;
            knowledge_bytes += OVERWRITTEN_BYTES;
            lines.extend(place.to_ne_bytes());
            lines.extend((count as u32).to_ne_bytes());
            lines.extend(line.offset.to_ne_bytes());
            lines.extend((contents.len() as u64).to_ne_bytes());
            lines.extend(knowledge_bytes.to_ne_bytes());
            contents.extend_from_slice(&line.contents);
            knowledge_bytes += 8 * count.div_ceil(64);
        }
        for watched in &table.watched {
            let place = place_of(watched.pool)?;
            let page = watched.offset - watched.offset % PAGE_BYTES;
            pages.entry((place, page)).or_default().1 |= watched.lines;
        }
        for page in noted {
            pages.entry(*page).or_default();
        }
        let page_bytes = pages.len() as u64 * PAGE_BYTES;
        for (what, bytes, room) in [
            ("lines", lines.len() as u64, CONTENTS_AT - LINES_AT),
            (
                "contents",
                contents.len() as u64,
                KNOWLEDGE_AT - CONTENTS_AT,
            ),
            ("contents", knowledge_bytes, PAGES_AT - KNOWLEDGE_AT),
            ("pages", page_bytes, OPEN_PAGES_AT - PAGES_AT),
        ] {
            if bytes > room {
                return Err(Unfit::Table(format!("there are too many {what}")));
            }
        }
        Ok(Self {
            order,
            lines,
            contents,
            page_count: pages.len() as u32,
            pages: pages.into_iter().flat_map(page_record).collect(),
        })
    }
}

fn page_record(
    ((pool, offset), (open_lines, watched)): ((u32, u64), (u32, u64)),
) -> [u8; size_of::<OpenPage>()] {
    let mut record = [0; size_of::<OpenPage>()];
    put(&mut record, offset_of!(OpenPage, pool), &pool.to_ne_bytes());
    let open_lines = open_lines.to_ne_bytes();
    put(&mut record, offset_of!(OpenPage, open_lines), &open_lines);
    put(
        &mut record,
        offset_of!(OpenPage, offset),
        &offset.to_ne_bytes(),
    );
    put(
        &mut record,
        offset_of!(OpenPage, watched),
        &watched.to_ne_bytes(),
    );
    record
}

fn watch_record(((pool, offset), bytes): ((u32, u64), u64)) -> [u8; size_of::<Watch>()] {
    let mut record = [0; size_of::<Watch>()];
    put(&mut record, offset_of!(Watch, pool), &pool.to_ne_bytes());
    let offset = offset.to_ne_bytes();
    put(&mut record, offset_of!(Watch, offset), &offset);
    put(&mut record, offset_of!(Watch, bytes), &bytes.to_ne_bytes());
    record
}

/// The lines that were read since a table was written.
pub(crate) fn read_masks(file: &SharedFile, places: &[u32]) -> io::Result<Vec<PageMask>> {
    let count = file.word(control!(page_count))? as usize;
    let table = file.read(OPEN_PAGES_AT, count * size_of::<OpenPage>())?;
    let mut masks = Vec::new();
    for record in table.chunks_exact(size_of::<OpenPage>()) {
        let place = u32::from_ne_bytes(get(record, offset_of!(OpenPage, pool)));
        let lines = u64::from_ne_bytes(get(record, offset_of!(OpenPage, read)));
        let pool = places.iter().position(|it| *it == place);
        if let (Some(pool), true) = (pool, lines != 0) {
            masks.push(PageMask {
                pool: pool as u32,
                offset: u64::from_ne_bytes(get(record, offset_of!(OpenPage, offset))),
                lines,
            });
        }
    }
    Ok(masks)
}

fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

fn get<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

/// The first page of the file, as bytes.
struct FirstPage(Vec<u8>);

impl Default for FirstPage {
    fn default() -> Self {
        Self(vec![0; size_of::<RecoveryControl>()])
    }
}

impl FirstPage {
    fn bytes(&mut self, at: u64, bytes: &[u8]) {
        put(&mut self.0, at as usize, bytes);
    }

    fn word(&mut self, at: u64, value: u32) {
        self.bytes(at, &value.to_ne_bytes());
    }

    fn long(&mut self, at: u64, value: u64) {
        self.bytes(at, &value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lazy::TableLine;

    fn line(pool: u32, offset: u64, contents: usize) -> TableLine {
        TableLine {
            pool,
            offset,
            contents: vec![7; 64 * contents],
        }
    }

    fn table(lines: Vec<TableLine>, watched: Vec<PageMask>) -> LineTable {
        LineTable {
            line_bytes: 64,
            pools: Vec::new(),
            lines,
            watched,
        }
    }

    fn words(bytes: &[u8]) -> Vec<u64> {
        let words = bytes.chunks_exact(8);
        words.map(|it| u64::from_ne_bytes(get(it, 0))).collect()
    }

    #[test]
    fn lines_are_in_order_with_room_for_what_is_known() {
        let lines = vec![line(0, 4096, 2), line(0, 64, 65), line(1, 128, 3)];
        // The second pool of the table is the first of the file.
        let encoded = Encoded::of(&table(lines, vec![]), &[], &[1, 0]).unwrap();
        assert_eq!(encoded.order, [2, 1, 0]);
        let pool_and_count = |pool: u64, count: u64| pool | count << 32;
        let expected = [
            [pool_and_count(0, 3), 128, 0, 64],
            [pool_and_count(1, 65), 64, 3 * 64, 64 + 8 + 64],
            [pool_and_count(1, 2), 4096, 68 * 64, 64 + 8 + 64 + 16 + 64],
        ];
        assert_eq!(words(&encoded.lines), expected.concat());
        assert_eq!(encoded.contents.len(), 70 * 64);
    }

    #[test]
    fn pages_are_those_with_open_or_watched_lines() {
        let mask = |offset, lines| PageMask {
            pool: 0,
            offset,
            lines,
        };
        let lines = vec![line(0, 8192, 2), line(0, 8256, 2)];
        let watched = vec![mask(8192, 5), mask(0, 9)];
        let encoded = Encoded::of(&table(lines, watched), &[], &[0]).unwrap();
        assert_eq!(encoded.page_count, 2);
        let open = |lines: u64| lines << 32;
        let expected = [[open(0), 0, 9, 0], [open(2), 8192, 5, 0]];
        assert_eq!(words(&encoded.pages), expected.concat());
    }

    #[test]
    fn watches_are_in_order_and_have_pages() {
        let watch = |pool, offset, bytes| Watch {
            pool,
            reserved: 0,
            offset,
            bytes,
        };
        let watches = [
            watch(0, 4160, 1),
            watch(1, 64, 6),
            watch(0, 4160, 4),
            watch(0, 0, 0),
        ];
        let (written, bytes) = WrittenWatches::encoded(&watches, &[1, 0]).unwrap();
        let encoded = Encoded::of(&table(vec![], vec![]), &written.pages, &[1, 0]).unwrap();
        assert_eq!((encoded.page_count, written.count), (2, 2));
        assert_eq!(words(&bytes), [0, 64, 6, 1, 4160, 5]);
        let expected = [[0, 0, 0, 0], [1, 4096, 0, 0]];
        assert_eq!(words(&encoded.pages), expected.concat());
        for odd in [watch(2, 0, 1), watch(0, 8, 1)] {
            assert!(WrittenWatches::encoded(&[odd], &[0, 1]).is_err());
        }
    }

    #[test]
    fn watches_are_written_when_they_change() {
        let file = SharedFile::create().unwrap();
        let empty = table(vec![], vec![]);
        let mut written = None;
        let mut write = |offset: u64, places: &[u32]| {
            let watch = Watch {
                offset,
                bytes: 1,
                ..Watch::default()
            };
            let orders = Orders {
                prefix: &[],
                watches: &[watch],
                flags: 0,
            };
            file.write(WATCHES_AT, &[0; size_of::<Watch>()]).unwrap();
            write_table(&file, &empty, places, orders, &mut written).unwrap();
            assert_eq!(file.word(control!(watch_count)).unwrap(), 1);
            assert_eq!(file.word(control!(page_count)).unwrap(), 1);
            file.read(WATCHES_AT, size_of::<Watch>()).unwrap() != [0; size_of::<Watch>()]
        };
        assert!(write(64, &[0]));
        assert!(!write(64, &[0]), "they are there");
        assert!(write(128, &[0]));
        assert!(write(128, &[1]), "another pool");
        assert!(!write(128, &[1]));
        assert!(write(64, &[1]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for lines in [
            vec![line(1, 0, 2)],
            vec![line(0, 8, 2)],
            vec![line(0, 0, 0)],
        ] {
            assert!(Encoded::of(&table(lines, vec![]), &[], &[0]).is_err());
        }
        let mut odd = table(vec![], vec![]);
        for line_bytes in [0, 1, 96, 8192] {
            odd.line_bytes = line_bytes;
            assert!(Encoded::of(&odd, &[], &[0]).is_err());
        }
    }
}
