//! A key-value shell in this process. It counts PM path locations like a recorded program: location and predecessor.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use powerfail_fuzz_engine::{End, Target, TargetRun};
use powerfail_image::ImageId;

/// Reached when an existing key is deleted while there are more than 16.
pub(crate) const SHRINK: u32 = 4000;
/// Reached when a missing key is read, but only on the image with this name.
pub(crate) const RECOVERED: u32 = 4100;
/// The image on which [`RECOVERED`] can be reached.
pub(crate) const CRASH_IMAGE: ImageId = ImageId([7; 32]);
/// Reached when the table is resized.
pub(crate) const RESIZE: u32 = 4200;

/// The shell.
#[derive(Default)]
pub(crate) struct Toy {
    pm: Vec<u8>,
    touched: Vec<usize>,
    previous: u32,
    pub(crate) runs: u64,
    /// The number of opened images.
    pub(crate) opened: u64,
    image: Option<ImageId>,
    /// A location that is touched in every second run.
    flickers: Option<u32>,
}

impl Toy {
    /// A shell that touches a location in every second run.
    pub(crate) fn flickering(location: u32) -> Self {
        Self {
            flickers: Some(location),
            ..Self::default()
        }
    }

    fn touch(&mut self, location: u32) {
        if self.pm.is_empty() {
            self.pm = vec![0; 1 << 13];
        }
        self.touched.push(location as usize);
        let counter = &mut self.pm[location as usize];
        *counter = counter.wrapping_add(1).max(1);
    }

    /// An operation at a site: algorithm 1 of `PMFuzz`.
    fn operation(&mut self, site: u32) {
        let id = site.wrapping_mul(0x9e37_79b1);
        self.touch((id ^ self.previous) & 0x7ff);
        self.previous = id >> 1;
    }

    fn command(&mut self, line: &str, map: &mut BTreeMap<u64, String>, capacity: &mut usize) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["put", key, value] => {
                let Ok(key) = key.parse() else { return };
                self.operation(1);
                if map.insert(key, value.to_owned()).is_none() {
                    self.operation(2);
                }
                if map.len() > *capacity {
                    self.touch(RESIZE);
                    *capacity *= 4;
                }
            }
            ["del", key] => {
                let Ok(key) = key.parse() else { return };
                self.operation(3);
                let len = map.len();
                if map.remove(&key).is_some() {
                    self.operation(4);
                    if len > 16 {
                        self.touch(SHRINK);
                    }
                }
            }
            ["get", key] => {
                let Ok(key) = key.parse() else { return };
                if !map.contains_key(&key) && self.image == Some(CRASH_IMAGE) {
                    self.touch(RECOVERED);
                }
            }
            _ => {}
        }
    }
}

impl Target for Toy {
    type Error = Infallible;

    fn run(&mut self, image: ImageId, input: &[u8]) -> Result<TargetRun<'_>, Infallible> {
        for location in std::mem::take(&mut self.touched) {
            self.pm[location] = 0;
        }
        self.previous = 0;
        self.runs += 1;
        if self.image.replace(image) != Some(image) {
            self.opened += 1;
        }
        self.operation(0);
        if self.runs.is_multiple_of(2)
            && let Some(location) = self.flickers
        {
            self.touch(location);
        }
        let mut map = BTreeMap::new();
        let mut capacity = 8;
        let mut end = End::Exit(0);
        for line in String::from_utf8_lossy(input).lines() {
            self.command(line, &mut map, &mut capacity);
            if line == "crash" {
                end = End::Signal(11);
                break;
            }
        }
        Ok(TargetRun {
            end,
            pm: &self.pm,
            branches: &[],
            elapsed: Duration::from_micros(50 + 2 * input.len() as u64),
            input_untouched: false,
        })
    }
}
