//! Images are stored once, found again, and rebuilt from the tree.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use powerfail_fuzz_store::{DirectoryContents, Edge, Images, InputRepair, Rebuild, StoreError};

use crate::common::{Program, TestResult, edge, open, run, small};

#[test]
fn an_image_is_kept_once_and_found_again() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    assert!(images.is_empty());
    let create = edge("create\n", None);
    let pool = run(&DirectoryContents::default(), &create);
    let (id, new) = images.insert(Images::empty(), &create, &pool)?;
    assert!(new);
    let set = edge("set 1\n", Some(3));
    let child = run(&pool, &set);
    let (child_id, new) = images.insert(id, &set, &child)?;
    assert!(new);
    let bytes = images.bytes_on_disk()?;
    assert_eq!(images.insert(id, &set, &child)?, (child_id, false));
    assert_eq!(images.bytes_on_disk()?, bytes);
    drop(images);
    let images = open(directory.path())?;
    assert_eq!(images.len(), 3);
    assert_eq!(*images.load(child_id)?, child);
    assert_eq!(*images.load(id)?, pool);
    assert_eq!(*images.load(Images::empty())?, DirectoryContents::default());
    assert_eq!(images.path(child_id)?, [create, set.clone()]);
    assert_eq!(images.depth(child_id)?, 2);
    assert_eq!(images.edge(child_id)?, Some(set));
    let node = images.node(child_id)?;
    assert_eq!((node.parent, node.failure_point), (Some(id), Some(3)));
    let ids: Vec<_> = images.nodes().iter().map(|node| node.id).collect();
    assert_eq!(ids, [Images::empty(), id, child_id]);
    assert_eq!(images.verify().len(), 0);
    let unknown = "00".repeat(32).parse()?;
    assert!(matches!(images.load(unknown), Err(StoreError::UnknownImage(id)) if id == unknown));
    Ok(())
}

#[test]
fn loaded_images_share_their_pages() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let pool = run(&DirectoryContents::default(), &edge("", None));
    let (id, _) = images.insert_root("pool", &pool)?;
    let set = edge("set\n", Some(1));
    let (child, _) = images.insert(id, &set, &run(&pool, &set))?;
    drop(images);
    let images = open(directory.path())?;
    // The child first: that also loads its base into the cache.
    let (child, pool) = (images.load(child)?, images.load(id)?);
    let pages = |contents: &DirectoryContents| contents.files["pool"].pages.clone();
    let same = |number: &u64| Arc::ptr_eq(&pages(&pool)[number], &pages(&child)[number]);
    assert_eq!(
        pages(&pool).keys().filter(|number| !same(number)).count(),
        1
    );
    let all = images.cache_bytes();
    images.set_cache_limit(all - 1);
    assert!(images.cache_bytes() < all);
    Ok(())
}

/// Hashes of pages are cached while pages are stored, and are never used for other pages.
#[test]
fn an_image_is_identified_by_its_bytes_whatever_is_remembered() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let mut contents = run(&DirectoryContents::default(), &edge("", None));
    let (mut id, _) = images.insert_root("pool", &contents)?;
    for number in 0..16 {
        let step = edge(&format!("{number}"), None);
        // Some contents share pages with the stored image, some have their own pages; some are evicted immediately.
        let from = if number % 3 == 0 {
            (*images.load(id)?).clone()
        } else {
            contents
        };
        images.set_cache_limit(if number % 7 == 0 { 0 } else { 1 << 20 });
        contents = run(&from, &step);
        drop(from);
        assert_eq!(images.identify(&contents), contents.id());
        (id, _) = images.insert(id, &step, &contents)?;
        assert_eq!(id, contents.id());
        // A page without another owner may change in place.
        let pool = contents.files.get_mut("pool").ok_or("a pool")?;
        for page in pool.pages.values_mut() {
            Arc::make_mut(page)[17] ^= 1;
        }
        assert_eq!(images.identify(&contents), contents.id());
    }
    assert!(images.verify().is_empty());
    Ok(())
}

