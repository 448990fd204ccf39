//! The directory of a campaign: its lock, and the record from which it is resumed.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use powerfail_files::seal::{self, Origin};
use powerfail_files::{Directory, input, output};
use serde::{Deserialize, Serialize};

use crate::lock::LOCK_FILE;
use crate::queue::{INPUTS_DIRECTORY, JOURNAL_FILE};
use crate::stats::STATS_FILE;
use crate::store::{INPUTS_FILE, PACK_FILE, TREE_FILE};
use crate::{Cut, Images, Lock, Queue, Result, StatsFile, StoreError};

const RECORD_FILE: &str = "campaign.json";
/// The field of the record that shows who wrote it: [`origin`].
const SEAL_FIELD: &str = "seal";
const FINDINGS_DIRECTORY: &str = "findings";
/// The version of the files. Format 1 stored the reasons for which test cases were retired as text.
const FORMAT: u32 = 2;

/// The record of a campaign: `campaign.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignRecord {
    /// The version of the files in the directory.
    pub format: u32,
    /// Distinguishes this campaign from another one in the same directory.
    pub id: String,
    /// When it was started, in seconds since 1970.
    pub created_s: u64,
    /// The command of the target.
    pub command: Vec<String>,
    /// The options, in a form that the caller defines.
    pub options: serde_json::Value,
}

/// The files of a campaign, opened by the one process that may change them.
pub struct Campaign {
    /// Its record.
    pub record: CampaignRecord,
    /// Its images.
    pub images: Images,
    /// Its test cases.
    pub queue: Queue,
    /// Its statistics.
    pub stats: StatsFile,
    /// Incomplete ends that a kill had left and that were cut off.
    pub cuts: Vec<Cut>,
    lock: Lock,
}

impl fmt::Debug for Campaign {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Campaign")
            .field(&self.directory())
            .finish()
    }
}

impl Campaign {
    /// Starts a campaign in a directory, which is created if needed.
    ///
    /// # Errors
    /// The directory has a campaign already, another process uses it, or a file cannot be written.
    pub fn create(
        directory: &Path,
        command: Vec<String>,
        options: serde_json::Value,
    ) -> Result<Self> {
        Directory::create(directory).map_err(StoreError::file("make", directory))?;
        let lock = Lock::take(directory)?;
        if directory.join(RECORD_FILE).exists() {
            return Err(StoreError::Exists {
                path: directory.to_owned(),
            });
        }
        let now = (SystemTime::now().duration_since(UNIX_EPOCH)).unwrap_or_default();
        let unique = format!("{now:?} {} {}", std::process::id(), directory.display());
        let record = CampaignRecord {
            format: FORMAT,
            id: powerfail_finding::hex(&blake3::hash(unique.as_bytes()).as_bytes()[..8]),
            created_s: now.as_secs(),
            command,
            options,
        };
        // The record comes last: without it there is no campaign, and another one can be started.
        let campaign = Self::open(lock, record)?;
        campaign.write_record()?;
        Ok(campaign)
    }

    /// Continues a campaign.
    ///
    /// # Errors
    /// There is none, another process uses the directory, or a file is damaged before its end.
    pub fn resume(directory: &Path) -> Result<Self> {
        if !directory.join(RECORD_FILE).exists() {
            return Err(StoreError::NoCampaign {
                path: directory.to_owned(),
            });
        }
        let lock = Lock::take(directory)?;
        let mut campaign = Self::open(lock, read_record(directory)?)?;
        if campaign.record.format != FORMAT {
            // What is appended from now on cannot be read by a powerfail that only knows the older format.
            campaign.record.format = FORMAT;
            campaign.write_record()?;
        }
        Ok(campaign)
    }

    fn open(lock: Lock, record: CampaignRecord) -> Result<Self> {
        let directory = lock.directory();
        let findings = directory.join(FINDINGS_DIRECTORY);
        Directory::create(&findings).map_err(StoreError::file("make", &findings))?;
        let (images, mut cuts) = Images::open(directory)?;
        let (queue, more) = Queue::open(directory)?;
        cuts.extend(more);
        let (stats, more) = StatsFile::open(directory)?;
        cuts.extend(more);
        Ok(Self {
            record,
            images,
            queue,
            stats,
            cuts,
            lock,
        })
    }

