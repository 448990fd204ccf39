//! A slot for trees is exact, whatever was done to it.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use powerfail_image::{
    FileContent, NodeKey, NodeSet, RunDirectory, TreeEntry, TreeFile, TreeImage, TreeSlot,
    write_tree,
};
use proptest::prelude::*;

const MODE: u32 = 0o644;

/// What is found on disk: kind, permissions, inode if it is a file, and content or target.
type Found = BTreeMap<PathBuf, (char, u32, Option<u64>, Vec<u8>)>;

fn look(root: &Path) -> Found {
    let mut found = Found::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let mode = metadata.mode() & 0o7777;
        let relative = path.strip_prefix(root).unwrap().to_path_buf();
        if metadata.is_dir() {
            found.insert(relative, ('d', mode, None, Vec::new()));
            let entries = fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| entry.unwrap().path()));
        } else if metadata.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            let target = target.to_str().unwrap().as_bytes().to_vec();
            found.insert(relative, ('l', 0, None, target));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(relative, ('f', mode, Some(metadata.ino()), content));
        }
    }
    found
}

/// Compares a directory with an image: names, kinds, permissions, hard links and bytes.
fn assert_exact(image: &TreeImage, root: &Path) {
    let found = look(root);
    let mut inodes: BTreeMap<u64, NodeKey> = BTreeMap::new();
    for (path, entry) in &image.entries {
        let relative = path.strip_prefix("0").unwrap();
        let (kind, mode, inode, content) = &found[relative];
        match entry {
            TreeEntry::Directory { mode: wanted } => assert_eq!((*kind, mode), ('d', wanted)),
            TreeEntry::Link { target } => {
                assert_eq!(*kind, 'l');
                assert_eq!(target.to_str().unwrap().as_bytes(), content);
            }
            TreeEntry::File(node) => {
                let wanted = &image.files[node];
                assert_eq!((*kind, *mode), ('f', wanted.mode), "{}", path.display());
                assert_eq!(*content, wanted.content.to_vec(), "{}", path.display());
                let known = inodes.entry(inode.unwrap()).or_insert(*node);
                assert_eq!(known, node, "{} is a hard link", path.display());
            }
        }
    }
    assert_eq!(found.len(), image.entries.len(), "{found:?}");
    let named = image.entries.values();
    let named = named
        .filter(|entry| matches!(entry, TreeEntry::File(_)))
        .count();
    let links: u64 = inodes.len() as u64;
    assert!(links as usize <= named);
}

fn image_of(files: &[(&str, u64, &[u8])]) -> TreeImage {
    let mut image = TreeImage::default();
    image
        .entries
        .insert("0".into(), TreeEntry::Directory { mode: 0o755 });
    for (path, node, bytes) in files {
        let path = Path::new("0").join(path);
        for parent in path
            .ancestors()
            .skip(1)
            .filter(|it| !it.as_os_str().is_empty())
        {
            let directory = TreeEntry::Directory { mode: 0o755 };
            image.entries.insert(parent.to_path_buf(), directory);
        }
        image.entries.insert(path, TreeEntry::File(NodeKey(*node)));
        let mut content = FileContent::default();
        content.write(0, bytes);
        image.files.insert(
            NodeKey(*node),
            TreeFile {
                mode: MODE,
                content,
            },
        );
    }
    image
}

fn new_slot(run: &RunDirectory) -> (TreeSlot, PathBuf) {
    let slot = run.tree_slot(0, vec!["/original".into()]);
    let place = slot.roots().next().unwrap().1;
    (slot, place)
}

#[test]
fn a_rename_costs_a_rename() {
    let parent = tempfile::tempdir().unwrap();
    let run = RunDirectory::create_in(parent.path()).unwrap();
    let (mut slot, place) = new_slot(&run);
    let long = vec![7; 3 << 20];
    let before = image_of(&[("config", 1, b"old"), ("config.tmp", 2, &long)]);
    let after = image_of(&[("config", 2, &long)]);
    let neither = image_of(&[]);
    slot.prepare(&before).unwrap();
    for image in [&after, &before, &neither, &after, &before] {
        let prepared = slot.prepare(image).unwrap();
        assert_eq!((prepared.pages_written, prepared.files_created), (0, 0));
        assert_exact(image, &place);
    }
}

#[test]
fn one_page_that_differs_is_one_page_written() {
    let parent = tempfile::tempdir().unwrap();
    let run = RunDirectory::create_in(parent.path()).unwrap();
    let (mut slot, place) = new_slot(&run);
    let long = vec![1; 200_000];
    let first = image_of(&[("data", 1, &long)]);
    let mut second = first.clone();
    second
        .files
        .get_mut(&NodeKey(1))
        .unwrap()
        .content
        .write(5000, b"new");
    slot.prepare(&first).unwrap();
    let prepared = slot.prepare(&second).unwrap();
    assert_eq!((prepared.pages_written, prepared.files_compared), (1, 0));
    assert_exact(&second, &place);
}

