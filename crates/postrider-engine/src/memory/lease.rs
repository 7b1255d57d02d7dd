//! Lanes change hands.

use std::time::Duration;

use postrider_core::{
    Timestamp,
    store::{AcquiredLane, Lane, Lease, LeaseRequest, Leased, Marked, Renewed, Seq, Token},
};

use super::{lane::Owner, tables::Tables};

pub(super) fn lease(tables: &mut Tables, request: &LeaseRequest, now: Timestamp) -> Leased {
    let mut leased = Leased::default();
    let mut nonces = request.nonces();
    let mut next_expiry: Option<Timestamp> = None;
    for (number, lane) in tables.lanes_mut() {
        if let Some(owner) = &mut lane.owner {
            // It cannot last longer: the clock was set back.
            owner.until = owner.until.min(now.plus(owner.ttl));
        }
        // The same name gets no special treatment: two processes may well bear one.
        match lane.owner.as_ref().filter(|owner| owner.until > now) {
            Some(owner) => next_expiry = Some(next_expiry.map_or(owner.until, |next| next.min(owner.until))),
            None if leased.taken.len() >= request.most => {}
            None if lane.locked => leased.locked += 1,
            None => {
                // The first owner has nobody before it, and one that gave the lane back left nothing under way.
                let suspect_to = if lane.clean || lane.epoch == 0 { 0 } else { lane.sent_to };
                lane.sent_to = suspect_to;
                lane.clean = false;
                let token = Token { epoch: lane.epoch + 1, nonce: nonces.next().unwrap_or_default() };
                lane.epoch = token.epoch;
                lane.nonce = Some(token.nonce);
                lane.owner = Some(Owner { until: now.plus(request.ttl), ttl: request.ttl });
                leased.taken.push(AcquiredLane { lease: Lease { lane: number, token }, suspect_to });
            }
        }
    }
    leased.next_expiry = next_expiry.map(|until| until.since(now));
    leased
}

pub(super) fn renew(tables: &mut Tables, leases: &[Lease], now: Timestamp, ttl: Duration) -> Renewed {
    let mut renewed = Renewed::default();
    for lease in leases {
        let Some(lane) = tables.lane_mut(lease.lane).filter(|lane| lane.is_held_by(lease.token)) else {
            continue;
        };
        if lane.locked {
            renewed.locked.push(lease.lane);
        } else if let Some(owner) = &mut lane.owner {
            *owner = Owner { until: now.plus(ttl), ttl };
            renewed.held.push(lease.lane);
        }
    }
    renewed
}

pub(super) fn release(tables: &mut Tables, lanes: &[(Lease, Seq)]) -> Vec<Lane> {
    let mut locked = Vec::new();
    for (lease, suspect_to) in lanes {
        match tables.lane_mut(lease.lane).filter(|lane| lane.is_held_by(lease.token)) {
            Some(lane) if lane.locked => locked.push(lease.lane),
            Some(lane) => {
                lane.owner = None;
                lane.nonce = None;
                lane.clean = *suspect_to == 0;
                lane.sent_to = *suspect_to;
            }
            None => {}
        }
    }
    locked
}

pub(super) fn mark_sent(tables: &mut Tables, marks: &[(Lease, Seq)]) -> Marked {
    let mut marked = Marked::default();
    for (lease, seq) in marks {
        match tables.lane_mut(lease.lane).filter(|lane| lane.is_held_by(lease.token)) {
            Some(lane) if lane.locked => marked.locked.push(lease.lane),
            Some(lane) => lane.sent_to = lane.sent_to.max(*seq),
            None => marked.lost.push(lease.lane),
        }
    }
    marked
}

pub(super) fn join(tables: &mut Tables, instance: &str, now: Timestamp, ttl: Duration) -> u32 {
    tables.members.retain(|_, member| {
        member.until = member.until.min(now.plus(member.ttl));
        member.until > now
    });
    tables.members.insert(instance.to_owned(), Owner { until: now.plus(ttl), ttl });
    u32::try_from(tables.members.len()).unwrap_or(u32::MAX)
}

pub(super) fn leave(tables: &mut Tables, instance: &str) {
    tables.members.remove(instance);
}
