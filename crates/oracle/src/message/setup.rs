//! The first message to a zygote, and its answer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::message::{SystemFailure, path};
use crate::plan::{Confinement, PoolMapping, RecoveryPlan, ResolvedCommand};

/// How far recovery is isolated from the rest of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum IsolationLevel {
    /// Mount and process namespaces.
    Full,
    /// A mount namespace only.
    Mounts,
    /// Neither.
    None,
}

/// How much of the machine the commands of a run may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
}

/// What a zygote needs to know before it starts anything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) level: IsolationLevel,
    /// The pools over which their images are mounted; none if paths are substituted instead.
    pub(crate) mounted_pools: Vec<PoolMapping>,
    /// All pools and their images.
    pub(crate) mappings: Vec<PoolMapping>,
    /// What commands may touch; `None` if that is not restricted.
    pub(crate) confinement: Option<Confinement>,
    /// How much commands may use; `None` if that is not restricted.
    pub(crate) usage: Option<Usage>,
    /// Whether two descriptors follow: the runtime and the shared file.
    pub(crate) has_runtime: bool,
    /// The plan with programs found and everything but `{port}` substituted. Its environment is complete.
    pub(crate) plan: RecoveryPlan<ResolvedCommand>,
}

/// The answer of a zygote to its set-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SetupReply {
    /// The zygote is ready.
    Ready {
        /// Files that it created in private directories, as mount points.
        #[serde(with = "path::list")]
        placeholders: Vec<PathBuf>,
        /// Why commands are not fully confined.
        notes: Vec<String>,
    },
    /// This level of isolation is not available here.
    NotIsolated { reason: String },
    /// A file or directory of the plan cannot be used.
    Failed {
        #[serde(with = "path")]
        path: PathBuf,
        error: SystemFailure,
    },
}
