//! Forgets what is in memory when the database went back in time.

use super::*;

/// The leases from before and after the database went back.
#[derive(Debug, Default)]
pub(super) struct Rewind {
    /// The leases taken since, as long as something from before may be under way.
    taken_since: Option<HashSet<Token>>,
    /// Leases from before that the database may still consider ours.
    old_leases: Vec<(Lease, Seq)>,
}

impl Rewind {
    /// Begins: these leases are from before.
    fn begin(&mut self, leases: &[(Lease, Seq)]) {
        self.old_leases.extend(leases);
        self.taken_since = Some(HashSet::new());
    }

    /// Records a new lease. If nothing is under way any more, nothing can be from before.
    fn took(&mut self, lease: Lease, is_idle: bool) {
        self.taken_since = self.taken_since.take().filter(|_| !is_idle);
        self.taken_since.iter_mut().for_each(|taken| _ = taken.insert(lease.token));
    }

    /// Whether something came under a lease from before.
    fn lost(&self, lease: Lease) -> bool {
        self.taken_since.as_ref().is_some_and(|taken| !taken.contains(&lease.token))
    }
}

impl Buffer {
    /// Forgets positions, what is in flight, and all leases. Running sends end, and their outcomes are dropped:
    /// their numbers may belong to other events by now. Lanes that the restored rows still give to this
    /// instance are [given up](Self::old_leases) before they are taken anew.
    pub(crate) fn rewind(&mut self) {
        let leases = self.lanes.with_suspects();
        leases.iter().for_each(|(lease, _)| self.lose(*lease));
        self.rewind.begin(&leases);
        self.keys.clear();
        self.in_flight.clear();
        self.reserved.clear();
        self.claim_room.end_sharing();
        self.claims.rewind();
        self.suspects.forget_wait();
        // Their lanes are lost, so the next settle drops them.
        self.postponed.clear();
        self.running_claim.forget_held();
    }

    /// Records a new lease: what comes under it is not from before.
    pub(super) fn note_lease_taken(&mut self, lease: Lease) {
        let is_idle = self.sending == 0 && self.outcomes.unwritten() == 0;
        self.rewind.took(lease, is_idle);
    }

    /// Whether something came under a lease from before the rewind.
    pub(super) fn is_from_before_rewind(&self, lease: Lease) -> bool {
        self.rewind.lost(lease)
    }

    /// Returns the leases that the database may still consider ours.
    pub(crate) fn old_leases(&self) -> Vec<(Lease, Seq)> {
        self.rewind.old_leases.clone()
    }

    /// Forgets leases that were given up.
    pub(crate) fn forget_old_leases(&mut self, leases: &[(Lease, Seq)]) {
        self.rewind.old_leases.retain(|old| !leases.contains(old));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(epoch: u64) -> Lease {
        Lease { lane: 0, token: Token { epoch, nonce: epoch } }
    }

    #[test]
    fn what_came_under_a_lease_from_before_is_lost_until_nothing_of_it_is_under_way() {
        let mut rewind = Rewind::default();
        rewind.took(lease(1), false);
        assert!(!rewind.lost(lease(1)), "the database never went back");
        rewind.begin(&[(lease(1), 0)]);
        rewind.took(lease(2), false);
        assert!(rewind.lost(lease(1)) && !rewind.lost(lease(2)));
        rewind.took(lease(3), true);
        assert!(!rewind.lost(lease(1)), "nothing of it can come any more");
        assert_eq!(rewind.old_leases, [(lease(1), 0)]);
    }
}
