//! The order of the events of all threads: by stamp, ties by thread and position.
//!
//! A record may be written once no thread can still deliver an older one. Each thread has a bound: it delivers
//! no older records. The smallest bound is the limit below which records are final. If too many records wait
//! because a bound does not move, the oldest are written all the same ([`Limit::Down`]): memory is always
//! bounded, and order is kept unless a thread stops inside an append.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::clock::Stamp;
use crate::queue::{Entry, Queue};

/// How far to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// All that is older than this.
    Before(Stamp),
    /// All.
    Everything,
    /// Until no more than this many bytes wait.
    Down(usize),
}

/// The waiting records of all threads, by the numbers of the threads.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    queues: BTreeMap<u32, Queue>,
    /// The stamp of the newest record that was written.
    done: Stamp,
    /// How many records were written behind newer ones.
    late: u64,
}

impl Merge {
    /// The queue of a thread.
    pub(crate) fn queue(&mut self, thread: u32) -> &mut Queue {
        self.queues.entry(thread).or_default()
    }

    /// Whether anything of a thread waits.
    pub(crate) fn waits(&self, thread: u32) -> bool {
        self.queues
            .get(&thread)
            .is_some_and(|queue| !queue.is_empty())
    }

    /// The queues.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (u32, &Queue)> {
        self.queues.iter().map(|(thread, queue)| (*thread, queue))
    }

    /// How many bytes wait.
    pub(crate) fn len_bytes(&self) -> usize {
        self.queues.values().map(Queue::len_bytes).sum()
    }

    /// The stamp of the newest record that was written.
    pub(crate) const fn done(&self) -> Stamp {
        self.done
    }

    /// How many records were written behind newer ones.
    pub(crate) const fn late(&self) -> u64 {
        self.late
    }

    /// Forgets the threads that will deliver nothing any more and of which nothing waits.
    pub(crate) fn remove(&mut self, thread: u32) {
        self.queues.remove(&thread);
    }

    /// Takes records out in their order and hands them over. Whether there were any. A record costs the logarithm of the
    /// number of threads, however often threads alternate.
    pub(crate) fn write<E>(
        &mut self,
        limit: Limit,
        mut write: impl FnMut(u32, Entry, &Queue) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut any = false;
        let mut excess = match limit {
            Limit::Down(len_bytes) => self.len_bytes().saturating_sub(len_bytes),
            _ => 0,
        };
        let heads = self.queues.iter();
        let mut heads: BinaryHeap<_> = heads
            .filter_map(|(thread, queue)| Some(Reverse((queue.head()?, *thread))))
            .collect();
        while let Some(Reverse((_, thread))) = heads.pop() {
            let next = heads.peek().map(|Reverse(next)| *next);
            let Some(queue) = self.queues.get_mut(&thread) else {
                break;
            };
            // The records of this thread up to the oldest one of any other.
            while let Some(stamp) = queue.head() {
                if next.is_some_and(|next| (stamp, thread) > next) {
                    break;
                }
                let permitted = match limit {
                    Limit::Before(end) => stamp < end,
                    Limit::Everything => true,
                    Limit::Down(_) => excess > 0,
                };
                let Some(entry) = permitted.then(|| queue.pop()).flatten() else {
                    queue.compact();
                    return Ok(any);
                };
                excess = excess.saturating_sub(entry.len_bytes());
                self.late += u64::from(stamp < self.done);
                self.done = self.done.max(stamp);
                write(thread, entry, queue)?;
                any = true;
            }
            queue.compact();
            heads.extend(queue.head().map(|stamp| Reverse((stamp, thread))));
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use super::{Limit, Merge};
    use crate::clock::Stamp;

    fn push(merge: &mut Merge, thread: u32, position: u64, stamp: u64) {
        merge.queue(thread).push(stamp, position, &[0; 16]);
    }

    fn written(merge: &mut Merge, limit: Limit) -> Vec<(u64, u32, u64)> {
        let mut order = Vec::new();
        merge
            .write(limit, |thread, entry, _| {
                order.push((entry.stamp.0, thread, entry.position.0));
                Ok::<_, ()>(())
            })
            .unwrap();
        order
    }

    #[test]
    fn by_stamp_then_thread_then_position() {
        let mut merge = Merge::default();
        for (thread, position, stamp) in [
            (1, 0, 5),
            (1, 1, 5),
            (0, 0, 5),
            (0, 1, 7),
            (2, 0, 1),
            (2, 1, 6),
        ] {
            push(&mut merge, thread, position, stamp);
        }
        let all = [
            (1, 2, 0),
            (5, 0, 0),
            (5, 1, 0),
            (5, 1, 1),
            (6, 2, 1),
            (7, 0, 1),
        ];
        assert_eq!(written(&mut merge, Limit::Before(Stamp(5))), all[..1]);
        assert_eq!(written(&mut merge, Limit::Before(Stamp(7))), all[1..5]);
        assert_eq!(written(&mut merge, Limit::Everything), all[5..]);
        assert_eq!(merge.late(), 0);
    }

    #[test]
    fn threads_that_alternate_cost_no_more_than_others() {
        const RECORDS: u64 = 100_000;
        let mut merge = Merge::default();
        for number in 0..RECORDS {
            let queue = merge.queue((number % 4) as u32);
            queue.push(number, number, &[0; 128]);
        }
        assert_eq!(written(&mut merge, Limit::Everything).len() as u64, RECORDS);
        let examined: usize = (0..4).map(|thread| merge.queue(thread).examined).sum();
        assert!(examined as u64 <= RECORDS, "{examined}");
    }

    #[test]
    fn an_error_ends_the_writing_and_what_waits_stays() {
        let mut merge = Merge::default();
        for number in 0..10 {
            push(&mut merge, (number % 2) as u32, number, number);
        }
        let mut left = 3;
        let result = merge.write(Limit::Everything, |_, _, _| {
            left -= 1;
            if left == 0 {
                Err("interrupted")
            } else {
                Ok(())
            }
        });
        assert_eq!(result, Err("interrupted"));
        assert_eq!(written(&mut merge, Limit::Everything).len(), 7);
    }

    #[test]
    fn what_does_not_fit_is_written_oldest_first() {
        let mut merge = Merge::default();
        for number in 0..10 {
            push(&mut merge, (number % 2) as u32, number, number);
        }
        assert_eq!(written(&mut merge, Limit::Down(64)).len(), 6);
        assert_eq!(merge.len_bytes(), 64);
        push(&mut merge, 7, 0, 0);
        let rest = written(&mut merge, Limit::Everything);
        assert_eq!(rest[0], (0, 7, 0));
        assert_eq!(merge.late(), 1);
    }
}
