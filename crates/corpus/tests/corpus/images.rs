//! Images are kept once, found again, and made again from the tree.

use powerfail_corpus::{Contents, CorpusError, Images};

use crate::common::{Program, TestResult, edge, open, run};

#[test]
fn an_image_is_kept_once_and_found_again() -> TestResult {
    let directory = tempfile::tempdir()?;
    let images = open(directory.path())?;
    let create = edge("create\n", None);
    let pool = run(&Contents::default(), &create);
    let (id, new) = images.insert(Images::empty(), &create, &pool)?;
    assert!(new);
    let set = edge("set 1\n", Some(3));
    let child = run(&pool, &set);
    let (child_id, new) = images.insert(id, &set, &child)?;
    assert!(new);
    assert_eq!(images.insert(id, &set, &child)?, (child_id, false));
    assert_eq!(images.len(), 3);
    drop(images);
    let images = open(directory.path())?;
    assert_eq!(images.len(), 3);
    assert_eq!(*images.load(child_id)?, child);
    assert_eq!(*images.load(id)?, pool);
    assert_eq!(*images.load(Images::empty())?, Contents::default());
    assert_eq!(images.path(child_id)?, [create, set]);
    assert_eq!(images.depth(child_id)?, 2);
    let mut program = Program::default();
    assert_eq!(images.rebuild(child_id, &mut program)?, child);
    assert_eq!(program.runs, 2);
    let unknown = "00".repeat(32).parse()?;
    assert!(matches!(images.load(unknown), Err(CorpusError::UnknownImage(id)) if id == unknown));
    Ok(())
}
