//! The model of files before an event of a trace, with the operations that are not surely durable there.

use powerfail_model::files::{FileSystem, Frontier, Operation, OperationIndex};
use powerfail_trace::{FileOperations, Record, Trace};

/// See the module.
#[derive(Clone)]
pub(super) struct FileState {
    frontier: Frontier,
    operations: FileOperations,
    open: Vec<(OperationIndex, Operation)>,
}

/// What an event does.
#[derive(Default)]
pub(super) struct FileEffect {
    /// It does something that is not surely durable.
    pub(super) opens: bool,
    /// What it makes durable.
    pub(super) closed: Vec<OperationIndex>,
    pub(super) is_failure_point: bool,
}

impl FileState {
    pub(super) fn new(trace: &Trace, file_system: FileSystem) -> Self {
        Self {
            frontier: Frontier::new(file_system, &trace.initial_tree()),
            operations: FileOperations::default(),
            open: Vec::new(),
        }
    }

    /// The operations that are not surely durable.
    pub(super) fn open(&self) -> impl Iterator<Item = OperationIndex> {
        self.open.iter().map(|(index, _)| *index)
    }

    /// Moves over a record.
    pub(super) fn apply(&mut self, record: &Record<'_>) -> FileEffect {
        let Some((operation, _)) = self.operations.operation(record) else {
            return FileEffect::default();
        };
        let mut effect = FileEffect {
            is_failure_point: self.frontier.is_failure_point(&operation),
            ..FileEffect::default()
        };
        let raises_floor = self.frontier.raises_floor(&operation);
        let index = OperationIndex(record.index.0);
        self.frontier.apply(index, &operation);
        if raises_floor {
            let frontier = &self.frontier;
            self.open.retain(|(index, operation)| {
                let is_sure = frontier.is_sure(*index, operation);
                if is_sure {
                    effect.closed.push(*index);
                }
                !is_sure
            });
        }
        let is_change = operation.is_namespace() || operation.file().is_some();
        if is_change && !self.frontier.is_sure(index, &operation) {
            effect.opens = true;
            self.open.push((index, operation));
        }
        effect
    }
}
