//! Where commands may write if there is no mount namespace: rules of Landlock, which any process can give itself.
//!
//! They hold for the zygote, too, and for all that it starts. Less is promised than by mounts: directories for temporary files
//! are not replaced, so commands get one of their own in `TMPDIR`; and Landlock says nothing about permissions, owners and
//! times of files, nor about the network.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, RestrictSelfError, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, path_beneath_rules,
};

/// What is asked for; a kernel that knows less restricts less.
const WANTED: ABI = ABI::V6;
/// Devices that programs write to.
const DEVICES: [&str; 7] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/pts",
];

/// Rules that are not yet in force.
#[derive(Debug)]
pub(crate) struct LandlockRules(RulesetCreated);

impl LandlockRules {
    /// Rules that let commands write to these files and directories only. `None` if this kernel has no Landlock.
    pub(crate) fn new(writable: &[PathBuf]) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        // What a process of another user may write there is its own; root could change the machine.
        let processes = (!is_root).then_some(Path::new("/proc"));
        let places = writable
            .iter()
            .map(PathBuf::as_path)
            .chain(DEVICES.map(Path::new))
            .chain(processes);
        let made = || -> Result<RulesetCreated, RulesetError> {
            Ruleset::default()
                // The first version restricts almost all; without it nothing would be.
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_write(ABI::V1))?
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_write(WANTED))?
                .create()?
                .add_rules(path_beneath_rules(places, AccessFs::from_write(WANTED)))
        };
        made().ok().map(Self)
    }

    /// Puts them in force for this process and all that it starts. Returns what they do not restrict.
    pub(crate) fn enforce(self) -> Result<&'static str, String> {
        let status = self.0.restrict_self().map_err(|error| match error {
            RulesetError::RestrictSelf(RestrictSelfError::RestrictSelfCall { source, .. }) => {
                source.to_string()
            }
            error => error.to_string(),
        })?;
        match status.ruleset {
            RulesetStatus::FullyEnforced => Ok(""),
            RulesetStatus::PartiallyEnforced => Ok(", and on this kernel more than that"),
            RulesetStatus::NotEnforced => Err("this kernel has no Landlock".into()),
        }
    }
}
