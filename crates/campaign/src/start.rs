//! What a campaign begins with: inputs, images, tokens, a grammar.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use powerfail_corpus::{Images, TestCase};
use powerfail_fuzz::Grammar;
use powerfail_image::{Contents, FileContents, ImageId};

use crate::error::CampaignError;
use crate::options::CampaignOptions;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    pub(crate) cases: Vec<TestCase>,
    pub(crate) tokens: Vec<Vec<u8>>,
    pub(crate) grammar: Option<Arc<Grammar>>,
}

impl Beginning {
    /// Reads what the user has given, and keeps the images.
    pub(crate) fn read(options: &CampaignOptions, images: &Images) -> Result<Self, CampaignError> {
        let mut inputs = Vec::new();
        if let Some(directory) = &options.seeds {
            inputs = files_of(directory)?;
            if inputs.is_empty() {
                return Err(CampaignError::Wrong(format!(
                    "{} has no files, so there is no input to begin with",
                    directory.display()
                )));
            }
        }
        if inputs.is_empty() {
            inputs.push(b"\n".to_vec());
        }
        let mut roots = Vec::new();
        if let Some(directory) = &options.images {
            roots = images_of(directory, images)?;
        }
        if roots.is_empty() {
            roots.push(Images::empty());
        }
        let cases = roots.iter().flat_map(|image| {
            let case = |input: &Vec<u8>| TestCase {
                image: *image,
                input: input.clone(),
            };
            inputs.iter().map(case).collect::<Vec<_>>()
        });
        Ok(Self {
            cases: cases.collect(),
            tokens: tokens_of(options)?,
            grammar: grammar_of(options)?,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CampaignError> {
    fs::read(path).map_err(CampaignError::file(path))
}

/// The contents of all files of a directory, by name.
fn files_of(directory: &Path) -> Result<Vec<Vec<u8>>, CampaignError> {
    let entries = fs::read_dir(directory).map_err(CampaignError::file(directory))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.retain(|path| path.is_file());
    paths.iter().map(|path| read(path)).collect()
}

/// The images of a directory: files are pools, directories have the files of one image.
fn images_of(directory: &Path, images: &Images) -> Result<Vec<ImageId>, CampaignError> {
    let entries = fs::read_dir(directory).map_err(CampaignError::file(directory))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut roots = Vec::new();
    for path in paths {
        let contents = if path.is_dir() {
            Contents::read(&path).map_err(CampaignError::file(&path))?
        } else {
            let file = fs::File::open(&path).map_err(CampaignError::file(&path))?;
            let pool = FileContents::read(&file).map_err(CampaignError::file(&path))?;
            Contents {
                files: std::iter::once(("pool".to_owned(), pool)).collect(),
            }
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        roots.push(images.insert_root(&name, &contents)?.0);
    }
    Ok(roots)
}

/// Tokens of a dictionary as AFL++ reads it: `name="text"`, with `\\`, `\"` and `\x41`; lines with # are comments.
fn tokens_of(options: &CampaignOptions) -> Result<Vec<Vec<u8>>, CampaignError> {
    let Some(path) = &options.dictionary else {
        return Ok(Vec::new());
    };
    let text = read(path)?;
    let text = String::from_utf8_lossy(&text);
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let token = quoted(line).ok_or_else(|| {
            CampaignError::Wrong(format!(
                "{}:{}: a token is written as name=\"text\"",
                path.display(),
                number + 1
            ))
        })?;
        tokens.push(token);
    }
    Ok(tokens)
}

/// What stands between the quotation marks of a line.
fn quoted(line: &str) -> Option<Vec<u8>> {
    let start = line.find('"')? + 1;
    let end = line.rfind('"').filter(|end| *end >= start)?;
    let mut bytes = line.get(start..end)?.bytes();
    let mut token = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            token.push(byte);
            continue;
        }
        match bytes.next()? {
            b'x' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                token.push(u8::from_str_radix(digits, 16).ok()?);
            }
            b'n' => token.push(b'\n'),
            b't' => token.push(b'\t'),
            other => token.push(other),
        }
    }
    (!token.is_empty()).then_some(token)
}

fn grammar_of(options: &CampaignOptions) -> Result<Option<Arc<Grammar>>, CampaignError> {
    let Some(path) = &options.grammar else {
        return Ok(None);
    };
    let text = read(path)?;
    let text = String::from_utf8_lossy(&text);
    let grammar = text.parse::<Grammar>();
    let grammar =
        grammar.map_err(|error| CampaignError::Wrong(format!("{}: {error}", path.display())))?;
    Ok(Some(Arc::new(grammar)))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn tokens_are_read_as_afl_writes_them() {
        assert_eq!(quoted("put=\"put \""), Some(b"put ".to_vec()));
        assert_eq!(quoted("\"\\x00\\\"a\\\\\""), Some(b"\0\"a\\".to_vec()));
        assert_eq!(quoted("a=b"), None);
        assert_eq!(quoted("a=\"\""), None);
        assert_eq!(quoted("a=\"\\x0\""), None);
    }
}
