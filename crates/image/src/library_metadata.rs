//! The metadata of the pools of PMDK, which a fill byte must not reach.
//!
//! The library creates a pool in a new file, and its checksums cover bytes that it has never written because a new file
//! has zeros there. What programs allocate lies behind the metadata, and the library promises nothing about its content.
//!
//! The layout is that of libpmemobj 1.x (`pool_hdr.h`, `obj.h`, `heap_layout.h`): two pages of header and descriptor, the
//! lanes, then the heap. The heap is a header and zones; a zone begins with a table of its chunks.

use std::iter::once;
use std::ops::Range;

use powerfail_model::{Event, EventIndex};
use powerfail_trace::Trace;

use crate::error::Result;

/// Where the descriptor says where the heap begins: after the header and the name of the layout, the third field.
const HEAP_OFFSET_AT: u64 = 4096 + 1024 + 16;
const HEADER_BYTES: u64 = 8192;
const HEAP_HEADER_BYTES: u64 = 1024;
const CHUNKS: u64 = 65_528;
const CHUNK_BYTES: u64 = 256 << 10;
/// The header of a zone and the table of its chunks.
const ZONE_TABLE_BYTES: u64 = 64 + 8 * CHUNKS;
const ZONE_BYTES: u64 = ZONE_TABLE_BYTES + CHUNKS * CHUNK_BYTES;
/// A pool is created by the first events. Later stores are not looked at.
const EVENTS_MAX: u64 = 1 << 20;

/// Two words of a pool, from the stores to it.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    signature: [u8; 8],
    heap_offset: [u8; 8],
}

impl Header {
    fn take(&mut self, offset: u64, bytes: &[u8]) {
        for (word_at, word) in [
            (0, &mut self.signature),
            (HEAP_OFFSET_AT, &mut self.heap_offset),
        ] {
            for (at, byte) in (word_at..).zip(word) {
                if let Some(place) = at.checked_sub(offset)
                    && let Some(stored) = bytes.get(place as usize)
                {
                    *byte = *stored;
                }
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.signature.starts_with(b"PMEM") && self.heap_offset != [0; 8]
    }

    /// The metadata of a pool of this length.
    fn metadata(&self, len_bytes: u64) -> Vec<Range<u64>> {
        match &self.signature {
            b"PMEMOBJ\0" => {
                let heap = u64::from_le_bytes(self.heap_offset);
                if heap == 0 || heap >= len_bytes {
                    return once(0..len_bytes).collect();
                }
                let first_zone = heap + HEAP_HEADER_BYTES;
                let mut areas: Vec<_> = once(0..first_zone + ZONE_TABLE_BYTES).collect();
                let mut zone = first_zone + ZONE_BYTES;
                while zone < len_bytes {
                    areas.push(zone..zone + ZONE_TABLE_BYTES);
                    zone += ZONE_BYTES;
                }
                areas
            }
            b"PMEMLOG\0" => once(0..HEADER_BYTES).collect(),
            b"PMEMBLK\0" => once(0..len_bytes).collect(),
            _ => Vec::new(),
        }
    }
}

/// The metadata of libraries in each pool of a trace, for pools that the run has created.
pub(crate) fn library_metadata(trace: &Trace) -> Result<Vec<Vec<Range<u64>>>> {
    let mut headers = vec![Header::default(); trace.pools().len()];
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        if record.index.0 >= EVENTS_MAX || headers.iter().all(Header::is_complete) {
            break;
        }
        let Some(step) = record.step() else { continue };
        if let Event::Store { at, bytes, .. } = step.event
            && let Some(header) = headers.get_mut(at.pool.0 as usize)
        {
            header.take(at.offset.0, bytes);
        }
    }
    let pools = trace.pools().iter().zip(&headers);
    Ok(pools
        .map(|(pool, header)| header.metadata(pool.len_bytes))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_of_an_object_pool_is_behind_its_tables() {
        let mut header = Header::default();
        header.take(0, b"PMEM");
        header.take(4, b"OBJ\0more");
        assert!(!header.is_complete());
        header.take(
            HEAP_OFFSET_AT - 8,
            &[[7; 8], 0x3c_0000_u64.to_le_bytes()].concat(),
        );
        assert!(header.is_complete());
        let areas = header.metadata(8 << 20);
        assert_eq!(areas.len(), 1);
        assert_eq!(areas[0], 0..0x3c_0000 + 1024 + (512 << 10));
        assert_eq!(header.metadata(40 << 30).len(), 3);
        // An offset that cannot be.
        assert_eq!(header.metadata(4096)[0], 0..4096);
    }

    #[test]
    fn other_pools_have_no_metadata() {
        let mut header = Header::default();
        header.take(0, b"MYMAGIC\0");
        assert!(header.metadata(8 << 20).is_empty());
    }
}
