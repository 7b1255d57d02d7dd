//! Lanes change hands.

use postrider_core::{
    Timestamp,
    store::{Lane, Lease, LeaseRequest, Leased, Token},
};

use super::{lane::Owner, tables::Tables};

pub(super) fn lease(tables: &mut Tables, request: &LeaseRequest, now: Timestamp) -> Leased {
    let mut leased = Leased::default();
    let mut nonces = request.nonces();
    let mut next_expiry: Option<Timestamp> = None;
    for (number, lane) in tables.lanes_mut() {
        // The same name gets no special treatment: two processes may well bear one.
        match lane.owner.as_ref().filter(|owner| owner.until > now) {
            Some(owner) => next_expiry = Some(next_expiry.map_or(owner.until, |next| next.min(owner.until))),
            None => {
                let token = Token { epoch: lane.epoch + 1, nonce: nonces.next().unwrap_or_default() };
                lane.epoch = token.epoch;
                lane.nonce = Some(token.nonce);
                lane.owner = Some(Owner { name: request.owner.clone(), until: now.plus(request.ttl) });
                leased.leases.push(Lease { lane: number, token });
            }
        }
    }
    leased.next_expiry = next_expiry.map(|until| until.since(now));
    leased
}

pub(super) fn renew(tables: &mut Tables, leases: &[Lease], until: Timestamp) -> Vec<Lane> {
    let mut held = Vec::new();
    for lease in leases {
        let Some(lane) = tables.lane_mut(lease.lane).filter(|lane| lane.is_held_by(lease.token)) else {
            continue;
        };
        if let Some(owner) = &mut lane.owner {
            owner.until = until;
            held.push(lease.lane);
        }
    }
    held
}

pub(super) fn release(tables: &mut Tables, leases: &[Lease]) {
    for lease in leases {
        if let Some(lane) = tables.lane_mut(lease.lane).filter(|lane| lane.is_held_by(lease.token)) {
            lane.owner = None;
            lane.nonce = None;
        }
    }
}
