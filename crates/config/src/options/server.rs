//! Recovery of a server, and all that `check`, `crash` and `races` have in common.

use powerfail_model::Domain;
use powerfail_oracle::Ready;

use super::{
    DomainArgs, FailureArgs, FailureSettings, OutputArgs, OutputSettings, RecoveryArgs,
    RecoverySettings, ReportArgs, ReportSettings, ShareArgs, ShareSettings, options, sections,
};
use crate::error::SettingsError;
use crate::value::CommandText;

options! {
    /// How a server is started, used and stopped.
    ServerArgs => ServerSettings, "Server" {
        /// Recovery is a server: command that uses it and is judged
        [long, value_name = "CMD"]
        client_recover: CommandText,
        /// How to tell that a server is ready: port, port:N, unix:PATH or output:REGEX
        [long, value_name = "CHECK"]
        ready: Ready,
        /// Command that stops a server [default: SIGTERM]
        [long, value_name = "CMD"]
        stop: CommandText,
    }
}

sections! {
    /// What `check`, `crash` and `races` have in common.
    TestArgs {
        recovery: RecoveryArgs,
        server: ServerArgs,
        failures: FailureArgs,
        domain: DomainArgs,
        report: ReportArgs,
        output: OutputArgs,
        shares: ShareArgs,
    }
}

/// What `check`, `crash` and `races` have in common.
#[derive(Clone, Debug)]
pub struct TestSettings {
    /// How recovery is run and judged.
    pub recovery: RecoverySettings,
    /// How a server is started, used and stopped.
    pub server: ServerSettings,
    /// When the power fails, and how long recoveries may take.
    pub failures: FailureSettings,
    /// The persistence domain, if it is not that of the trace.
    pub domain: Option<Domain>,
    /// What is reported.
    pub report: ReportSettings,
    /// Where and how it is reported.
    pub output: OutputSettings,
    /// Which share of it is done, and whether a run is resumed.
    pub shares: ShareSettings,
}

impl TestArgs {
    /// The settings of these options. `has_client` says that the workload has a client as well.
    pub(crate) fn settle(self, has_client: bool) -> Result<TestSettings, SettingsError> {
        let server = self.server.resolve();
        if server.ready.is_none() && (has_client || server.client_recover.is_some()) {
            return Err(SettingsError::NotReady);
        }
        let (recovery, failures) = (self.recovery.resolve(), self.failures.resolve());
        if failures.ack.is_some() && recovery.dump.is_none() {
            return Err(SettingsError::Needs("--ack", "--dump"));
        }
        let output = self.output.settle()?;
        Ok(TestSettings {
            recovery,
            server,
            failures,
            domain: self.domain.domain,
            report: self.report.resolve(),
            output,
            shares: self.shares.resolve(),
        })
    }
}