/// A chain of images much longer than the limit for chained differences, and many children at its end.
#[test]
fn deep_images_load_and_are_rebuilt() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let create = edge("create\n", None);
    let mut contents = run(&DirectoryContents::default(), &create);
    let (mut id, _) = images.insert(Images::empty(), &create, &contents)?;
    let whole_bytes = images.bytes_on_disk()?;
    let mut kept = vec![(id, contents.clone())];
    for number in 0..48 {
        let step = edge(&format!("set {number}\n"), (number % 3 == 0).then_some(5));
        contents = run(&contents, &step);
        (id, _) = images.insert(id, &step, &contents)?;
        kept.push((id, contents.clone()));
    }
    for number in 0..12 {
        let step = edge(&format!("leaf {number}\n"), None);
        let leaf = run(&contents, &step);
        kept.push((images.insert(id, &step, &leaf)?.0, leaf));
    }
    let bytes = images.bytes_on_disk()? - whole_bytes;
    assert!(bytes < 60 * 700, "{bytes} bytes for 60 images");
    drop(images);
    let images = open(directory.path())?;
    images.set_cache_limit(0);
    for (id, contents) in &kept {
        assert_eq!(*images.load(*id)?, *contents);
    }
    assert_eq!(images.cache_bytes(), 0);
    // The tree alone is sufficient.
    fs::remove_file(directory.path().join("images.pack"))?;
    let images = open(directory.path())?;
    let mut program = Program::default();
    let (id, contents) = kept.last().expect("an image");
    assert!(matches!(images.load(*id), Err(StoreError::Missing { .. })));
    assert_eq!(images.rebuild(*id, &mut program)?, *contents);
    assert_eq!(program.runs, 50);
    // A rebuilt image is a base for later ones.
    assert!(images.restore(contents)? && !images.restore(contents)?);
    assert_eq!(*images.load(*id)?, *contents);
    let step = edge("more\n", None);
    let more = run(contents, &step);
    let (more_id, _) = images.insert(*id, &step, &more)?;
    drop(images);
    let images = open(directory.path())?;
    assert_eq!(*images.load(*id)?, *contents);
    assert_eq!(*images.load(more_id)?, more);
    Ok(())
}

#[test]
fn the_shortest_way_is_the_path() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let a = edge("a", None);
    let (one, _) = images.insert(Images::empty(), &a, &small(1))?;
    let (two, _) = images.insert(one, &a, &small(2))?;
    let (three, _) = images.insert(two, &a, &small(3))?;
    let (four, _) = images.insert(three, &a, &small(4))?;
    assert_eq!(images.depth(four)?, 4);
    // A longer path, a cycle and a path of equal length are ignored.
    assert_eq!(
        images.insert(four, &edge("b", None), &small(2))?,
        (two, false)
    );
    assert_eq!(
        images.insert(one, &edge("b", None), &small(1))?,
        (one, false)
    );
    assert_eq!(
        images.insert(one, &edge("b", None), &small(2))?,
        (two, false)
    );
    assert_eq!(images.path(four)?, vec![a.clone(); 4]);
    // A shorter path is used, also for the images after it.
    let short = edge("c", Some(9));
    assert_eq!(images.insert(one, &short, &small(3))?, (three, false));
    assert_eq!(images.path(four)?, [a.clone(), short.clone(), a.clone()]);
    // The same number of edges, but fewer bytes.
    let shorter = edge("", Some(10));
    assert_eq!(images.insert(one, &shorter, &small(3))?, (three, false));
    let path = [a.clone(), shorter, a.clone()];
    assert_eq!(images.path(four)?, path);
    let images = open(directory.path())?;
    assert_eq!(images.path(four)?, path);
    assert_eq!(*images.load(four)?, small(4));
    // A root image needs no path at all.
    assert_eq!(images.insert_root("three", &small(3))?, (three, false));
    assert_eq!(images.path(four)?, [a]);
    let images = open(directory.path())?;
    assert_eq!(images.depth(four)?, 1);
    assert_eq!(images.node(three)?.name.as_deref(), Some("three"));
    let mut never = Elsewhere(None);
    assert_eq!(images.rebuild(three, &mut never)?, small(3));
    Ok(())
}

#[test]
fn long_inputs_are_kept_once_and_need_no_pack_of_images() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let input: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut path = Vec::new();
    let mut id = Images::empty();
    for number in 0..10 {
        let edge = Edge {
            input: input.clone(),
            failure_point: Some(number),
        };
        (id, _) = images.insert(id, &edge, &small(number))?;
        path.push(edge);
    }
    drop(images);
    fs::remove_file(directory.path().join("images.pack"))?;
    let images = open(directory.path())?;
    assert_eq!(images.path(id)?, path);
    let edge = Edge {
        input,
        failure_point: None,
    };
    images.insert(id, &edge, &small(77))?;
    assert!(images.bytes_on_disk()? < 400_000);
    // Without the inputs, the tree reports the error.
    fs::remove_file(directory.path().join("inputs.pack"))?;
    let images = open(directory.path())?;
    assert!(matches!(images.path(id), Err(StoreError::Damaged { .. })));
    Ok(())
}

