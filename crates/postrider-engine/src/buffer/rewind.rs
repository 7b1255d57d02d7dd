//! The database went back in time: what is in memory is about a future that is lost.

use super::*;

impl Buffer {
    /// Forgets positions, what is in flight and all leases. What is being sent goes on to its end, and then nobody asks for it: its number
    /// may be another event's by now. Lanes that the restored rows still say are ours are [given up](Self::old_leases) before they are
    /// taken anew.
    pub(crate) fn rewind(&mut self) {
        let leases: Vec<_> = self.lanes.values().map(|lane| (lane.lease, lane.suspect_to)).collect();
        self.old_leases.extend(&leases);
        leases.into_iter().for_each(|(lease, _)| self.lose(lease));
        self.taken_since = Some(HashSet::new());
        self.keys.clear();
        self.tracked.clear();
        self.reserved.clear();
        (self.hot_count, self.cold_count, self.bytes) = (0, 0, 0);
        self.slot_counts.fill(0);
        (self.sharing, self.returning, self.left_more, self.due_at) = (false, false, None, None);
        self.alone_since = None;
        // Their lanes are lost, and the next settle drops them.
        self.postponed.clear();
        self.held_meanwhile.clear();
    }

    /// A lease was taken: what comes under it is not of a future that is lost.
    pub(super) fn note_lease_taken(&mut self, lease: Lease) {
        let is_idle = self.sending == 0 && self.settling == 0 && self.outcomes.is_empty();
        self.taken_since = self.taken_since.take().filter(|_| !is_idle);
        self.taken_since.iter_mut().for_each(|taken| _ = taken.insert(lease.token));
    }

    /// Whether something came under a lease of a future that is lost.
    pub(super) fn is_from_before_rewind(&self, lease: Lease) -> bool {
        self.taken_since.as_ref().is_some_and(|taken| !taken.contains(&lease.token))
    }

    /// Leases that the database may still say are ours.
    pub(crate) fn old_leases(&self) -> Vec<(Lease, Seq)> {
        self.old_leases.clone()
    }

    /// They were given up.
    pub(crate) fn forget_old_leases(&mut self, leases: &[(Lease, Seq)]) {
        self.old_leases.retain(|old| !leases.contains(old));
    }
}
