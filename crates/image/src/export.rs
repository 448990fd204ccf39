//! A crash image to keep: what `powerfail replay --image` writes.

use std::fs;
use std::path::{Path, PathBuf};

use powerfail_model::CrashState;

use crate::cursor::{ImageCursor, Patch};
use crate::error::{Context, Result};
use crate::layout::Layout;
use crate::private_file::PrivateFile;
use crate::slot::{bring_to, restore};

/// Writes the pools as a crash at the cursor leaves them, with `overlay` on top, into `directory`, which is
/// made if it is not there. Gives the path of each pool in the recorded run and of its image. Replaces nothing: a file
/// that is there already is an error.
pub fn write_image(
    cursor: &ImageCursor<'_>,
    state: &CrashState,
    overlay: &[Patch],
    layout: &Layout,
    directory: &Path,
) -> Result<Vec<(PathBuf, PathBuf)>> {
    let changed = cursor.changed_pages(state, overlay)?;
    for (_, relative) in layout.directories() {
        let path = directory.join(relative);
        fs::create_dir_all(&path).context("create", &path)?;
    }
    let mut written = Vec::new();
    for file in layout.pool_files() {
        let path = directory.join(&file.relative);
        let mut private = PrivateFile::create(&path, file.mode).context("create", &path)?;
        bring_to(&mut private, file, cursor, &changed).context("write", &path)?;
        written.push((file.original.clone(), path));
    }
    for companion in layout.companions() {
        let path = directory.join(&companion.relative);
        if !path.exists() {
            restore(&path, companion)?;
        }
    }
    Ok(written)
}
