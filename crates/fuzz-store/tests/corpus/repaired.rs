//! What `images.pack` has lost is made again: whatever is cut off, removed or flipped, every image has the same bytes.

use std::fs;
use std::io;
use std::path::Path;

use powerfail_fuzz_store::{DirectoryContents, ImageId, Images, Rebuild, StoreError};
use powerfail_protocol::random::Random;

use crate::common::{Program, TestResult, edge, image_files, new_pool, open, run};

type Contents = Vec<(ImageId, DirectoryContents)>;

/// A tree in which single runs have made several images, with inputs of both kinds and a path that became shorter.
fn fill(directory: &Path) -> TestResult<Contents> {
    let images = open(directory)?;
    let create = edge("create\n", None);
    let mut made: Contents = Vec::new();
    let pool = run(&DirectoryContents::default(), &create);
    made.push((images.insert(Images::empty(), &create, &pool)?.0, pool));
    for number in 0..6 {
        let (parent, from) = made[number / 2].clone();
        let long = "x".repeat(if number % 3 == 0 { 300 } else { 3 });
        for failure_point in [Some(2), Some(5), None] {
            let step = edge(&format!("set {number} {long}\n"), failure_point);
            let contents = run(&from, &step);
            made.push((images.insert(parent, &step, &contents)?.0, contents));
        }
    }
    // The last one is also the image of one that came much later than its base.
    let (parent, from) = made[0].clone();
    let short = edge("short\n", None);
    let contents = run(&from, &short);
    let (id, _) = images.insert(parent, &short, &contents)?;
    let (deep, _) = made[made.len() - 1].clone();
    images.insert(deep, &edge("long\n", None), &contents)?;
    made.push((id, contents));
    Ok(made)
}

/// Copies the images with another pack, and repairs them.
fn repaired(from: &Path, made: &Contents, pack: Option<&[u8]>) -> TestResult<usize> {
    let directory = tempfile::tempdir()?;
    for (from, to) in image_files(from).iter().zip(image_files(directory.path())) {
        fs::copy(from, to)?;
    }
    let [path, ..] = image_files(directory.path());
    match pack {
        Some(bytes) => fs::write(&path, bytes)?,
        None => fs::remove_file(&path)?,
    }
    let images = open(directory.path())?;
    let damage = images.damage()?;
    for (id, contents) in made {
        match images.load(*id) {
            Ok(loaded) => assert_eq!(*loaded, *contents),
            Err(_) => assert!(damage.images.contains(id), "{damage:?}"),
        }
    }
    let mut program = Program::default();
    let repair = images.repair(&mut program)?;
    assert!(repair.lost.is_empty(), "{repair:?}");
    assert_eq!(repair.remade, damage.images);
    assert_eq!(repair.runs, program.runs as u64);
    drop(images);
    // The files alone have everything again.
    let images = open(directory.path())?;
    assert!(images.damage()?.is_none());
    for (id, contents) in made {
        assert_eq!(*images.load(*id)?, *contents);
        assert_eq!(images.load(*id)?.id(), *id);
    }
    Ok(program.runs)
}

#[test]
fn a_pack_that_is_cut_anywhere_is_made_again() -> TestResult {
    let directory = tempfile::tempdir()?;
    let made = fill(directory.path())?;
    let pack = fs::read(&image_files(directory.path())[0])?;
    assert_eq!(repaired(directory.path(), &made, Some(&pack))?, 0);
    let mut runs = Vec::new();
    for len in (0..pack.len()).step_by(pack.len() / 40).chain(0..10) {
        runs.push(repaired(directory.path(), &made, Some(&pack[..len]))?);
    }
    // One run for all images that it had made, not one for each.
    assert_eq!(runs.iter().max(), Some(&8), "{runs:?}");
    assert_eq!(repaired(directory.path(), &made, None)?, 8);
    Ok(())
}

#[test]
fn flipped_bytes_anywhere_are_made_again() -> TestResult {
    let directory = tempfile::tempdir()?;
    let made = fill(directory.path())?;
    let pack = fs::read(&image_files(directory.path())[0])?;
    let mut random = Random::new(7);
    for number in 0..60 {
        let mut flipped = pack.clone();
        // The first eight bytes, then one to four of the others.
        let count = if number < 8 { 1 } else { 1 + number % 4 };
        for _ in 0..count {
            let at = match number {
                0..8 => number,
                _ => random.below(pack.len() as u64) as usize,
            };
            flipped[at] ^= 1 << random.below(8);
        }
        repaired(directory.path(), &made, Some(&flipped))?;
    }
    Ok(())
}

#[test]
fn an_image_that_the_user_gave_is_restored_or_named_with_all_that_need_it() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let pool = new_pool();
    let (given, _) = images.insert_root("mine", &pool)?;
    let step = edge("set 1\n", None);
    let (child, _) = images.insert(given, &step, &run(&pool, &step))?;
    let create = edge("create\n", Some(3));
    let mut other = run(&DirectoryContents::default(), &create);
    other
        .files
        .insert("other".into(), other.files["pool"].clone());
    let (other_id, _) = images.insert(Images::empty(), &create, &other)?;
    drop(images);
    fs::remove_file(&image_files(directory.path())[0])?;
    let images = open(directory.path())?;
    let repair = images.repair(&mut Program::default())?;
    let lost: Vec<_> = repair.lost.iter().map(|(id, why)| (*id, &**why)).collect();
    assert!(
        matches!(
            lost[..],
            [
                (first, StoreError::GivenLost { .. }),
                (second, StoreError::ParentLost { parent, .. }),
                // The program does not make the second file.
                (third, StoreError::OtherImage { .. }),
            ] if first == given && second == child && third == other_id && *parent == given
        ),
        "{lost:?}"
    );
    assert_eq!(repair.remade, []);
    // The rest can be used, and what comes back is used again.
    assert_eq!(images.len(), 4);
    assert!(images.restore(&pool)?);
    let repair = images.repair(&mut Program::default())?;
    assert_eq!(repair.remade, [child]);
    assert_eq!(*images.load(child)?, run(&pool, &step));
    Ok(())
}

/// A program that can be run a number of times.
struct Until(usize);

impl Rebuild for Until {
    fn run(
        &mut self,
        from: &DirectoryContents,
        input: &[u8],
        failure_points: &[Option<u64>],
    ) -> io::Result<Vec<DirectoryContents>> {
        let left = self.0.checked_sub(1);
        self.0 = left.ok_or(io::ErrorKind::Interrupted)?;
        Program::default().run(from, input, failure_points)
    }
}

#[test]
fn an_interrupted_repair_continues_where_it_stopped() -> TestResult {
    let directory = tempfile::tempdir()?;
    let made = fill(directory.path())?;
    fs::remove_file(&image_files(directory.path())[0])?;
    for _ in 0..4 {
        let images = open(directory.path())?;
        let repair = images.repair(&mut Until(2));
        if repair.is_ok() {
            break;
        }
        assert!(matches!(repair, Err(StoreError::Interrupted)), "{repair:?}");
    }
    let images = open(directory.path())?;
    assert!(images.damage()?.images.is_empty());
    for (id, contents) in made {
        assert_eq!(*images.load(id)?, contents);
    }
    Ok(())
}
