//! Chooses what a claim returns: the rules that every store shares. Does no I/O.
//!
//! A store reads rows without their payloads and hands them over in four lists: rows to check again, fresh rows, waiting rows and the rows
//! behind freed keys. A [`Selector`] decides what becomes of each row ([`Disposition`]), takes from the lists by turns within the limits of
//! the claim, and asks the store to read on where a list runs out. The store then reads the payloads of what was chosen, writes back what the
//! [`Selection`] says, and keeps the new positions.
//!
//! A store differs in how it reads rows and in how it learns of late commits. It does not differ in these rules:
//!
//! * Time comes before the key. A delayed row waits for its time without holding its key, and what is parked is due.
//! * A row is due if its key is not held, or is held because of this row. Otherwise the row is parked behind the head of its key.
//! * Freed keys return in the order of their heads, and the rows of a key in their own order. A key whose parked rows are not all known to come
//!   after everything else of it returns nothing yet.
//! * Fresh rows have half of a claim, waiting and returning rows share the other half, and what one of them leaves goes to the others.
//! * A list is only taken from its front: what lies behind a row that does not fit must not overtake it.
//! * An [`Admission`](crate::store::Admission) is asked about each row once, and only if the row fits.

mod budget;
mod freed;
mod list;
mod row;
mod selection;
mod selector;
#[cfg(test)]
mod tests;

pub use budget::Budget;
pub use freed::{FreedKey, RETURNING_KEYS_MAX, RETURNING_OF_A_KEY_MAX};
pub use row::{Disposition, Facts, Hold, Row, Rules};
pub use selection::{Scanned, Selection, WriteBack};
pub use selector::{List, Selector};
