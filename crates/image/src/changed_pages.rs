//! The few pages in which a crash state differs from the newest content.

use std::collections::BTreeMap;

use powerfail_model::PoolIndex;

use crate::memory::PoolMemory;
use crate::page::Page;
use crate::private_file::PageSource;

/// Pages that differ from the newest content.
#[derive(Debug, Default)]
pub(crate) struct ChangedPages {
    pages: BTreeMap<(PoolIndex, u64), Box<Page>>,
}

impl ChangedPages {
    pub(crate) const fn new(pages: BTreeMap<(PoolIndex, u64), Box<Page>>) -> Self {
        Self { pages }
    }

    /// The pages of one pool.
    pub(crate) fn of(&self, pool: PoolIndex) -> PoolPages<'_> {
        PoolPages { all: self, pool }
    }
}

/// The changed pages of one pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolPages<'a> {
    all: &'a ChangedPages,
    pool: PoolIndex,
}

/// A pool of a crash image: newest content with some pages changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolImage<'a> {
    pub(crate) newest: &'a PoolMemory,
    pub(crate) changed: PoolPages<'a>,
}

impl<'a> PageSource<'a> for PoolImage<'a> {
    fn len_bytes(&self) -> u64 {
        self.newest.len_bytes()
    }

    /// A page; `None` is a page of zeros. Open lines lie in pages that a store touched, unless it
    /// stored zeros, so a changed page can stand where the newest content has none.
    fn page(&self, number: u64) -> Option<&'a Page> {
        let changed = &self.changed.all.pages;
        if !changed.is_empty()
            && let Some(page) = changed.get(&(self.changed.pool, number))
        {
            return Some(page);
        }
        self.newest.page(number)
    }

    fn for_each_page<E>(
        &self,
        from: u64,
        to: u64,
        mut visit: impl FnMut(u64, &'a Page) -> Result<(), E>,
    ) -> Result<(), E> {
        let pool = self.changed.pool;
        let mut changed = self
            .changed
            .all
            .pages
            .range((pool, from)..(pool, to.max(from)))
            .map(|(&(_, number), page)| (number, &**page))
            .peekable();
        for (number, page) in self.newest.pages(from..to) {
            while let Some((before, page)) = changed.next_if(|&(changed, _)| changed < number) {
                visit(before, page)?;
            }
            match changed.next_if(|&(changed, _)| changed == number) {
                Some((_, page)) => visit(number, page)?,
                None => visit(number, page)?,
            }
        }
        changed.try_for_each(|(number, page)| visit(number, page))
    }
}
