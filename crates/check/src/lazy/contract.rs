//! Stands for what the oracle will have.
#![allow(missing_docs, dead_code)]
use std::path::PathBuf;

pub use powerfail_abi::explore::{Choice, LogKind};
use powerfail_oracle::{Stage, Verdict};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    pub line_bytes: u32,
    pub pools: Vec<PathBuf>,
    pub lines: Vec<TableLine>,
    pub watched: Vec<PageMask>,
}
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableLine {
    pub pool: u32,
    pub offset: u64,
    pub contents: Vec<u8>,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageMask {
    pub pool: u32,
    pub offset: u64,
    pub lines: u64,
}
#[derive(Clone, Copy, Debug)]
pub struct ExploreRequest<'a> {
    pub table: &'a LineTable,
    pub prefix: &'a [u32],
    pub fork: bool,
    pub log: bool,
    pub max_executions: u64,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    pub verdict: Verdict,
    pub choices: Vec<Choice>,
    pub stages: Vec<(Stage, u32)>,
    pub log: Vec<Logged>,
}
impl Execution {
    pub fn stage_of(&self, choice: usize) -> Stage {
        let began_before = |(_, first): &&(Stage, u32)| *first as usize <= choice;
        let stage = self.stages.iter().take_while(began_before).last();
        stage.map_or(Stage::Recovery, |(stage, _)| *stage)
    }
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub kind: LogKind,
    pub pool: u32,
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub len: u64,
    pub site: u64,
    pub thread: u32,
    pub choices: u32,
}
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explored {
    pub executions: Vec<Execution>,
    pub read: Vec<PageMask>,
    pub stopped: bool,
    pub forked: bool,
    pub warnings: Vec<String>,
    pub traps: u64,
    pub steps: u64,
}
