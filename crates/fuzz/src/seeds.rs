//! What a campaign starts from: inputs, images, tokens and a grammar.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_fuzz_engine::{Grammar, tokens};
use powerfail_fuzz_store::{Edge, Images, TestCase};
use powerfail_image::{DirectoryContents, FileContents};
use powerfail_recorder::TargetStatus;

use crate::error::CampaignError;
use crate::options::CampaignOptions;
use crate::recording::{Recorded, Recorder};

/// The initial test cases, and what helps to mutate them.
#[derive(Debug, Default)]
pub(crate) struct Seeds {
    pub(crate) cases: Vec<TestCase>,
    pub(crate) tokens: Vec<Vec<u8>>,
    pub(crate) grammar: Option<Arc<Grammar>>,
}

impl Seeds {
    /// Reads what the user has given, and stores the images.
    pub(crate) fn read(options: &CampaignOptions, images: &Images) -> Result<Self, CampaignError> {
        let mut inputs = Vec::new();
        if let Some(directory) = &options.seeds {
            inputs = files_of(directory)?;
            if inputs.is_empty() {
                return Err(CampaignError::Wrong(format!(
                    "--seeds: {} has no files",
                    directory.display()
                )));
            }
        }
        if inputs.is_empty() {
            inputs.push(b"\n".to_vec());
        }
        let mut roots = Vec::new();
        if let Some(directory) = &options.images {
            for (name, contents) in given_images(directory)? {
                roots.push(images.insert_root(&name, &contents)?.0);
            }
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

    /// If the target creates its pool on an empty input, lets it do so once, and starts all test cases from that image.
    /// Creating a pool takes tens of thousands of events, which would be the same in all traces. One test case that
    /// creates it is enough to check that part.
    pub(crate) fn create_pool(
        &mut self,
        recorder: &Recorder,
        images: &Images,
    ) -> Result<(), CampaignError> {
        let empty = Images::empty();
        if self.cases.iter().all(|case| case.image != empty) {
            return Ok(());
        }
        let edge = Edge {
            input: Vec::new(),
            failure_point: None,
        };
        // A target that refuses an empty input or cannot be recorded is reported when it is fuzzed.
        let made = match recorder.record(&DirectoryContents::default(), &edge.input) {
            Ok(Recorded::Done(recording)) => recording.summary.status == TargetStatus::Exited(0),
            _ => false,
        };
        if !made {
            return Ok(());
        }
        let contents = recorder.follow(&DirectoryContents::default(), &edge)?;
        if contents.files.values().all(|file| file.pages.is_empty()) {
            return Ok(());
        }
        let (image, _) = images.insert(empty, &edge, &contents)?;
        for case in &mut self.cases {
            if case.image == empty {
                case.image = image;
            }
        }
        self.cases.push(TestCase {
            image: empty,
            input: Vec::new(),
        });
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CampaignError> {
    fs::read(path).map_err(CampaignError::file(path))
}

/// The contents of all files of a directory, in the order of their names.
fn files_of(directory: &Path) -> Result<Vec<Vec<u8>>, CampaignError> {
    let entries = fs::read_dir(directory).map_err(CampaignError::file(directory))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.retain(|path| path.is_file());
    paths.iter().map(|path| read(path)).collect()
}

/// The images of a directory, with their names: a file is a pool, a directory holds the files of one image.
pub(crate) fn given_images(
    directory: &Path,
) -> Result<Vec<(String, DirectoryContents)>, CampaignError> {
    let entries = fs::read_dir(directory).map_err(CampaignError::file(directory))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let contents = read_image(path).map_err(CampaignError::file(path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok((name.into_owned(), contents))
    };
    paths.iter().map(read).collect()
}

/// Reads an image: a directory with its files, or a single pool.
pub(crate) fn read_image(path: &Path) -> io::Result<DirectoryContents> {
    if path.is_dir() {
        return DirectoryContents::read(path);
    }
    let pool = FileContents::read(&fs::File::open(path)?)?;
    Ok(DirectoryContents {
        files: std::iter::once(("pool".to_owned(), pool)).collect(),
    })
}

/// The user's tokens, and those of the program.
fn tokens_of(options: &CampaignOptions) -> Result<Vec<Vec<u8>>, CampaignError> {
    let mut found = Vec::new();
    if let Some(path) = &options.dictionary {
        let text = read(path)?;
        let words = tokens::dictionary(&String::from_utf8_lossy(&text));
        found =
            words.map_err(|error| CampaignError::Wrong(format!("{}: {error}", path.display())))?;
    }
    found.extend(program_words(&options.command));
    Ok(found)
}

/// The words in the file of a program.
pub(crate) fn program_words(command: &[OsString]) -> Vec<Vec<u8>> {
    // A program that cannot be read here is refused later, with a better message.
    let words = command.first().and_then(|program| {
        let executable = powerfail_recorder::inspect(program).ok()?;
        let file = fs::read(&executable.path).ok()?;
        tokens::of_program(&file).ok()
    });
    words.unwrap_or_default()
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
