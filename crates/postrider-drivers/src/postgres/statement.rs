//! What an insert says.

use postrider_core::tx::{Dialect, LaneHints, OnDuplicate, Prefix, Target};

/// Asks a bare connection whether it is in a transaction: a savepoint is refused outside of one, and two statements that are sent
/// as one do not make one.
pub const ASK: &str = "SAVEPOINT postrider_ask; RELEASE SAVEPOINT postrider_ask";

/// The columns, and what goes into them: fourteen values `v`, and a clock that is read once.
const INTO: &str = "INSERT INTO {p}event (event_id, event_type, aggregate_type, aggregate_id, ordering_key, tenant_id, \
     content_type, headers, payload, payload_bytes, occurred_at, available_at, created_at, lane_hint) \
     SELECT v.event_id, v.event_type, v.aggregate_type, v.aggregate_id, v.ordering_key, v.tenant_id, v.content_type, \
            v.headers, v.payload, v.payload_bytes, timestamptz 'epoch' + v.occurred_at * interval '1 microsecond', \
            coalesce(timestamptz 'epoch' + v.available_at * interval '1 microsecond', \
                     clock.now + v.delay * interval '1 microsecond'), \
            clock.now, v.lane_hint";
const COLUMNS: &str = "event_id, event_type, aggregate_type, aggregate_id, ordering_key, tenant_id, content_type, headers, \
     payload, payload_bytes, occurred_at, available_at, delay, lane_hint";
const CLOCK: &str = "(SELECT clock_timestamp() AS now) AS clock";
const QUIETLY: &str = "ON CONFLICT (event_id) DO NOTHING";

/// The table that events are inserted into. Statements may stay prepared if `prepared` says so.
pub fn target(prefix: &Prefix, prepared: bool) -> Target {
    let insert_one = format!(
        "{INTO} FROM (VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, \
         $10::bytea, $11::bigint, $12::bigint, $13::bigint, $14::integer)) AS v ({COLUMNS}), {CLOCK} {QUIETLY}"
    );
    let insert_one = splice(&insert_one, prefix);
    Target {
        dialect: Dialect::Postgres,
        prefix: prefix.clone(),
        insert_one,
        prepared,
        hints: LaneHints::default(),
    }
}

/// The statement that inserts lists of values and gives the ids of the new events. Where a duplicate is an error, one that is
/// there keeps all of them out.
pub(super) fn insert_many(target: &Target, on_duplicate: OnDuplicate) -> String {
    // The casts are for drivers that send a list as its text.
    let guard = match on_duplicate {
        OnDuplicate::Fail => {
            "WHERE NOT EXISTS (SELECT 1 FROM {p}event AS x WHERE x.event_id = ANY ($1::text[]))"
        }
        OnDuplicate::Keep => "",
    };
    let insert = format!(
        "{INTO} FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
         $9::text[], $10::bytea[], $11::bigint[], $12::bigint[], $13::bigint[], $14::integer[]) WITH ORDINALITY AS v ({COLUMNS}, place), \
         {CLOCK} {guard} ORDER BY v.place {QUIETLY} RETURNING event_id"
    );
    splice(&insert, &target.prefix)
}

/// The statement that takes events back out.
pub(super) fn take_back(target: &Target) -> String {
    splice("DELETE FROM {p}event WHERE event_id = ANY ($1::text[])", &target.prefix)
}

/// Only a [`Prefix`] goes in, which is a plain identifier.
fn splice(template: &str, prefix: &Prefix) -> String {
    template.replace("{p}", &prefix.to_string())
}
