//! What it costs to keep ten thousand images of a pool of 8 MiB: disk space, which is printed and checked, and the
//! time to store, load and open them.
//!
//! A run changes a log, some words of tables and a few records, in about ten pages. Of every four images, one is the
//! end of a run and three are crash images of it.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use powerfail_benches::Random;
use powerfail_fuzz_store::{DirectoryContents, Edge, ImageId, Images};
use powerfail_image::FileContents;

const IMAGES: usize = 10_000;
const POOL_BYTES: u64 = 8 << 20;
const POOL_PAGES: u64 = POOL_BYTES / 4096;
/// The limit that `powerfail fuzz` promises.
const LIMIT_BYTES: u64 = 500_000_000;

fn new_pool(random: &mut Random) -> DirectoryContents {
    let mut pool = FileContents {
        len_bytes: POOL_BYTES,
        ..FileContents::default()
    };
    for number in 0..400 {
        let mut page = [0; 4096];
        for record in page.as_chunks_mut::<64>().0 {
            record[..8].copy_from_slice(&random.word().to_le_bytes());
            record[16..32].copy_from_slice(b"a value of text.");
        }
        pool.set_page(number * 5, &page);
    }
    DirectoryContents {
        files: [("pool".to_owned(), pool)].into(),
    }
}

/// The effect of a run on a pool after some of its twenty stores.
fn run(from: &DirectoryContents, seed: u64, stores: u64) -> DirectoryContents {
    let mut random = Random::new(seed);
    let mut contents = from.clone();
    let pool = contents.files.get_mut("pool").expect("a pool");
    let heap = random.below(POOL_PAGES - 20) + 10;
    for store in 0..stores {
        let (page, len) = match store % 4 {
            // The log, whose entries hold the old content.
            0 => (1, 96),
            // Words of tables.
            1 | 2 => (2 + random.below(8), 8),
            // A record.
            _ => (heap + random.below(4), 120),
        };
        let at = 8 * random.below((4096 - len) / 8) as usize;
        let mut bytes = pool.pages.get(&page).map_or([0; 4096], |page| **page);
        for word in bytes[at..at + len as usize].as_chunks_mut::<8>().0 {
            *word = if random.below(2) == 0 {
                random.word()
            } else {
                store
            }
            .to_le_bytes();
        }
        pool.set_page(page, &bytes);
    }
    contents
}

fn edge(random: &mut Random, failure_point: Option<u64>) -> Edge {
    Edge {
        input: format!(
            "insert {}\nremove {}\n",
            random.below(1000),
            random.below(1000)
        )
        .into(),
        failure_point,
    }
}

fn fill(directory: &Path) -> Vec<ImageId> {
    let (images, _) = Images::open(directory).expect("a new directory");
    let mut random = Random::new(1);
    let pool = new_pool(&mut random);
    let (first, _) = images.insert_root("pool", &pool).expect("room");
    let mut ids = vec![first];
    while ids.len() < IMAGES {
        // Late images are chosen more often: the images of a campaign form long chains.
        let any = random.below(ids.len() as u64);
        let parent = ids[any.max(random.below(ids.len() as u64)) as usize];
        let from = images.load(parent).expect("it is kept");
        let seed = random.word();
        for failure_point in [Some(3), Some(9), Some(14), None] {
            let edge = edge(&mut random, failure_point);
            let contents = run(&from, seed, failure_point.unwrap_or(20));
            let (id, new) = images.insert(parent, &edge, &contents).expect("room");
            ids.extend(new.then_some(id));
        }
    }
    let bytes = images.bytes_on_disk().expect("files");
    println!("{} images: {bytes} bytes", ids.len());
    assert!(bytes < LIMIT_BYTES);
    ids
}

fn images(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a directory");
    let ids = fill(directory.path());
    let mut group = criterion.benchmark_group("corpus");
    group.sample_size(20);
    group.bench_function("open 10,000 images", |bencher| {
        bencher.iter(|| black_box(Images::open(directory.path()).expect("good").0.len()));
    });
    let (images, _) = Images::open(directory.path()).expect("good");
    let mut random = Random::new(2);
    let mut any = |ids: &[ImageId]| ids[random.below(ids.len() as u64) as usize];
    group.bench_function("load one of them", |bencher| {
        bencher.iter(|| images.load(any(&ids)).expect("good"));
    });
    images.set_cache_limit(0);
    group.bench_function("load one of them, nothing cached", |bencher| {
        bencher.iter(|| images.load(any(&ids)).expect("good"));
    });
    images.set_cache_limit(256 << 20);
    let parent = any(&ids);
    let from = images.load(parent).expect("good");
    group.bench_function("identify an image", |bencher| {
        bencher.iter(|| black_box(from.id()));
    });
    let mut random = Random::new(3);
    group.bench_function("keep a new one", |bencher| {
        bencher.iter_batched(
            || run(&from, random.word(), 20),
            |contents| {
                let edge = Edge {
                    input: b"insert 1\n".to_vec(),
                    failure_point: None,
                };
                images.insert(parent, &edge, &contents).expect("room")
            },
            criterion::BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, images);
criterion_main!(benches);
