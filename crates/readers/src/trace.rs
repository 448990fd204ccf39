//! Any bytes as a trace: opened, read in every way, replayed, and, if they are good, written again.

use powerfail_model::{EventIndex, PoolIndex};
use powerfail_trace::{
    Compression, EntryName, FileOperations, Result, StackId, Statistics, Trace, TraceWriter,
    WriterOptions, replay, tree_replay,
};

pub(crate) fn body(bytes: &[u8]) {
    let Ok(trace) = Trace::from_bytes(bytes.to_vec()) else {
        return;
    };
    for pool in 0..trace.pools().len().min(100) {
        let mut runs = trace.initial_image(PoolIndex(u32::try_from(pool).unwrap_or(0)));
        while let Ok(Some(_)) = runs.next_run() {}
    }
    for node in trace.initial_nodes().iter().take(100) {
        let mut runs = trace.initial_file(node.node);
        while let Ok(Some(_)) = runs.next_run() {}
    }
    for stack in 0..=trace.stack_count().min(100) {
        trace.stack(StackId(stack)).for_each(drop);
    }
    let mut operations = FileOperations::default();
    for number in 0..trace.event_blocks().len() {
        if let Ok(block) = trace.read_block(number) {
            for record in block.records() {
                let Ok(record) = record else { break };
                let _ = record.step();
                let _ = operations.operation(&record);
            }
        }
    }
    let verified = trace.verify().is_ok();
    let counted = Statistics::collect(&trace);
    let _ = replay::replay_within(&trace, 64 << 20);
    let _ = tree_replay::replay_trees_within(&trace, 64 << 20);
    if verified {
        let statistics = counted.expect("a verified trace is readable");
        assert_eq!(statistics.events, trace.event_count());
        let middle = EventIndex(trace.event_count() / 2);
        let mut records = trace.records_from(middle);
        if let Some(record) = records.next_record().expect("a verified trace is readable") {
            assert_eq!(record.index, middle);
        }
        write_again(&trace);
    }
}

/// What was read can be written, and then reads the same.
fn write_again(trace: &Trace) {
    let Ok(Some(bytes)) = copy(trace) else {
        return;
    };
    let copied = Trace::from_bytes(bytes).expect("what was written is readable");
    assert_eq!(copied.event_count(), trace.event_count());
    assert_eq!(copied.pools(), trace.pools());
    assert_eq!(copied.trees(), trace.trees());
    assert_eq!(copied.initial_nodes(), trace.initial_nodes());
    assert_eq!(copied.initial_entries(), trace.initial_entries());
    let mut before = trace.records_from(EventIndex(0));
    let mut after = copied.records_from(EventIndex(0));
    loop {
        let one = before.next_record().expect("a verified trace is readable");
        let other = after.next_record().expect("what was written is readable");
        assert_eq!(one, other);
        if one.is_none() {
            break;
        }
    }
}

/// The same trace in other blocks; `None` if it defines something twice, which a writer never does.
fn copy(trace: &Trace) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let options = WriterOptions {
        compression: Compression::None,
        events_per_block: 5,
        bytes_per_block: 1 << 16,
    };
    let mut writer = TraceWriter::new(&mut bytes, trace.meta(), options)?;
    for pool in trace.pools() {
        writer.define_pool(pool)?;
    }
    for module in trace.modules() {
        writer.define_module(module)?;
    }
    for thread in trace.threads() {
        writer.define_thread(thread)?;
    }
    for id in (1..=trace.stack_count()).map(StackId) {
        let node = trace.stack_node(id).expect("ids are dense");
        if writer.intern_frame(node.frame, node.caller)? != id {
            return Ok(None);
        }
    }
    for node in trace.initial_nodes() {
        writer.define_node(node)?;
    }
    for initial in trace.initial_entries() {
        let entry = &initial.entry;
        writer.define_entry(
            EntryName::new(entry.directory, entry.name.as_bytes()),
            initial.node,
        )?;
    }
    for tree in trace.trees() {
        writer.define_tree(tree)?;
    }
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        writer
            .append(record.thread, record.stack, record.body)
            .expect("what was read can be written");
    }
    writer.finish(trace.final_images())?;
    Ok(Some(bytes))
}
