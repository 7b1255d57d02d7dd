//! Pages of events, from the newest back: those of one command, and those that were not there at the last look.

use std::collections::{HashSet, VecDeque};

use clap::ValueEnum;
use postrider::{
    Store,
    store::{Bookmark, EventStatus, ListFrom, ListedEvent, Listing, Shelf},
};

use super::which::Which;

/// Most events that one page has, and most with their payloads, which may be a mebibyte each.
const PAGE: usize = 500;
const PAGE_WITH_PAYLOADS: usize = 20;

/// Most pages that one look reads back: more than that between two looks is not followed.
const PAGES_MAX: usize = 20;

/// Most events whose last state is remembered between looks.
const SEEN_MAX: usize = 50_000;

/// The states that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wanted {
    /// Neither delivered nor dead
    Pending,
    /// Pending, and never tried
    New,
    /// Pending, and waiting for a time
    Waiting,
    /// Pending, behind the head of its key
    Parked,
    /// Not to be tried again
    Dead,
    /// Delivered and kept
    Done,
}

/// What an event's state is called.
pub(super) fn word(status: &EventStatus) -> &'static str {
    match status {
        EventStatus::Absent => "absent",
        EventStatus::New => "new",
        EventStatus::Parked => "parked",
        EventStatus::Waiting { .. } => "waiting",
        EventStatus::Done { .. } => "done",
        EventStatus::Dead { .. } => "dead",
        _ => "unknown",
    }
}

impl Wanted {
    fn fits(self, status: &EventStatus) -> bool {
        match self {
            Self::Pending => !matches!(status, EventStatus::Dead { .. } | EventStatus::Done { .. }),
            Self::New => matches!(status, EventStatus::New),
            Self::Waiting => matches!(status, EventStatus::Waiting { .. }),
            Self::Parked => matches!(status, EventStatus::Parked),
            Self::Dead => matches!(status, EventStatus::Dead { .. }),
            Self::Done => matches!(status, EventStatus::Done { .. }),
        }
    }
}

/// What is looked at.
pub(super) struct View<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) which: Which,
    pub(super) status: Option<Wanted>,
    pub(super) payloads: bool,
}

impl View<'_> {
    /// Where such events are.
    pub(super) fn shelves(&self) -> &'static [Shelf] {
        match self.status {
            None => &[Shelf::Undelivered, Shelf::Delivered],
            Some(Wanted::Dead) => &[Shelf::Dead],
            Some(Wanted::Done) => &[Shelf::Delivered],
            Some(_) => &[Shelf::Undelivered],
        }
    }

    fn page_size(&self) -> usize {
        if self.payloads { PAGE_WITH_PAYLOADS } else { PAGE }
    }

    /// One page of a shelf, whatever the state of its events, the oldest first.
    async fn page(&self, shelf: Shelf, from: ListFrom, limit: usize) -> postrider::Result<Vec<ListedEvent>> {
        let listing = Listing {
            shelf,
            from,
            event_type: self.which.event_type.clone(),
            key: self.which.key.clone(),
            id: None,
            limit,
            payloads: self.payloads,
        };
        self.store.list(&listing).await
    }

    fn fits(&self, event: &ListedEvent) -> bool {
        self.status.is_none_or(|wanted| wanted.fits(&event.status))
    }

    /// The newest ones, the oldest of them first.
    pub(super) async fn newest(&self, limit: usize) -> postrider::Result<Vec<ListedEvent>> {
        let mut all = Vec::new();
        for &shelf in self.shelves() {
            let (mut from, mut found) = (ListFrom::Newest, Vec::new());
            while found.len() < limit {
                let size = self.page_size().min(limit);
                let page = self.page(shelf, from, size).await?;
                let (Some(first), length) = (page.first().map(|first| first.bookmark.clone()), page.len())
                else {
                    break;
                };
                found.splice(0..0, page.into_iter().filter(|event| self.fits(event)));
                from = ListFrom::Before(first);
                if length < size {
                    break;
                }
            }
            all.append(&mut found);
        }
        in_order(&mut all);
        all.drain(..all.len().saturating_sub(limit));
        Ok(all)
    }
}

/// By their places, or, where there are none, by when they were written.
fn in_order(events: &mut [ListedEvent]) {
    events.sort_by(|a, b| {
        (a.bookmark.seq, a.created_at, a.id.as_str()).cmp(&(b.bookmark.seq, b.created_at, b.id.as_str()))
    });
}

/// What was seen so far, for those who go on looking.
///
/// Each look reads back from the newest event to the newest one of the last look, and one page at least: what was committed late, and what
/// changed among the newest, is in it.
pub(super) struct Followed {
    marks: Vec<Marks>,
    seen: HashSet<(String, &'static str)>,
    order: VecDeque<(String, &'static str)>,
}

/// How far a shelf was looked through.
struct Marks {
    /// What lies before it was there at the beginning, seen or not: it comes into sight when newer ones are gone, and is no news.
    floor: Bookmark,
    newest: Bookmark,
}

impl Followed {
    /// Begins after what there is now.
    pub(super) async fn begin(view: &View<'_>) -> postrider::Result<Self> {
        let mut followed = Self { marks: Vec::new(), seen: HashSet::new(), order: VecDeque::new() };
        for &shelf in view.shelves() {
            let page = view.page(shelf, ListFrom::Newest, view.page_size()).await?;
            let place =
                |event: Option<&ListedEvent>| event.map(|event| event.bookmark.clone()).unwrap_or_default();
            let floor = if page.len() < view.page_size() { Bookmark::default() } else { place(page.first()) };
            followed.marks.push(Marks { floor, newest: place(page.last()) });
            page.iter().for_each(|event| _ = followed.is_news(event));
        }
        Ok(followed)
    }

    /// What was not there, or not in this state, at the last look.
    pub(super) async fn news(&mut self, view: &View<'_>) -> postrider::Result<Vec<ListedEvent>> {
        let mut all = Vec::new();
        for (number, &shelf) in view.shelves().iter().enumerate() {
            let Some(Marks { floor, newest }) = self.marks.get(number) else { continue };
            let mut found = since(view, shelf, newest).await?;
            found.retain(|event| event.bookmark >= *floor);
            if let (Some(last), Some(marks)) = (found.last(), self.marks.get_mut(number)) {
                marks.newest = last.bookmark.clone().max(marks.newest.clone());
            }
            all.extend(found.into_iter().filter(|event| self.is_news(event) && view.fits(event)));
        }
        in_order(&mut all);
        Ok(all)
    }

    /// Notes an event and its state, and says whether they are news.
    fn is_news(&mut self, event: &ListedEvent) -> bool {
        let seen = (event.id.as_str().to_owned(), word(&event.status));
        if !self.seen.insert(seen.clone()) {
            return false;
        }
        self.order.push_back(seen);
        if self.order.len() > SEEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

/// The events of a shelf from the newest back to this one, one page of them at least, the oldest first.
async fn since(view: &View<'_>, shelf: Shelf, newest: &Bookmark) -> postrider::Result<Vec<ListedEvent>> {
    let (mut from, mut found) = (ListFrom::Newest, Vec::new());
    for _ in 0..PAGES_MAX {
        let mut page = view.page(shelf, from, view.page_size()).await?;
        let Some(first) = page.first().map(|first| first.bookmark.clone()) else { break };
        let whole = page.len() >= view.page_size();
        page.append(&mut found);
        found = page;
        if first <= *newest || !whole {
            break;
        }
        from = ListFrom::Before(first);
    }
    Ok(found)
}
