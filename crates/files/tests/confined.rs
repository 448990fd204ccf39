//! Names from files, and outputs: nothing outside is read, written or emptied, whatever lies in the directory.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use powerfail_files::{Directory, input, is_beneath, output};

/// A directory `inside` with all kinds of traps, beside a file that must not change.
struct Place(tempfile::TempDir);

const PRECIOUS: &str = "precious";

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(place.path("inside/deep")).unwrap();
        fs::create_dir(place.path("elsewhere")).unwrap();
        fs::write(place.path("precious"), PRECIOUS).unwrap();
        fs::write(place.path("inside/deep/file"), "good").unwrap();
        symlink(place.path("precious"), place.path("inside/link")).unwrap();
        symlink("../../precious", place.path("inside/deep/link")).unwrap();
        symlink(place.path("elsewhere"), place.path("inside/directory")).unwrap();
        symlink(place.path("elsewhere/new"), place.path("inside/dangling")).unwrap();
        fs::hard_link(place.path("precious"), place.path("inside/hard")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            place.path("inside/fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn inside(&self) -> Directory {
        Directory::open(&self.path("inside")).unwrap()
    }

    #[track_caller]
    fn is_unchanged(&self) {
        assert_eq!(fs::read_to_string(self.path("precious")).unwrap(), PRECIOUS);
        assert_eq!(fs::read_dir(self.path("elsewhere")).unwrap().count(), 0);
    }
}

/// Names that do not lead to a regular file in the directory, with what is said of them.
fn traps(place: &Place) -> Vec<(PathBuf, &'static str)> {
    vec![
        ("../precious".into(), "outside"),
        ("deep/../../precious".into(), "outside"),
        (place.path("precious"), "outside"),
        ("".into(), "outside"),
        ("link".into(), "symbolic link"),
        ("deep/link".into(), "symbolic link"),
        ("directory/new".into(), "symbolic link"),
        ("dangling".into(), "symbolic link"),
    ]
}

#[test]
fn a_name_does_not_lead_outside() {
    let place = Place::new();
    let inside = place.inside();
    for (name, words) in traps(&place) {
        let error = inside.read(&name).unwrap_err().to_string();
        assert!(error.contains(words), "{}: {error}", name.display());
        inside.create_file(&name).unwrap_err();
        inside
            .copy(&fs::File::open("/dev/null").unwrap(), &name)
            .unwrap_err();
    }
    for name in ["..", "directory", "directory/more", "/", "link"] {
        inside.create_directory(name.as_ref()).unwrap_err();
        inside.directory(name.as_ref()).unwrap_err();
    }
    inside.files_below("".as_ref()).unwrap_err();
    for name in ["", ".", "..", "a/../b", "/a"] {
        assert!(!is_beneath(name.as_ref()), "{name}");
    }
    assert!(is_beneath("a/b".as_ref()) && is_beneath("./..a".as_ref()));
    place.is_unchanged();
}

#[test]
fn what_is_no_file_is_not_read_and_not_waited_for() {
    let place = Place::new();
    for name in ["fifo", "deep"] {
        let error = place.inside().read(name.as_ref()).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        let path = place.path("inside").join(name);
        assert_eq!(input::open(&path).unwrap_err().to_string(), error);
    }
    let error = input::read(&place.path("inside/link")).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    let file = input::read(&place.path("inside/deep/file")).unwrap();
    assert_eq!(file, b"good");
}

#[test]
fn what_lies_inside_is_read_and_made() {
    let place = Place::new();
    let inside = place.inside();
    for name in ["deep/file", "./deep/./file"] {
        let mut text = String::new();
        let mut file = inside.read(name.as_ref()).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "good");
    }
    inside.create_directory("deep/new/newer".as_ref()).unwrap();
    inside.create_file("deep/new/newer/file".as_ref()).unwrap();
    let found = inside.files_below("deep/new".as_ref()).unwrap();
    assert_eq!(found, [Path::new("deep/new/newer/file")]);
    assert!(inside.files_below("missing".as_ref()).unwrap().is_empty());
    // What exists is not made again.
    inside.create_file("deep/file".as_ref()).unwrap_err();
    inside.create_file("hard".as_ref()).unwrap_err();
    place.is_unchanged();
}

