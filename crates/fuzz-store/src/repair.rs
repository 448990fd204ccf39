//! Makes contents of images again that `images.pack` has lost, from their parents and the runs that made them. The inputs
//! of those runs that `inputs.pack` has lost are taken from test cases, which have the same ones.
//!
//! Every blob has a checksum, so damage is found without running the target. Images that one run has made are made again
//! by one run. What is made again is appended, and counts only if it has the identifier of the image, so a target that
//! behaves differently now cannot put other contents in the place of lost ones.

use std::io;
use std::sync::Arc;

use powerfail_image::{DirectoryContents, ImageId};
use rustc_hash::FxHashMap;

use crate::store::{Store, hash_of};
use crate::tree::{ImageOrigin, NodeNumber};
use crate::{Images, Rebuild, Result, StoreError};

/// What `images.pack` has lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackDamage {
    /// Its first bytes were wrong. They were written again when it was opened.
    pub is_head_mended: bool,
    /// The images whose contents cannot be loaded, parents before children.
    pub images: Vec<ImageId>,
}

/// What `inputs.pack` has lost, and what was stored again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputRepair {
    /// Its first bytes were wrong. They were written again when it was opened.
    pub is_head_mended: bool,
    /// The number of inputs that were stored again.
    pub restored: usize,
    /// The number of inputs that are lost.
    pub lost: usize,
}

/// The result of making lost contents again.
#[derive(Debug, Default)]
pub struct Repair {
    /// The images whose contents can be loaded again.
    pub remade: Vec<ImageId>,
    /// The number of runs of the target.
    pub runs: u64,
    /// The images whose contents cannot be made again, and why.
    pub lost: Vec<(ImageId, Arc<StoreError>)>,
}

/// Images that one run of the target has made.
struct Run {
    parent: NodeNumber,
    input: Vec<u8>,
    images: Vec<(NodeNumber, Option<u64>)>,
}

impl PackDamage {
    /// Whether there is none.
    pub const fn is_none(&self) -> bool {
        !self.is_head_mended && self.images.is_empty()
    }
}