/// On a file system in memory, changes through a mapping leave no sign in the times of a file.
#[test]
fn what_was_open_for_writing_is_compared() {
    for parent in [
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in("/dev/shm").unwrap(),
    ] {
        let run = RunDirectory::create_in(parent.path()).unwrap();
        let (mut slot, place) = new_slot(&run);
        let image = image_of(&[("a", 1, b"aaaa"), ("b", 2, b"bbbb")]);
        slot.prepare(&image).unwrap();
        let file = File::options().write(true).open(place.join("a")).unwrap();
        file.write_all_at(b"x", 2).unwrap();
        drop(file);
        let read = fs::read(place.join("b")).unwrap();
        assert_eq!(read, b"bbbb");
        let prepared = slot.prepare(&image).unwrap();
        assert_eq!((prepared.files_compared, prepared.pages_written), (1, 1));
        assert_exact(&image, &place);
    }
}

#[test]
fn a_slot_says_what_recovery_has_opened_and_changed() {
    let parent = tempfile::tempdir().unwrap();
    let run = RunDirectory::create_in(parent.path()).unwrap();
    let (mut slot, place) = new_slot(&run);
    let image = image_of(&[("a", 1, b"aaaa"), ("b", 2, b"bbbb")]);
    slot.prepare(&image).unwrap();
    let used = slot.used();
    assert!(used.opened.is_empty() && !used.is_changed, "{used:?}");
    fs::read(place.join("a")).unwrap();
    let used = slot.used();
    let opened = [1, 2].map(|node| used.opened.contains(NodeKey(node)));
    assert_eq!((opened, used.is_changed), ([true, false], false));
    let changes: [&dyn Fn(); 3] = [
        &|| fs::write(place.join("b"), "new").unwrap(),
        &|| fs::rename(place.join("a"), place.join("c")).unwrap(),
        &|| fs::write(place.join("new"), "").unwrap(),
    ];
    for change in changes {
        slot.prepare(&image).unwrap();
        change();
        assert!(slot.used().is_changed);
        // What was asked for does not get lost.
        slot.prepare(&image).unwrap();
        assert_exact(&image, &place);
    }
}

#[test]
fn trees_that_differ_in_what_is_not_read_have_one_digest() {
    let image = image_of(&[("a", 1, b"aaaa"), ("b", 2, b"bbbb")]);
    let other = image_of(&[("a", 1, b"aaaa"), ("b", 2, b"cccc")]);
    let longer = image_of(&[("a", 1, b"aaaa"), ("b", 2, b"bbbbb")]);
    let read = |node| NodeSet::Nodes([NodeKey(node)].into());
    let digests = |read: &NodeSet| [&image, &other, &longer].map(|it| it.digest_as_read(read));
    let [one, two, three] = digests(&read(1));
    assert!(one == two && one != three);
    let [one, two, three] = digests(&read(2));
    assert!(one != two && one != three);
    assert_eq!(image.digest_as_read(&NodeSet::Everything), image.digest(),);
}

/// Damage that a recovery can do.
fn damage(kind: u8, root: &Path, name: &str) {
    let path = root.join(name);
    let _ = match kind {
        0 => fs::remove_file(&path),
        1 => fs::remove_dir_all(&path),
        2 => fs::write(&path, "other"),
        3 => File::options()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"more")),
        4 => fs::rename(&path, root.join("moved")),
        5 => fs::hard_link(&path, root.join("link")),
        6 => fs::remove_file(&path).and_then(|()| std::os::unix::fs::symlink("/etc", &path)),
        7 => fs::set_permissions(&path, Permissions::from_mode(0o0)),
        8 => fs::create_dir(&path),
        9 => fs::create_dir_all(root.join("new/deep"))
            .and_then(|()| fs::rename(&path, root.join("new/deep/x"))),
        10 => File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(2)),
        _ => fs::remove_dir_all(root),
    };
}

const NAMES: [&str; 6] = ["a", "b", "c", "d/a", "d/e/b", "d/f"];

fn any_image() -> impl Strategy<Value = TreeImage> {
    let file = (0..NAMES.len(), 0..4_u64, 0..5_usize, any::<u8>());
    (
        prop::collection::vec(file, 0..6),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(files, has_link, is_closed)| {
            let contents: Vec<Vec<u8>> = files
                .iter()
                .map(|(_, _, len, byte)| vec![*byte; len * 3000])
                .collect();
            let files = files.iter().zip(&contents);
            let files: Vec<(&str, u64, &[u8])> = files
                .map(|((name, node, ..), bytes)| (NAMES[*name], *node, &bytes[..]))
                .collect();
            let mut image = image_of(&files);
            if has_link {
                let target = PathBuf::from("a");
                image
                    .entries
                    .insert("0/s".into(), TreeEntry::Link { target });
            }
            if is_closed
                && let Some(TreeEntry::Directory { mode }) = image.entries.get_mut(Path::new("0/d"))
            {
                *mode = 0o500;
            }
            image
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_slot_is_exact_after_any_damage(
        steps in prop::collection::vec((any_image(), prop::collection::vec((0..12_u8, 0..NAMES.len()), 0..4)), 1..6)
    ) {
        let parent = tempfile::tempdir().unwrap();
        let run = RunDirectory::create_in(parent.path()).unwrap();
        let (mut slot, place) = new_slot(&run);
        for (number, (image, damages)) in steps.iter().enumerate() {
            slot.prepare(image).unwrap();
            assert_exact(image, &place);
            let written = parent.path().join(number.to_string());
            fs::create_dir(&written).unwrap();
            write_tree(image, 1, &written).unwrap();
            assert_exact(image, &written);
            for (kind, name) in damages {
                damage(*kind, &place, NAMES[*name]);
            }
        }
    }
}
