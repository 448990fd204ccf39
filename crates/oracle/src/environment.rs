//! The environment of recovery: that of this process, the variables of the plan, and those with which libpmem
//! behaves as it did when the workload was recorded.

use std::ffi::OsString;

use powerfail_protocol::shared::PMDK_HINT_ADDRESS;

/// Makes libpmem flush files that are not on DAX.
const FORCE_VARIABLE: &str = "PMEM_IS_PMEM_FORCE";
/// The same for libpmem2.
const GRANULARITY_VARIABLE: &str = "PMEM2_FORCE_GRANULARITY";
/// Makes libpmem map pools at the address that they had in the recording.
const HINT_VARIABLE: &str = "PMEM_MMAP_HINT";

/// All variables. Those of the plan override inherited ones.
pub(crate) fn environment(added: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let mut variables = vec![
        (FORCE_VARIABLE.into(), "1".into()),
        (GRANULARITY_VARIABLE.into(), "CACHE_LINE".into()),
        (
            HINT_VARIABLE.into(),
            format!("{PMDK_HINT_ADDRESS:x}").into(),
        ),
    ];
    for (name, value) in std::env::vars_os().chain(added.iter().cloned()) {
        match variables.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => variables.push((name, value)),
        }
    }
    variables
}