impl Images {
    /// Reads all of `images.pack`, and returns what is lost. Costs the length of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn damage(&self) -> Result<PackDamage> {
        let mut store = self.lock();
        let lost = store.unloadable()?;
        Ok(PackDamage {
            is_head_mended: store.is_head_mended(),
            images: lost.iter().map(|it| store.tree.node(*it).id).collect(),
        })
    }

    /// Stores contents of a known image again if they are lost; returns whether they were.
    ///
    /// # Errors
    /// The disk is full. Nothing has changed then.
    pub fn restore(&self, contents: &DirectoryContents) -> Result<bool> {
        let id = self.identify(contents);
        let mut store = self.lock();
        let Some(number) = store.tree.find(id) else {
            return Ok(false);
        };
        if store.load(number).is_ok() {
            return Ok(false);
        }
        store.keep_again(number, contents)?;
        Ok(true)
    }

    /// Stores long inputs again that `inputs.pack` has lost, if they are among `known`. Costs the length of that file, and
    /// reads `known` only if something is lost.
    ///
    /// # Errors
    /// The file cannot be read, or the disk is full. What was stored again by then stays.
    pub fn restore_inputs(&self, known: impl IntoIterator<Item = Vec<u8>>) -> Result<InputRepair> {
        let mut store = self.lock();
        let mut lost = store.lost_inputs()?;
        let mut repair = InputRepair {
            is_head_mended: store.is_head_of_inputs_mended(),
            ..InputRepair::default()
        };
        let mut known = known.into_iter();
        while !lost.is_empty()
            && let Some(input) = known.next()
        {
            let hash = hash_of(&input);
            if let Some(place) = lost.get(&hash)
                && store.keep_input_again(*place, &input)?
            {
                lost.remove(&hash);
                repair.restored += 1;
            }
        }
        repair.lost = lost.len();
        Ok(repair)
    }

    /// Makes all lost contents again. What cannot be made again is returned with the reason, and changes nothing else.
    ///
    /// # Errors
    /// The disk is full, or powerfail was interrupted. What was made again by then is stored.
    pub fn repair(&self, rebuild: &mut dyn Rebuild) -> Result<Repair> {
        let mut repair = Repair::default();
        let lost = self.lock().unloadable()?;
        for run in self.runs_of(&lost, &mut repair) {
            self.repeat(&run, rebuild, &mut repair)?;
        }
        let store = self.lock();
        let ids = lost.iter().map(|number| store.tree.node(*number).id);
        let is_lost = |id: &ImageId| repair.lost.iter().any(|(lost, _)| lost == id);
        repair.remade = ids.filter(|id| !is_lost(id)).collect();
        Ok(repair)
    }

    /// The runs that have made these images, in the same order. Images that no run has made are lost.
    fn runs_of(&self, images: &[NodeNumber], repair: &mut Repair) -> Vec<Run> {
        let mut store = self.lock();
        let mut runs: Vec<Run> = Vec::new();
        let mut known: FxHashMap<(NodeNumber, Vec<u8>), usize> = FxHashMap::default();
        for &number in images {
            let node = store.tree.node(number);
            let id = node.id;
            let parent = match &node.way {
                ImageOrigin::Made { parent, .. } => *parent,
                ImageOrigin::Given(name) => {
                    let name = name.to_string();
                    let error = StoreError::GivenLost { image: id, name };
                    repair.lost.push((id, Arc::new(error)));
                    continue;
                }
                ImageOrigin::Empty => continue,
            };
            match store.edge(number) {
                Ok(edge) => {
                    let (input, failure_point) =
                        edge.map_or_else(Default::default, |it| (it.input, it.failure_point));
                    let run = *known.entry((parent, input.clone())).or_insert_with(|| {
                        runs.push(Run {
                            parent,
                            input,
                            images: Vec::new(),
                        });
                        runs.len() - 1
                    });
                    runs[run].images.push((number, failure_point));
                }
                // Its input is lost, too.
                Err(error) => repair.lost.push((id, Arc::new(error))),
            }
        }
        runs
    }

    /// Runs the target again, and stores the images that are lost.
    fn repeat(&self, run: &Run, rebuild: &mut dyn Rebuild, repair: &mut Repair) -> Result<()> {
        let (from, wanted) = {
            let mut store = self.lock();
            let mut wanted = run.images.clone();
            // Some are differences to images that were made again in the meantime.
            wanted.retain(|(number, _)| store.load(*number).is_err());
            if wanted.is_empty() {
                return Ok(());
            }
            let Ok(from) = store.load(run.parent) else {
                let parent = store.tree.node(run.parent).id;
                for (number, _) in &wanted {
                    let image = store.tree.node(*number).id;
                    let error = StoreError::ParentLost { image, parent };
                    repair.lost.push((image, Arc::new(error)));
                }
                return Ok(());
            };
            (from, wanted)
        };
        repair.runs += 1;
        let points: Vec<_> = wanted.iter().map(|(_, point)| *point).collect();
        // The target runs without the lock.
        let made = rebuild.run(&from, &run.input, &points);
        let mut store = self.lock();
        let edge = store.tree.cost(run.parent).0 + 1;
        match made {
            Ok(made) => {
                for ((number, _), contents) in wanted.iter().zip(&made) {
                    store.replace(*number, edge, contents, repair)?;
                }
            }
            Err(source) => {
                let is_interrupted = source.kind() == io::ErrorKind::Interrupted;
                let error = Arc::new(StoreError::Rebuild {
                    wanted: store.tree.node(wanted[0].0).id,
                    edge,
                    source,
                });
                let ids = wanted.iter().map(|(number, _)| store.tree.node(*number).id);
                (repair.lost).extend(ids.map(|id| (id, Arc::clone(&error))));
                if is_interrupted {
                    return Err(StoreError::Interrupted);
                }
            }
        }
        Ok(())
    }
}

impl Store {
    /// The images that cannot be loaded, parents before children.
    fn unloadable(&mut self) -> Result<Vec<NodeNumber>> {
        let mut is_lost = vec![false; self.tree.len()];
        // A base has a smaller number than the images that are based on it.
        for number in 0..self.tree.len() as NodeNumber {
            let base = self.tree.node(number).base;
            let is_base_lost = base.is_some_and(|base| is_lost[base as usize]);
            is_lost[number as usize] = is_base_lost || !self.has_blob(number)?;
        }
        let numbers = 0..self.tree.len() as NodeNumber;
        let mut lost: Vec<_> = numbers.filter(|number| is_lost[*number as usize]).collect();
        lost.sort_by_key(|number| (self.tree.cost(*number).0, *number));
        Ok(lost)
    }

    /// Stores contents of an image again, unless they are those of another one.
    fn replace(
        &mut self,
        number: NodeNumber,
        edge: usize,
        contents: &DirectoryContents,
        repair: &mut Repair,
    ) -> Result<()> {
        if self.load(number).is_ok() {
            return Ok(());
        }
        let (wanted, got) = (self.tree.node(number).id, contents.id());
        if got == wanted {
            self.keep_again(number, contents)?;
        } else {
            let error = StoreError::OtherImage {
                wanted,
                edge,
                expected: wanted,
                got,
            };
            repair.lost.push((wanted, Arc::new(error)));
        }
        Ok(())
    }
}