#[test]
fn long_inputs_are_stored_again_from_those_that_are_known() -> TestResult {
    let input =
        |number: u32| -> Vec<u8> { (number..number + 999).flat_map(u32::to_le_bytes).collect() };
    let damages: [fn(&Path) -> io::Result<()>; 4] = [
        |pack| fs::remove_file(pack),
        |pack| fs::write(pack, ""),
        |pack| {
            let bytes = fs::read(pack)?;
            fs::write(pack, &bytes[..bytes.len() / 2])
        },
        |pack| {
            let mut bytes = fs::read(pack)?;
            for byte in bytes.iter_mut().step_by(211) {
                *byte ^= 0x10;
            }
            fs::write(pack, bytes)
        },
    ];
    for damage in damages {
        let directory = tempfile::tempdir()?;
        let pack = directory.path().join("inputs.pack");
        let images = open(directory.path())?;
        let mut ids = Vec::new();
        for number in 0..5 {
            let edge = Edge {
                input: input(number),
                failure_point: None,
            };
            let (id, _) = images.insert(Images::empty(), &edge, &small(number.into()))?;
            ids.push((id, [edge]));
        }
        drop(images);
        damage(&pack)?;
        let images = open(directory.path())?;
        let lost = ids.iter().filter(|(id, _)| images.path(*id).is_err());
        let lost = lost.count();
        assert!(lost > 1);
        // One is not known any more.
        let repaired = images.restore_inputs((0..4).map(input))?;
        assert_eq!((repaired.restored, repaired.lost), (lost - 1, 1));
        drop(images);
        let images = open(directory.path())?;
        for (id, path) in &ids[..4] {
            assert_eq!(images.path(*id)?, path);
        }
        assert!(images.path(ids[4].0).is_err());
        let repaired = images.restore_inputs((0..5).map(input))?;
        assert_eq!((repaired.restored, repaired.lost), (1, 0));
        assert_eq!(images.path(ids[4].0)?, ids[4].1);
        // A new input goes behind all of them.
        let edge = Edge {
            input: input(7),
            failure_point: None,
        };
        let (id, _) = images.insert(Images::empty(), &edge, &small(7))?;
        drop(images);
        let images = open(directory.path())?;
        ids.push((id, [edge]));
        for (id, path) in &ids {
            assert_eq!(images.path(*id)?, path);
        }
        let nothing = images.restore_inputs(std::iter::empty())?;
        assert_eq!(nothing, InputRepair::default());
    }
    Ok(())
}

/// A program that behaves differently now, or cannot be run.
struct Elsewhere(Option<DirectoryContents>);

impl Rebuild for Elsewhere {
    fn run(
        &mut self,
        _: &DirectoryContents,
        _: &[u8],
        failure_points: &[Option<u64>],
    ) -> io::Result<Vec<DirectoryContents>> {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let image = self.0.clone().ok_or_else(refused)?;
        Ok(vec![image; failure_points.len()])
    }
}

#[test]
fn an_edge_that_leads_elsewhere_is_named() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let (one, _) = images.insert(Images::empty(), &edge("a", None), &small(1))?;
    let (two, _) = images.insert(one, &edge("b", None), &small(2))?;
    let error = images.rebuild(two, &mut Elsewhere(Some(small(1)))).err();
    let Some(StoreError::OtherImage {
        edge,
        expected,
        got,
        ..
    }) = error
    else {
        panic!("{error:?}");
    };
    assert_eq!((edge, expected, got), (2, two, one));
    let error = images.rebuild(two, &mut Elsewhere(None)).err();
    assert!(
        matches!(error, Some(StoreError::Rebuild { edge: 1, .. })),
        "{error:?}"
    );
    Ok(())
}

#[test]
fn a_reader_sees_what_is_added_and_adds_nothing() -> TestResult {
    let directory = tempfile::tempdir()?;
    let reader = Images::follow(directory.path())?;
    assert!(reader.is_empty());
    let images = open(directory.path())?;
    let mut id = Images::empty();
    for number in 0..10 {
        (id, _) = images.insert(id, &edge("a", None), &small(number))?;
        assert_eq!(reader.refresh()?, 1);
        assert_eq!(*reader.load(id)?, small(number));
    }
    assert_eq!(reader.path(id)?, images.path(id)?);
    let refused = reader.insert(id, &edge("a", None), &small(99));
    assert!(matches!(refused, Err(StoreError::ReadOnly { .. })));
    let refused = reader.insert(Images::empty(), &edge("a", None), &small(9));
    assert!(matches!(refused, Err(StoreError::ReadOnly { .. })));
    Ok(())
}

#[test]
fn threads_share_the_images() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let images = &images;
            scope.spawn(move || {
                let mut id = Images::empty();
                for number in 0..40 {
                    // Every second image is also found by the other threads.
                    let value = if number % 2 == 0 {
                        number
                    } else {
                        1000 * thread + number
                    };
                    let edge = edge(&format!("{value}"), None);
                    (id, _) = images.insert(id, &edge, &small(value)).expect("room");
                    assert_eq!(*images.load(id).expect("it is kept"), small(value));
                }
            });
        }
    });
    assert_eq!(images.len(), 1 + 20 + 4 * 20);
    assert_eq!(open(directory.path())?.verify().len(), 0);
    Ok(())
}
