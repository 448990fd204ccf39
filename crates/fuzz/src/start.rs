//! What a campaign begins with: inputs, images, tokens, a grammar.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use powerfail_fuzz_engine::{Grammar, tokens};
use powerfail_fuzz_store::{Edge, Images, TestCase};
use powerfail_image::{Contents, FileContents, ImageId};
use powerfail_recorder::TargetStatus;

use crate::error::CampaignError;
use crate::options::CampaignOptions;
use crate::recording::{Recorded, Recorder};

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

    /// Lets the target make its pool once, if it makes one when its input is empty, and begins on that image.
    /// Making a pool takes tens of thousands of events in each trace, which are the same in all of them; one test
    /// case that makes it is enough to look at that.
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
        // A target that refuses an empty input, or cannot be recorded, says so when it is fuzzed.
        let made = match recorder.record(&Contents::default(), &edge.input) {
            Ok(Recorded::Done(recording)) => recording.summary.status == TargetStatus::Exited(0),
            _ => false,
        };
        if !made {
            return Ok(());
        }
        let contents = recorder.follow(&Contents::default(), &edge)?;
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

/// The user's tokens, and those of the program.
fn tokens_of(options: &CampaignOptions) -> Result<Vec<Vec<u8>>, CampaignError> {
    let mut found = Vec::new();
    if let Some(path) = &options.dictionary {
        let text = read(path)?;
        let words = tokens::dictionary(&String::from_utf8_lossy(&text));
        found =
            words.map_err(|error| CampaignError::Wrong(format!("{}: {error}", path.display())))?;
    }
    // What cannot be read for its words will be refused for better reasons.
    if let Some(program) = options.command.first()
        && let Ok(executable) = powerfail_recorder::inspect(program)
        && let Ok(file) = fs::read(&executable.path)
        && let Ok(words) = tokens::of_program(&file)
    {
        found.extend(words);
    }
    Ok(found)
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