/// A file of others may claim to be longer than any disk.
#[test]
fn a_copy_takes_no_more_room_than_its_original() {
    const LEN: u64 = 1 << 42;
    let place = Place::new();
    let inside = place.inside();
    let file = inside.create_file("long".as_ref()).unwrap();
    file.set_len(LEN).unwrap();
    file.write_all_at(b"content", LEN / 2).unwrap();
    inside.copy(&file, "copy".as_ref()).unwrap();
    output::copy(&place.path("inside/long"), &place.path("outside")).unwrap();
    for copy in ["inside/copy", "outside"] {
        let copy = File::open(place.path(copy)).unwrap();
        let metadata = copy.metadata().unwrap();
        assert_eq!(metadata.len(), LEN);
        assert!(metadata.blocks() <= 2 * file.metadata().unwrap().blocks());
        let mut read = [0; 7];
        copy.read_exact_at(&mut read, LEN / 2).unwrap();
        assert_eq!(&read, b"content");
    }
}

#[test]
fn a_file_that_is_too_long_is_an_error() {
    let place = Place::new();
    let read = |limit| place.inside().read_bytes("deep/file".as_ref(), limit);
    assert_eq!(read(4).unwrap(), b"good");
    assert!(
        read(3)
            .unwrap_err()
            .to_string()
            .contains("longer than 3 bytes")
    );
}

#[test]
fn an_output_is_not_written_through_a_link() {
    let place = Place::new();
    for (name, words) in [
        ("inside/link", "symbolic link"),
        ("inside/dangling", "symbolic link"),
        ("inside/hard", "hard link"),
        ("inside/fifo", "not a regular file"),
    ] {
        for attempt in [output::open, output::create] {
            let error = attempt(&place.path(name)).unwrap_err().to_string();
            assert!(error.contains(words), "{name}: {error}");
        }
    }
    output::copy(Path::new("/dev/null"), &place.path("inside/link")).unwrap_err();
    for name in ["inside/directory", "inside/dangling"] {
        Directory::create(&place.path(name)).unwrap_err();
        Directory::create_new(&place.path(name)).unwrap_err();
        output::refuse_link(&place.path(name)).unwrap_err();
    }
    place.is_unchanged();
}

#[test]
fn a_link_is_replaced_and_what_it_points_to_stays() {
    let place = Place::new();
    for name in ["inside/link", "inside/dangling", "inside/hard"] {
        let path = place.path(name);
        let name = path.file_name().unwrap().to_str().unwrap();
        let unfinished = path.with_file_name(format!(".{name}.new"));
        symlink(place.path("precious"), unfinished).unwrap();
        output::replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }
    place.is_unchanged();
}

#[test]
fn an_output_is_opened_with_its_content_and_emptied_where_that_is_wanted() {
    let place = Place::new();
    let path = place.path("inside/deep/file");
    output::open(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"good");
    output::create(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    Directory::create(&place.path("inside/deep/a/b")).unwrap();
    Directory::create(&place.path("inside/deep/a/b")).unwrap();
    Directory::create_new(&place.path("inside/deep/a/b")).unwrap_err();
}

#[test]
fn directories_change_places() {
    let directory = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
    for path in [&one, &other] {
        std::fs::create_dir(path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        std::fs::write(path.join("name"), name).unwrap();
    }
    powerfail_files::output::exchange(&one, &other).unwrap();
    let name = |path: &std::path::Path| std::fs::read_to_string(path.join("name")).unwrap();
    assert_eq!((name(&one), name(&other)), ("other".into(), "one".into()));
    assert!(powerfail_files::output::exchange(&one, &directory.path().join("none")).is_err());
}
