//! Records test cases, for the checks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use powerfail_image::{DirectoryContents, RunDirectory};
use powerfail_recorder::{Input, RecordError, RecordOptions, RecordingSummary, TargetStatus};
use powerfail_trace::Trace;

use crate::error::CampaignError;
use crate::options::CampaignOptions;

/// A recorded run is slower than an execution of the fuzzer, so it gets this many times as long.
const SLOWER: u32 = 4;
/// And it gets at least this long.
const TIME_MIN: Duration = Duration::from_secs(3);

/// Records test cases, one at a time, all with the same path for the pool.
#[derive(Debug)]
pub(crate) struct Recorder {
    options: Arc<CampaignOptions>,
    runtime: Arc<[u8]>,
    directory: RunDirectory,
}

/// The recording of a test case.
pub(crate) struct Recording {
    pub(crate) trace: Trace,
    pub(crate) path: PathBuf,
    pub(crate) summary: Box<RecordingSummary>,
}

/// The result of recording a test case.
pub(crate) enum Recorded {
    Done(Box<Recording>),
    /// The recording cannot be used; the sentence says why.
    Unusable(String),
    /// The user has interrupted powerfail.
    Interrupted,
}

impl Recorder {
    pub(crate) fn new(
        options: &Arc<CampaignOptions>,
        runtime: &Arc<[u8]>,
    ) -> Result<Self, CampaignError> {
        let parent = powerfail_image::default_parent();
        Ok(Self {
            options: Arc::clone(options),
            runtime: Arc::clone(runtime),
            directory: RunDirectory::create_in(&parent)?,
        })
    }

    /// The directory of the pool files during a recording.
    pub(crate) fn pool_directory(&self) -> PathBuf {
        powerfail_recorder::pool_directory(&self.slot())
    }

    /// The directory that belongs to this recorder.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn slot(&self) -> PathBuf {
        self.directory.path().join("slot")
    }

    /// Records the target with an input on an image.
    pub(crate) fn record(
        &self,
        contents: &DirectoryContents,
        input: &[u8],
    ) -> Result<Recorded, CampaignError> {
        let options = &*self.options;
        let path = self.directory.path().join("run.trace");
        let mut record = RecordOptions::new(options.command.clone(), &path);
        record.directory = Some(self.slot());
        record.contents = Some(contents.clone());
        record.input = Some(Input {
            bytes: input.to_vec(),
            channel: options.input,
        });
        record.derandomise = options.derandomise;
        record.desock = options.desock;
        record.discard_output = true;
        record.forward_signals = false;
        record.file_limit_bytes = Some(options.file_limit_bytes);
        // Acknowledgements are looked for in the output of the target.
        record.output_prefix_bytes = 4096;
        record.time_limit = Some((options.timeout * SLOWER).max(TIME_MIN));
        let summary = match powerfail_recorder::record(&record, &self.runtime) {
            Ok(summary) => summary,
            Err(RecordError::SelfCheck(failure)) => {
                return Ok(Recorded::Unusable(failure.to_string()));
            }
            Err(RecordError::RuntimeSilent {
                status: TargetStatus::Killed(libc::SIGINT | libc::SIGTERM),
            }) => return Ok(Recorded::Interrupted),
            Err(error) => return Err(error.into()),
        };
        if matches!(
            summary.status,
            TargetStatus::Killed(libc::SIGINT | libc::SIGTERM)
        ) && !summary.timed_out
        {
            return Ok(Recorded::Interrupted);
        }
        if let Some(sentence) = summary.fatal.iter().chain(&summary.unrecorded).next() {
            return Ok(Recorded::Unusable(sentence.clone()));
        }
        let trace = Trace::open(&path)?;
        Ok(Recorded::Done(Box::new(Recording {
            trace,
            path,
            summary: Box::new(summary),
        })))
    }
}
