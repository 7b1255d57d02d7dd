//! What all parts of a run share, and the stage that they play on.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider_testkit::proxy::Proxy;
use tokio_util::sync::CancellationToken;

use crate::{
    board::Board,
    database::Database,
    history::History,
    incidents::Incidents,
    ledger::{Arrival, Ledger, Number, TxOutcome},
    owners::Owners,
    receivers::Receiver,
    relays::Relays,
    roster::Roster,
    time::{Clock, pass},
    world::Destination,
};

/// What is known of a run, for those who add to it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The name of the run: its database, its streams and its folder have it.
    pub(crate) run: String,
    pub(crate) folder: PathBuf,
    pub(crate) clock: Clock,
    pub(crate) ledger: Ledger,
    pub(crate) history: History,
    pub(crate) incidents: Incidents,
    pub(crate) board: Board,
    pub(crate) roster: Roster,
    pub(crate) owners: Owners,
    problems: Mutex<Vec<String>>,
}

impl Shared {
    pub(crate) fn new(run: String, folder: PathBuf, clock: Clock, history: History) -> Self {
        Self {
            run,
            folder,
            clock,
            ledger: Ledger::default(),
            incidents: Incidents::new(clock, history.clone()),
            history,
            board: Board::new(),
            roster: Roster::default(),
            owners: Owners::default(),
            problems: Mutex::default(),
        }
    }

    pub(crate) fn arrived(&self, number: Number, arrival: Arrival, at: Destination) {
        let answered = if arrival.acknowledged { "" } else { " unanswered" };
        self.history.note(arrival.at, format_args!("e{number} at {} by {}{answered}", at.name(), arrival.by));
        self.ledger.arrived(number, arrival);
    }

    /// A transaction, or a part of it, has ended now.
    pub(crate) fn ended(&self, numbers: &[Number], outcome: TxOutcome) {
        let now = self.clock.now();
        if !numbers.is_empty() {
            self.history.note(now, format_args!("{outcome:?}: {numbers:?}"));
        }
        self.ledger.ended(numbers, outcome, now);
    }

    /// Something that should never happen, and that no event shows.
    pub(crate) fn problem(&self, what: String) {
        self.history.note(self.clock.now(), format_args!("problem: {what}"));
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The relays, the database, the ways between them, and what is shared.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) shared: Arc<Shared>,
    pub(crate) database: Database,
    pub(crate) relays: Relays,
    /// Before the batch receiver and before Redis.
    pub(crate) batch_proxy: Proxy,
    pub(crate) feed_proxy: Proxy,
    /// No more faults.
    pub(crate) calm: CancellationToken,
    /// They serve as long as this is there.
    pub(crate) _receivers: [Receiver; 2],
}

impl Stage {
    /// Lets a fault last for so long, or until there are to be none. Says whether it may go on.
    pub(crate) async fn hold(&self, time: Duration) -> bool {
        tokio::select! {
            () = self.calm.cancelled() => false,
            () = pass(time) => true,
        }
    }
}
