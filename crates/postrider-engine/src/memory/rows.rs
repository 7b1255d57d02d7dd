//! The rows by their place in the order: pages of neighbours, so that finding one costs two steps however many there are.

use std::collections::VecDeque;

use postrider_core::store::Seq;

use super::{hash::hash_of, ids::Ids, row::Row};

const PAGE_ROWS: u64 = 64;

/// What is pending is what takes room: a page goes when its last row does. After the oldest row an empty page costs a pointer.
#[derive(Default)]
pub(super) struct Rows {
    pages: VecDeque<Option<Box<Page>>>,
    /// The number of the first page.
    first: u64,
    count: usize,
    ids: Ids,
    /// An emptied page, for the next one that is wanted: where events come and go one by one, that is soon.
    spare: Option<Box<Page>>,
}

struct Page {
    rows: [Option<Row>; PAGE_ROWS as usize],
    id_hashes: [u64; PAGE_ROWS as usize],
    count: usize,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&Row> {
        let page = self.pages.get(self.index(seq)?)?.as_ref()?;
        page.rows.get(place(seq))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut Row> {
        let index = self.index(seq)?;
        let page = self.pages.get_mut(index)?.as_mut()?;
        page.rows.get_mut(place(seq))?.as_mut()
    }

    /// The place of the row with this id.
    pub(super) fn find(&self, id: &str) -> Option<Seq> {
        let is_it = |seq: &Seq| self.get(*seq).is_some_and(|row| row.id().as_str() == id);
        self.ids.find(hash_of(id), id).find(is_it)
    }

    /// Puts a row where none was yet.
    pub(super) fn insert(&mut self, seq: Seq, row: Row) {
        let id_hash = hash_of(row.id().as_str());
        let twin = self.ids.first(id_hash).is_some_and(|first| self.get(first).is_some());
        self.ids.insert(id_hash, seq, twin.then(|| row.id()));
        self.reach(seq);
        let Some(page) = self.index(seq).and_then(|index| self.pages.get_mut(index)) else { return };
        let page = page.get_or_insert_with(|| self.spare.take().unwrap_or_else(Page::empty));
        if let Some((room, hash)) = page.rows.get_mut(place(seq)).zip(page.id_hashes.get_mut(place(seq))) {
            (*room, *hash) = (Some(row), id_hash);
            page.count += 1;
            self.count += 1;
        }
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<Row> {
        let index = self.index(seq)?;
        let page = self.pages.get_mut(index)?;
        let rows = page.as_mut()?;
        let row = rows.rows.get_mut(place(seq))?.take()?;
        rows.count -= 1;
        self.count -= 1;
        if rows.count == 0 {
            self.ids.forget(rows.id_hashes.iter().copied().zip(seq - seq % PAGE_ROWS..));
            self.spare = page.take();
            while let Some(None) = self.pages.front() {
                self.pages.pop_front();
                self.first += 1;
            }
        }
        Some(row)
    }

    /// All rows, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Seq, &Row)> {
        let pages =
            (self.first..).zip(&self.pages).filter_map(|(number, page)| Some((number, page.as_ref()?)));
        pages
            .flat_map(|(number, page)| (number * PAGE_ROWS..).zip(&page.rows))
            .filter_map(|(seq, row)| Some((seq, row.as_ref()?)))
    }

    /// Sees to it that there is a place for the page of this row.
    fn reach(&mut self, seq: Seq) {
        let number = seq / PAGE_ROWS;
        if self.pages.is_empty() {
            self.first = number;
        }
        while number < self.first {
            self.first -= 1;
            self.pages.push_front(None);
        }
        while self.first + self.pages.len() as u64 <= number {
            self.pages.push_back(None);
        }
    }

    fn index(&self, seq: Seq) -> Option<usize> {
        usize::try_from((seq / PAGE_ROWS).checked_sub(self.first)?).ok()
    }
}

impl Page {
    fn empty() -> Box<Self> {
        let rows = std::array::from_fn(|_| None);
        Box::new(Self { rows, id_hashes: [0; PAGE_ROWS as usize], count: 0 })
    }
}

/// Where in its page a row lies.
fn place(seq: Seq) -> usize {
    (seq % PAGE_ROWS) as usize
}