    /// Changes the options that the next `--resume` uses.
    ///
    /// # Errors
    /// The disk is full. The old options stay then.
    pub fn set_options(&mut self, options: serde_json::Value) -> Result<()> {
        let old = std::mem::replace(&mut self.record.options, options);
        self.write_record()
            .inspect_err(|_| self.record.options = old)
    }

    fn write_record(&self) -> Result<()> {
        let path = self.directory().join(RECORD_FILE);
        let failed = || StoreError::file("write", &path);
        let mut value =
            serde_json::to_value(&self.record).map_err(|error| failed()(error.into()))?;
        // Without a key that can be kept there is no seal, and `origin` says so. It is in the same file, so that a kill leaves
        // no record without the seal that fits.
        if let Ok(directory) = Directory::open(self.directory())
            && let Ok(seal) = seal::of_bytes(&directory, value.to_string().as_bytes())
        {
            value[SEAL_FIELD] = seal.into();
        }
        write_whole(&path, &value).map_err(failed())
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.lock.directory()
    }

    /// The directory of findings.
    pub fn findings_directory(&self) -> PathBuf {
        self.directory().join(FINDINGS_DIRECTORY)
    }
}

/// Removes a campaign without test cases and findings, so that another one can be started in its place. Other files in the
/// directory stay. Returns whether the campaign was removed.
pub fn discard_unused(directory: &Path) -> bool {
    // A campaign that is in use stays.
    let Ok(_lock) = Lock::take(directory) else {
        return false;
    };
    let is_empty = |name: &str| {
        let path = directory.join(name);
        path.metadata()
            .is_ok_and(|it| it.is_file() && it.len() == 0)
            || fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none())
    };
    if ![JOURNAL_FILE, FINDINGS_DIRECTORY].into_iter().all(is_empty) {
        return false;
    }
    // The record is removed first: without it, the rest is not a campaign.
    let is_gone = fs::remove_file(directory.join(RECORD_FILE)).is_ok();
    if is_gone {
        for name in [
            TREE_FILE,
            PACK_FILE,
            INPUTS_FILE,
            JOURNAL_FILE,
            STATS_FILE,
            "paths.bin",
            "checks.jsonl",
            LOCK_FILE,
        ] {
            let _ = fs::remove_file(directory.join(name));
        }
        for name in [INPUTS_DIRECTORY, FINDINGS_DIRECTORY] {
            let _ = fs::remove_dir(directory.join(name));
        }
    }
    is_gone
}

/// Whether this user wrote the record of a campaign on this machine, as it is: it has the commands that run.
///
/// # Errors
/// There is no campaign, or its record cannot be read.
pub fn origin(directory: &Path) -> Result<Origin> {
    let opened = Directory::open(directory).map_err(StoreError::file("open", directory))?;
    let mut value = record_value(directory)?;
    let fields = value.as_object_mut();
    let seal = fields.and_then(|fields| fields.remove(SEAL_FIELD));
    let seal = seal.as_ref().and_then(serde_json::Value::as_str);
    Ok(seal::origin_of_bytes(
        &opened,
        seal,
        value.to_string().as_bytes(),
    ))
}

/// The record of a campaign, whether it is running or not.
///
/// # Errors
/// There is none, or its record cannot be read.
pub fn read_record(directory: &Path) -> Result<CampaignRecord> {
    let path = directory.join(RECORD_FILE);
    serde_json::from_value(record_value(directory)?)
        .map_err(|error| StoreError::damaged(&path, 0, error.to_string()))
}

fn record_value(directory: &Path) -> Result<serde_json::Value> {
    let path = directory.join(RECORD_FILE);
    let bytes = input::read(&path);
    let bytes = bytes.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::NoCampaign {
            path: directory.to_owned(),
        },
        _ => StoreError::file("read", &path)(error),
    })?;
    let value: serde_json::Value = serde_json::from_slice(&bytes)
        .map_err(|error| StoreError::damaged(&path, 0, error.to_string()))?;
    if value["format"]
        .as_u64()
        .is_some_and(|format| format > u64::from(FORMAT))
    {
        return Err(StoreError::Version { path });
    }
    Ok(value)
}

/// Replaces a file as a whole: a kill leaves the old one or the new one.
pub(crate) fn write_whole(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    output::replace(path, text.as_bytes())
}
