//! The difference between two images: removed files, lengths, and the runs of bytes that changed in each page.
//!
//! A store changes a few bytes of a page. So only runs are written: where each begins, how long it is, and its new bytes. The difference to no files at all is the whole image, in the same form: bytes
//! that are zero are not written.
//!
//! Positions and bytes of runs are two streams, one after the other, because they compress better separately. The pack
//! compresses them.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use powerfail_image::{DirectoryContents, FileContents, PageBytes};
use powerfail_trace::PAGE_BYTES;
use powerfail_trace::varint::{put, take};

/// Runs that are no further apart than this are merged: a new run costs two bytes.
const MERGE_GAP_BYTES: usize = 3;

const ZERO: PageBytes = [0; PAGE_BYTES];

/// Encodes the difference from one image to another. Afterwards, the second image shares all equal pages with the first.
pub(crate) fn encode(base: &DirectoryContents, new: &mut DirectoryContents) -> Vec<u8> {
    let mut places = Vec::new();
    let mut bytes = Vec::new();
    let gone: Vec<_> = (base.files.keys())
        .filter(|name| !new.files.contains_key(*name))
        .collect();
    put(&mut places, gone.len() as u64);
    for name in gone {
        put_name(&mut places, name);
    }
    for (name, file) in &mut new.files {
        let old = base.files.get(name);
        encode_file(&mut places, &mut bytes, name, old, file);
    }
    let mut out = Vec::with_capacity(places.len() + bytes.len() + 4);
    put(&mut out, places.len() as u64);
    out.append(&mut places);
    out.append(&mut bytes);
    out
}

fn encode_file(
    places: &mut Vec<u8>,
    bytes: &mut Vec<u8>,
    name: &str,
    old: Option<&FileContents>,
    new: &mut FileContents,
) {
    let none = FileContents::default();
    let base = old.unwrap_or(&none);
    let mut pages = Vec::new();
    let mut count = 0_u64;
    let mut next = 0;
    let mut page = |number: u64, from: Option<&Arc<PageBytes>>, to: Option<&Arc<PageBytes>>| {
        put(&mut pages, number - next);
        next = number + 1;
        count += 1;
        match to {
            None => put(&mut pages, 0),
            Some(to) => encode_page(&mut pages, bytes, from.map_or(&ZERO, |page| page), to),
        }
    };
    // Both are sorted, so one pass finds all differences.
    let mut from = base.pages.iter().peekable();
    for (number, to) in &mut new.pages {
        while let Some((gone, old)) = from.next_if(|(old, _)| *old < number) {
            page(*gone, Some(old), None);
        }
        match from.next_if(|(old, _)| *old == number) {
            Some((_, old)) if Arc::ptr_eq(old, to) => {}
            Some((_, old)) if old == to => *to = Arc::clone(old),
            old => page(*number, old.map(|(_, page)| page), Some(to)),
        }
    }
    for (gone, old) in from {
        page(*gone, Some(old), None);
    }
    if old.is_some_and(|old| old.len_bytes == new.len_bytes) && count == 0 {
        return;
    }
    put_name(places, name);
    put(places, new.len_bytes);
    put(places, count);
    places.append(&mut pages);
}

/// Writes one more than the number of runs, and for each run its distance from the last one and its length.
fn encode_page(places: &mut Vec<u8>, bytes: &mut Vec<u8>, from: &PageBytes, to: &PageBytes) {
    let runs = runs(from, to);
    put(places, runs.len() as u64 + 1);
    let mut at = 0;
    for (start, end) in runs {
        put(places, (start - at) as u64);
        put(places, (end - start) as u64);
        bytes.extend_from_slice(&to[start..end]);
        at = end;
    }
}

/// Where two pages differ.
fn runs(from: &PageBytes, to: &PageBytes) -> Vec<(usize, usize)> {
    const WORD: usize = 8;
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let words = from.as_chunks::<WORD>().0.iter().zip(to.as_chunks().0);
    for (word, (old, new)) in words.enumerate() {
        if old == new {
            continue;
        }
        for byte in (0..WORD).filter(|byte| old[*byte] != new[*byte]) {
            let at = word * WORD + byte;
            match runs.last_mut() {
                Some((_, end)) if at - *end <= MERGE_GAP_BYTES => *end = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
    }
    runs
}

fn put_name(places: &mut Vec<u8>, name: &str) {
    put(places, name.len() as u64);
    places.extend_from_slice(name.as_bytes());
}

/// Applies a difference to an image. `None` if the difference does not belong to this image or is invalid; the image cannot
/// be used any more then.
pub(crate) fn apply(contents: &mut DirectoryContents, difference: &[u8]) -> Option<()> {
    let mut rest = difference;
    let len = take(&mut rest)?;
    let mut places = take_bytes(&mut rest, len)?;
    let mut bytes = rest;
    for _ in 0..take(&mut places)? {
        contents.files.remove(take_name(&mut places)?)?;
    }
    while !places.is_empty() {
        let name = take_name(&mut places)?;
        let file = match contents.files.get_mut(name) {
            Some(file) => file,
            None => contents.files.entry(name.to_owned()).or_default(),
        };
        file.len_bytes = take(&mut places)?;
        let mut next = 0_u64;
        for _ in 0..take(&mut places)? {
            let number = next.checked_add(take(&mut places)?)?;
            next = number.checked_add(1)?;
            apply_page(file, number, &mut places, &mut bytes)?;
        }
    }
    bytes.is_empty().then_some(())
}

fn apply_page(
    file: &mut FileContents,
    number: u64,
    places: &mut &[u8],
    bytes: &mut &[u8],
) -> Option<()> {
    let Some(runs) = take(places)?.checked_sub(1) else {
        return file.pages.remove(&number).map(drop);
    };
    let page = match file.pages.entry(number) {
        Entry::Occupied(page) => page.into_mut(),
        Entry::Vacant(none) => none.insert(Arc::new(ZERO)),
    };
    let page = Arc::make_mut(page);
    let mut at = 0_usize;
    for _ in 0..runs {
        let start = at.checked_add(usize::try_from(take(places)?).ok()?)?;
        let len = take(places)?;
        at = start.checked_add(usize::try_from(len).ok()?)?;
        page.get_mut(start..at)?
            .copy_from_slice(take_bytes(bytes, len)?);
    }
    Some(())
}

fn take_name<'a>(places: &mut &'a [u8]) -> Option<&'a str> {
    let len = take(places)?;
    let name = std::str::from_utf8(take_bytes(places, len)?).ok()?;
    // The pack may come from another user, so a file must not be made outside the directory.
    powerfail_files::is_beneath(name.as_ref()).then_some(name)
}

