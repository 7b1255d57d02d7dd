//! Reads events in pages, from the newest back: once for a list, or again and again to follow changes.

use std::collections::{HashSet, VecDeque};

use clap::ValueEnum;
use postrider::{
    Store,
    store::{EventStatus, ListCursor, ListFrom, ListScope, ListedEvent, Listing},
};

use super::filter_args::FilterArgs;

/// Page size, and page size with payloads, which may have a mebibyte each.
const PAGE: usize = 500;
const PAGE_WITH_PAYLOADS: usize = 20;

/// Pages that one poll reads back at most. A follower misses what exceeds this between two polls.
const PAGES_MAX: usize = 20;

/// Events whose last status a follower remembers.
const SEEN_MAX: usize = 50_000;

/// The statuses that a list can be filtered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFilter {
    /// Neither delivered nor dead
    Pending,
    /// Pending and never tried
    New,
    /// Pending and waiting for its time
    Waiting,
    /// Pending behind the head of its key
    Parked,
    /// Dead: not tried again by itself
    Dead,
    /// Delivered and still kept
    Done,
}

/// The name of a status, as commands print it.
pub(super) fn status_name(status: &EventStatus) -> &'static str {
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

impl StatusFilter {
    fn matches(self, status: &EventStatus) -> bool {
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

/// A store and a filter of its events.
pub(super) struct View<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) filter: FilterArgs,
    pub(super) status: Option<StatusFilter>,
    pub(super) payloads: bool,
}

impl View<'_> {
    /// The lists that can hold such events.
    pub(super) fn scopes(&self) -> &'static [ListScope] {
        match self.status {
            None => &[ListScope::Undelivered, ListScope::Delivered],
            Some(StatusFilter::Dead) => &[ListScope::Dead],
            Some(StatusFilter::Done) => &[ListScope::Delivered],
            Some(_) => &[ListScope::Undelivered],
        }
    }

    fn page_size(&self) -> usize {
        if self.payloads { PAGE_WITH_PAYLOADS } else { PAGE }
    }

    /// One page of a list, oldest first, whatever the status of its events.
    async fn page(
        &self,
        scope: ListScope,
        from: ListFrom,
        limit: usize,
    ) -> postrider::Result<Vec<ListedEvent>> {
        let listing = Listing {
            scope,
            from,
            event_type: self.filter.event_type.clone(),
            key: self.filter.key.clone(),
            id: None,
            limit,
            payloads: self.payloads,
        };
        self.store.list(&listing).await
    }

    fn matches(&self, event: &ListedEvent) -> bool {
        self.status.is_none_or(|wanted| wanted.matches(&event.status))
    }

    /// The newest events, oldest first.
    pub(super) async fn newest(&self, limit: usize) -> postrider::Result<Vec<ListedEvent>> {
        let mut all = Vec::new();
        for &scope in self.scopes() {
            let (mut from, mut found) = (ListFrom::Newest, Vec::new());
            while found.len() < limit {
                let size = self.page_size().min(limit);
                let page = self.page(scope, from, size).await?;
                let (Some(first), length) = (page.first().map(|first| first.cursor.clone()), page.len())
                else {
                    break;
                };
                found.splice(0..0, page.into_iter().filter(|event| self.matches(event)));
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

/// Sorts events by their position or, where they have none, by when they were written.
fn in_order(events: &mut [ListedEvent]) {
    events.sort_by(|a, b| {
        (a.cursor.seq, a.created_at, a.id.as_str()).cmp(&(b.cursor.seq, b.created_at, b.id.as_str()))
    });
}

/// Finds what has changed since the last poll.
///
/// Each poll reads back from the newest event to the newest one of the last poll, and one page at least. That page catches late commits and
/// changes among the newest events.
pub(super) struct Follower {
    progress: Vec<Progress>,
    seen: HashSet<(String, &'static str)>,
    order: VecDeque<(String, &'static str)>,
}

/// How far a list was read.
struct Progress {
    /// Events before this one existed when following began. They may come into view once newer ones are gone, and are not new.
    floor: ListCursor,
    newest: ListCursor,
}

impl Follower {
    /// Begins after the events that exist now.
    pub(super) async fn begin(view: &View<'_>) -> postrider::Result<Self> {
        let mut followed = Self { progress: Vec::new(), seen: HashSet::new(), order: VecDeque::new() };
        for &scope in view.scopes() {
            let page = view.page(scope, ListFrom::Newest, view.page_size()).await?;
            let place =
                |event: Option<&ListedEvent>| event.map(|event| event.cursor.clone()).unwrap_or_default();
            let floor =
                if page.len() < view.page_size() { ListCursor::default() } else { place(page.first()) };
            followed.progress.push(Progress { floor, newest: place(page.last()) });
            page.iter().for_each(|event| _ = followed.is_new(event));
        }
        Ok(followed)
    }

    /// The events that did not exist, or had another status, at the last poll.
    pub(super) async fn changes(&mut self, view: &View<'_>) -> postrider::Result<Vec<ListedEvent>> {
        let mut all = Vec::new();
        for (number, &scope) in view.scopes().iter().enumerate() {
            let Some(Progress { floor, newest }) = self.progress.get(number) else { continue };
            let mut found = since(view, scope, newest).await?;
            found.retain(|event| event.cursor >= *floor);
            if let (Some(last), Some(progress)) = (found.last(), self.progress.get_mut(number)) {
                progress.newest = last.cursor.clone().max(progress.newest.clone());
            }
            all.extend(found.into_iter().filter(|event| self.is_new(event) && view.matches(event)));
        }
        in_order(&mut all);
        Ok(all)
    }

    /// Remembers an event with its status and returns whether they are new.
    fn is_new(&mut self, event: &ListedEvent) -> bool {
        let seen = (event.id.as_str().to_owned(), status_name(&event.status));
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

/// The events of a list from the newest back to `newest`, one page at least, oldest first.
async fn since(
    view: &View<'_>,
    scope: ListScope,
    newest: &ListCursor,
) -> postrider::Result<Vec<ListedEvent>> {
    let (mut from, mut found) = (ListFrom::Newest, Vec::new());
    for _ in 0..PAGES_MAX {
        let mut page = view.page(scope, from, view.page_size()).await?;
        let Some(first) = page.first().map(|first| first.cursor.clone()) else { break };
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
