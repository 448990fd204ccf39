//! Makes images again from their parents and their edges: records the run, and takes the pool at the failure points.
//!
//! [`repair`] does so for all images that `images.pack` has lost.

use std::io;
use std::path::Path;
use std::sync::Arc;

use powerfail_files::input;
use powerfail_fuzz_store::{
    Campaign, Cut, Edge, Images, InputRepair, PackDamage, Rebuild, Repair, StoreError,
};
use powerfail_image::{DirectoryContents, ImageId};
use powerfail_model::EventIndex;

use crate::check_worker::sentence;
use crate::crash_images::contents_at;
use crate::error::CampaignError;
use crate::findings::INPUT;
use crate::options::CampaignOptions;
use crate::recording::{Recorded, Recorder};
use crate::run::resumed_options;
use crate::seeds::given_images;

impl Recorder {
    /// The image that an edge leads to.
    pub(crate) fn follow(
        &self,
        from: &DirectoryContents,
        edge: &Edge,
    ) -> Result<DirectoryContents, CampaignError> {
        let made = self.run_again(from, &edge.input, &[edge.failure_point])?;
        Ok(made.into_iter().next().unwrap_or_default())
    }

    /// The images that one run leads to, one for each failure point.
    fn run_again(
        &self,
        from: &DirectoryContents,
        input: &[u8],
        failure_points: &[Option<u64>],
    ) -> Result<Vec<DirectoryContents>, CampaignError> {
        let recording = match self.record(from, input)? {
            Recorded::Done(recording) => recording,
            Recorded::Unusable(sentence) => return Err(CampaignError::Target(sentence)),
            Recorded::Interrupted => return Err(CampaignError::Interrupted),
        };
        let trace = &recording.trace;
        let end = trace.event_count();
        let moments = failure_points.iter().map(|point| point.unwrap_or(end));
        let moments: Vec<u64> = moments.collect();
        if let Some(at) = moments.iter().find(|at| **at > end) {
            return Err(CampaignError::Target(format!(
                "the run now has {end} events, but the failure point is {at}: the target depends on something \
                 besides the image and the input"
            )));
        }
        let mut in_order: Vec<usize> = (0..moments.len()).collect();
        in_order.sort_by_key(|place| moments[*place]);
        let events: Vec<_> = in_order.iter().map(|it| EventIndex(moments[*it])).collect();
        let mut made = vec![DirectoryContents::default(); moments.len()];
        let mut places = in_order.iter();
        let directory = self.pool_directory();
        contents_at(trace, &directory, from, &events, |_, contents| {
            if let Some(place) = places.next() {
                made[*place] = contents;
            }
            Ok(())
        })?;
        Ok(made)
    }
}

impl Rebuild for Recorder {
    fn run(
        &mut self,
        from: &DirectoryContents,
        input: &[u8],
        failure_points: &[Option<u64>],
    ) -> io::Result<Vec<DirectoryContents>> {
        if powerfail_recorder::interrupt::is_interrupted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let made = self.run_again(from, input, failure_points);
        made.map_err(|error| match error {
            CampaignError::Interrupted => io::ErrorKind::Interrupted.into(),
            other => io::Error::other(other),
        })
    }
}

/// What was wrong with the files of a campaign, and what was done about it.
#[derive(Debug, Default)]
pub struct RepairedCampaign {
    /// Incomplete ends of files, which were cut off.
    pub cuts: Vec<Cut>,
    /// What `inputs.pack` had lost.
    pub inputs: InputRepair,
    /// Images whose path has an input that is lost.
    pub pathless: Vec<ImageId>,
    /// What `images.pack` had lost.
    pub damage: PackDamage,
    /// Images whose contents were taken from the directory of `--images`.
    pub restored: usize,
    /// What was made again by running the target, and what is lost.
    pub repair: Repair,
    /// Test cases that start from images that are lost.
    pub unusable_cases: usize,
}

impl RepairedCampaign {
    /// One sentence for each thing that was wrong.
    pub fn sentences(&self) -> Vec<String> {
        let mut all: Vec<String> = self.cuts.iter().map(ToString::to_string).collect();
        if self.inputs.is_head_mended {
            all.push("inputs.pack: its first 8 bytes were damaged; they are written again".into());
        }
        if self.inputs.restored > 0 {
            all.push(format!(
                "inputs.pack: {} missing or damaged; they are stored again, from test cases",
                counted(self.inputs.restored, "input was", "inputs were")
            ));
        }
        if self.inputs.lost > 0 {
            all.push(format!(
                "inputs.pack: {} lost; {} from them and cannot be made again",
                counted(self.inputs.lost, "input is", "inputs are"),
                counted(self.pathless.len(), "image comes", "images come")
            ));
        }
        if self.damage.is_head_mended {
            all.push("images.pack: its first 8 bytes were damaged; they are written again".into());
        }
        let Repair { remade, runs, lost } = &self.repair;
        let made = self.restored + remade.len();
        if made > 0 {
            all.push(format!(
                "images.pack: the contents of {} missing or damaged; they are stored again, after {runs} runs of the \
                 target",
                counted(made, "image were", "images were")
            ));
        }
        for (image, why) in lost {
            all.push(format!(
                "images.pack: the contents of image {image} are lost: {}",
                sentence(&**why)
            ));
        }
        if self.unusable_cases > 0 {
            let cases = counted(self.unusable_cases, "test case starts", "test cases start");
            all.push(format!("{cases} from a lost image and cannot be used"));
        }
        all
    }