/// Removes bytes from the front; `None` if there are too few.
fn take_bytes<'a>(bytes: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    fn file() -> impl Strategy<Value = FileContents> {
        let store = (0..PAGE_BYTES, vec(any::<u8>(), 1..40));
        let page = vec(store, 0..4).prop_map(|stores| {
            let mut page = ZERO;
            for (at, bytes) in stores {
                let end = (at + bytes.len()).min(PAGE_BYTES);
                page[at..end].copy_from_slice(&bytes[..end - at]);
            }
            Arc::new(page)
        });
        let number = prop_oneof![0..6_u64, Just(1 << 40), Just(u64::MAX - 1)];
        (0..1_u64 << 50, btree_map(number, page, 0..5))
            .prop_map(|(len_bytes, pages)| FileContents { len_bytes, pages })
    }

    fn contents() -> impl Strategy<Value = DirectoryContents> {
        btree_map("pool|a/b|[a-z]{1,3}", file(), 0..4).prop_map(|files| DirectoryContents { files })
    }

    /// Two images of which the second is the first one with some of the files of another.
    fn pair() -> impl Strategy<Value = (DirectoryContents, DirectoryContents)> {
        (contents(), contents(), any::<bool>()).prop_map(|(base, mut new, related)| {
            if related {
                for (name, file) in &base.files {
                    let pages = file.pages.iter().map(|(n, page)| (*n, Arc::new(**page)));
                    let new = new
                        .files
                        .entry(name.clone())
                        .or_insert_with(|| file.clone());
                    new.pages.extend(pages);
                }
            }
            (base, new)
        })
    }

    proptest! {
        #[test]
        fn a_difference_leads_to_what_it_was_made_for((base, new) in pair()) {
            let mut shared = new.clone();
            let difference = encode(&base, &mut shared);
            prop_assert_eq!(&shared, &new);
            let mut applied = base.clone();
            prop_assert_eq!(apply(&mut applied, &difference), Some(()));
            prop_assert_eq!(&applied, &new);
            // Nothing is left to say, and it is said in two bytes.
            prop_assert_eq!(encode(&new, &mut shared).len(), 2);
        }

        #[test]
        fn bytes_that_are_no_difference_are_refused_or_are_one(
            (base, mut new) in pair(),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut difference = encode(&base, &mut new);
            for (at, byte) in changes {
                let at = at.index(difference.len());
                difference[at] = byte;
            }
            difference.truncate(cut.index(difference.len()) + 1);
            // Whatever it does, it does not panic, and takes no more memory than pages that are written.
            let mut applied = base;
            if apply(&mut applied, &difference).is_some() {
                prop_assert!(applied.files.len() < 20);
            }
        }
    }

    #[test]
    fn a_file_outside_of_the_directory_is_refused() {
        for name in ["../pool", "/pool", "a/../../pool", ""] {
            let mut new = DirectoryContents::default();
            new.files.entry(name.to_owned()).or_default().len_bytes = 8;
            let difference = encode(&DirectoryContents::default(), &mut new);
            let mut applied = DirectoryContents::default();
            assert_eq!(apply(&mut applied, &difference), None, "{name}");
        }
    }

    #[test]
    fn a_small_store_takes_few_bytes_and_equal_pages_are_shared() {
        let mut base = DirectoryContents::default();
        let file = base.files.entry("pool".to_owned()).or_default();
        file.len_bytes = 8 << 20;
        for number in 0..100 {
            file.set_page(number, &[number as u8 + 1; PAGE_BYTES]);
        }
        let mut new = base.clone();
        for page in new
            .files
            .values_mut()
            .flat_map(|file| file.pages.values_mut())
        {
            *page = Arc::new(**page);
        }
        let mut page = [51; PAGE_BYTES];
        page[100..108].copy_from_slice(&[9; 8]);
        new.files
            .values_mut()
            .for_each(|file| file.set_page(50, &page));
        let difference = encode(&base, &mut new);
        assert!(difference.len() <= 32, "{}", difference.len());
        let pages = |contents: &DirectoryContents| contents.files["pool"].pages.clone();
        let shared = pages(&base)
            .iter()
            .filter(|(number, page)| Arc::ptr_eq(page, &pages(&new)[number]))
            .count();
        assert_eq!(shared, 99);
    }
}
