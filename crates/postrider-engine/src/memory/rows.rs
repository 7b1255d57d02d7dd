//! The rows by their place in the order: pages of neighbours, so that finding one costs two steps however many there are.

use std::collections::VecDeque;

use postrider_core::store::Seq;

use super::{hash::hash_of, ids::Ids, row::Row};

const PAGE_ROWS: u64 = u64::BITS as u64;

#[derive(Clone, Default)]
pub(super) struct Rows {
    pages: Pages,
    count: usize,
    ids: Ids,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&Row> {
        self.pages.of(seq)?.rows.get(place(seq))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut Row> {
        self.pages.of_mut(seq)?.as_mut()?.rows.get_mut(place(seq))?.as_mut()
    }

    /// The place of the row with this id.
    pub(super) fn find(&self, id: &str) -> Option<Seq> {
        let is_it = |seq: &Seq| self.get(*seq).is_some_and(|row| row.id().as_str() == id);
        self.ids.find(hash_of(id), id).find(is_it)
    }

    /// Puts a row where none was yet.
    pub(super) fn insert(&mut self, seq: Seq, row: Row) {
        let pages = &self.pages;
        self.ids.insert(hash_of(row.id().as_str()), row.id(), seq, |seq| pages.has(seq));
        let Some(page) = self.pages.reach(seq) else { return };
        if let Some(room) = page.rows.get_mut(place(seq)) {
            *room = Some(row);
            page.present |= 1 << place(seq);
            self.count += 1;
        }
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<Row> {
        let page = self.pages.of_mut(seq)?.as_mut()?;
        let row = page.rows.get_mut(place(seq))?.take()?;
        page.present &= !(1 << place(seq));
        self.count -= 1;
        if page.present == 0 {
            self.pages.free(seq);
        }
        Some(row)
    }

    /// All rows, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Seq, &Row)> {
        let pages = (self.pages.first..).zip(&self.pages.pages);
        pages
            .filter_map(|(number, page)| Some((number, page.as_ref()?)))
            .flat_map(|(number, page)| (number * PAGE_ROWS..).zip(&page.rows))
            .filter_map(|(seq, row)| Some((seq, row.as_ref()?)))
    }
}

/// What is pending is what takes room: a page goes when its last row does. After the oldest row an empty page costs a pointer.
#[derive(Clone, Default)]
struct Pages {
    pages: VecDeque<Option<Box<Page>>>,
    /// The number of the first page.
    first: u64,
    /// An emptied page, for the next one that is wanted: where events come and go one by one, that is soon.
    spare: Option<Box<Page>>,
}

#[derive(Clone)]
struct Page {
    rows: [Option<Row>; PAGE_ROWS as usize],
    /// Which rows are there, as bits.
    present: u64,
}

impl Pages {
    fn of(&self, seq: Seq) -> Option<&Page> {
        self.pages.get(self.index(seq)?)?.as_deref()
    }

    fn of_mut(&mut self, seq: Seq) -> Option<&mut Option<Box<Page>>> {
        let index = self.index(seq)?;
        self.pages.get_mut(index)
    }

    fn has(&self, seq: Seq) -> bool {
        self.of(seq).is_some_and(|page| page.present & (1 << place(seq)) != 0)
    }

    /// The page of a row that is to be put there.
    fn reach(&mut self, seq: Seq) -> Option<&mut Page> {
        let number = seq / PAGE_ROWS;
        if self.pages.is_empty() {
            self.first = number;
        }
        while number < self.first {
            self.first -= 1;
            self.pages.push_front(None);
        }
        while self.index(seq)? >= self.pages.len() {
            self.pages.push_back(None);
        }
        let index = self.index(seq)?;
        let page = self.pages.get_mut(index)?;
        Some(page.get_or_insert_with(|| self.spare.take().unwrap_or_else(Page::empty)))
    }

    /// Frees the page of a row, which was the last one in it.
    fn free(&mut self, seq: Seq) {
        self.spare = self.of_mut(seq).and_then(Option::take);
        while let Some(None) = self.pages.front() {
            self.pages.pop_front();
            self.first += 1;
        }
    }

    fn index(&self, seq: Seq) -> Option<usize> {
        usize::try_from((seq / PAGE_ROWS).checked_sub(self.first)?).ok()
    }
}

impl Page {
    fn empty() -> Box<Self> {
        Box::new(Self { rows: std::array::from_fn(|_| None), present: 0 })
    }
}

/// Where in its page a row lies.
fn place(seq: Seq) -> usize {
    (seq % PAGE_ROWS) as usize
}