    /// Whether everything can be used again.
    pub const fn is_complete(&self) -> bool {
        self.repair.lost.is_empty() && self.inputs.lost == 0
    }

    /// Images that cannot be used any more.
    pub(crate) fn lost(&self) -> impl Iterator<Item = ImageId> {
        let lost = self.repair.lost.iter().map(|(image, _)| *image);
        lost.chain(self.pathless.iter().copied())
    }
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Makes everything again that `images.pack` of a campaign has lost.
pub fn repair(
    out: &Path,
    runtime: &Arc<[u8]>,
    warn: &mut dyn FnMut(&str),
) -> Result<RepairedCampaign, CampaignError> {
    let options = Arc::new(resumed_options(out)?);
    repair_open(&Campaign::resume(out)?, &options, runtime, warn)
}

/// The same, for a campaign that is open. `warn` learns what is wrong before the target runs, which may take long.
pub(crate) fn repair_open(
    campaign: &Campaign,
    options: &Arc<CampaignOptions>,
    runtime: &Arc<[u8]>,
    warn: &mut dyn FnMut(&str),
) -> Result<RepairedCampaign, CampaignError> {
    let images = &campaign.images;
    let mut repaired = RepairedCampaign {
        cuts: campaign.cuts.clone(),
        inputs: images.restore_inputs(known_inputs(campaign))?,
        damage: images.damage()?,
        ..RepairedCampaign::default()
    };
    if repaired.inputs.lost > 0 {
        let ids = images.nodes().into_iter().map(|node| node.id);
        repaired.pathless = ids.filter(|id| images.path(*id).is_err()).collect();
    }
    if !repaired.damage.images.is_empty() {
        repair_images(images, options, runtime, &mut repaired, warn)?;
    }
    let lost: Vec<ImageId> = repaired.lost().collect();
    let cases = campaign.queue.cases();
    let unusable = cases.iter().filter(|case| lost.contains(&case.image));
    repaired.unusable_cases = unusable.count();
    Ok(repaired)
}

/// The inputs of all test cases, also of those that are not used any more, and of findings.
fn known_inputs(campaign: &Campaign) -> impl Iterator<Item = Vec<u8>> {
    let cases = campaign.queue.cases().into_iter();
    // A test case that cannot be read is named when it is used.
    let queued = cases.filter_map(|case| Some(campaign.queue.load(case.number).ok()?.input));
    let findings = std::fs::read_dir(campaign.findings_directory());
    let findings = findings.into_iter().flatten().flatten();
    let found = findings.filter_map(|entry| input::read(&entry.path().join(INPUT)).ok());
    queued.chain(found)
}

/// Makes the contents of images again.
fn repair_images(
    images: &Images,
    options: &Arc<CampaignOptions>,
    runtime: &Arc<[u8]>,
    repaired: &mut RepairedCampaign,
    warn: &mut dyn FnMut(&str),
) -> Result<(), CampaignError> {
    let lost = repaired.damage.images.len();
    warn(&format!(
        "images.pack: the contents of {} missing or damaged; the target runs to make them again",
        counted(lost, "image are", "images are")
    ));
    // A directory that was moved since is no reason to give up the other images.
    let given = options.images.as_deref().map(given_images);
    for (_, contents) in given.and_then(Result::ok).into_iter().flatten() {
        repaired.restored += usize::from(images.restore(&contents)?);
    }
    let mut recorder = Recorder::new(options, runtime)?;
    repaired.repair = match images.repair(&mut recorder) {
        Err(StoreError::Interrupted) => return Err(CampaignError::Interrupted),
        repair => repair?,
    };
    Ok(())
}

/// Makes every image of a campaign again from the tree alone, and compares it with the stored one. Returns the images
/// that differ, each with the reason.
pub fn rebuild_all(
    out: &Path,
    runtime: &Arc<[u8]>,
) -> Result<Vec<(ImageId, String)>, CampaignError> {
    let options = Arc::new(resumed_options(out)?);
    let images = Images::follow(out)?;
    let mut recorder = Recorder::new(&options, runtime)?;
    let mut wrong = Vec::new();
    for node in images.nodes() {
        match images.rebuild(node.id, &mut recorder) {
            Ok(contents) if contents == *images.load(node.id)? => {}
            Ok(_) => wrong.push((node.id, "the bytes differ".to_owned())),
            Err(error) => wrong.push((node.id, sentence(&error))),
        }
    }
    Ok(wrong)
}
