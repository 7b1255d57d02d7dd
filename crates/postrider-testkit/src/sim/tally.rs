//! How much of everything happened.

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How much of everything happened in a run.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Tally {
            $($(#[$doc])* pub $name: usize,)*
        }

        impl Tally {
            /// Every count with its name.
            pub fn counts(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        impl std::ops::AddAssign for Tally {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

tally! {
    /// Events whose transaction committed.
    committed,
    /// Events whose transaction, or savepoint, was rolled back.
    rolled_back,
    /// Commits that took effect and whose reply was lost.
    lost_commits,
    /// Events that committed behind one that was written later.
    late_commits,
    /// Times that an event took effect at a receiver.
    effects,
    /// Effects beyond the first of an event.
    duplicates,
    /// Failed attempts.
    failures,
    /// Answers that the receiver is down.
    refusals,
    /// Sends that were given up because no answer came in time.
    timeouts,
    /// Calls that brought fewer outcomes than events.
    missing,
    /// Calls that panicked.
    panics,
    /// Batches of more than one event.
    batches,
    /// Stretches of time in which a receiver did nothing but one wrong thing.
    outages,
    /// Those of one destination alone.
    destination_outages,
    /// Those in which everything was rejected.
    rejecting,
    /// Those in which everything failed and the health check passed.
    failing_and_well,
    /// Stretches of time in which a receiver took so much and no more.
    limits,
    /// Answers that it was too fast.
    too_fast,
    /// Answers that an event will never be accepted.
    rejections,
    /// Events that fail every batch that they are in.
    spoilers,
    /// Events of batches that failed as a whole.
    failed_together,
    /// Handlers that were given up because they did not end in time.
    handler_timeouts,
    /// Events of keys that have very many.
    of_long_keys,
    /// Breakers that opened.
    breakers,
    /// Health checks that passed.
    healthy,
    /// Events that an outside receiver refuses whenever it is asked for them.
    poisons,
    /// Rows that claims skipped.
    skipped,
    /// Claims that went back to what was skipped.
    walks,
    /// Pauses that an operator began.
    pauses,
    /// Looks of engines that found something paused.
    pauses_seen,
    /// Events that went dead.
    dead,
    /// Crashes of engines.
    crashes,
    /// Engines that were shut down in the middle.
    shutdowns,
    /// Those of them that had something to give back, or were sending.
    busy_shutdowns,
    /// Faults of the database.
    faults,
    /// Verbs whose answer nobody waited for, because the process ended or its time was up.
    cut_off,
    /// Settles that took longer than a lease.
    stalled_settles,
    /// Settles that the fence refused.
    fenced,
    /// Times that the database lost its last transactions.
    times_back,
    /// Events that were lost with them.
    lost,
    /// Rows that somebody else locked.
    locked,
    /// Outcomes that the database refused.
    refused_outcomes,
    /// Jumps of the database's clock.
    jumps,
    /// Crashes that an event brought about.
    kills,
    /// Leases taken.
    leases,
    /// Leases of a lane with a held key, which somebody else had before.
    held_takeovers,
    /// Events that were handed over in memory.
    hot,
}
