//! Which promises hold on an external outbox table.

use super::{Field, mind, shape::Shape, spec::Mark, window};

/// The promises, one sentence each.
pub(super) fn guarantees(shape: &Shape) -> String {
    let profile = &shape.profile;
    let mut told = vec![
        "at least once: kept".to_owned(),
        "one instance delivers at a time, under a lease in a table of ours; others stand by".to_owned(),
    ];
    told.push(match (shape.is_ordered(), profile.has(Field::CreatedAt)) {
        (false, _) => "order: none, the table has no key".to_owned(),
        (true, true) => format!(
            "order within a key: by {} and {}, as the writer stamped them; a row that is committed late comes late",
            shape.column(Field::CreatedAt),
            shape.column(Field::Id)
        ),
        (true, false) => {
            "order within a key: by id alone, the table has no time; none unless ids sort by time".to_owned()
        }
    });
    told.push(match (shape.mark, profile.has(Field::ClaimedAt), profile.has(Field::Attempts)) {
        (Mark::Owner, ..) => "fenced: by the lease, and by the token in each row".to_owned(),
        (Mark::Status, true, true) => {
            "fenced: by the lease, and by the time of the claim and the count in each row".to_owned()
        }
        (Mark::Status, ..) => "fenced: by the lease, and by the status of each row".to_owned(),
        (Mark::Nothing, ..) => {
            "fenced: by the lease alone; another program on this table cannot be kept out".to_owned()
        }
    });
    if !profile.has(Field::Attempts) {
        told.push("attempts: counted in memory, and from zero after a take-over".to_owned());
    }
    if !profile.has(Field::AvailableAt) {
        told.push("retry times: in memory, and forgotten by a take-over".to_owned());
    }
    told.push(format!(
        "bounded: at most {} rows are read ahead and {} wait in memory; what lies behind those is not looked at before \
         some are gone, and reading ahead sorts what is pending unless an index has its order",
        window::ROWS_MAX,
        mind::ROWS_MAX
    ));
    told.push("dead events do not hold up their keys".to_owned());
    told.join("; ")
}
