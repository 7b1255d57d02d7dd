//! The conclusion on a run: a table, a sentence and one JSON object, all read from the ledger.

use std::time::Duration;

use postrider::{Outbox, store::DeadLetter};
use serde_json::{Map, Value, json};

use super::{
    ledger::{Counts, Ledger},
    view::plural,
};
use crate::{
    Conclusion,
    failure::Failure,
    terminal::{self, Terminal},
};

/// Dead letters that are listed.
const LISTED: usize = 5;

/// The result of a run.
pub(crate) struct Report {
    counts: Counts,
    /// Some dead letters, each with the number of events that wait behind it.
    dead: Vec<(DeadLetter, i64)>,
    took: Duration,
    /// Events that this start delivered.
    delivered: u64,
}

impl Report {
    /// Reads the ledger after the engine has stopped.
    pub(crate) async fn read(
        outbox: &Outbox,
        ledger: &Ledger,
        took: Duration,
        delivered: u64,
    ) -> Result<Self, Failure> {
        let mut dead = Vec::new();
        for letter in outbox.dead(0, LISTED).await? {
            let behind = ledger.behind(letter.seq).await?;
            dead.push((letter, behind));
        }
        Ok(Self { counts: ledger.counts().await?, dead, took, delivered })
    }

    pub(crate) fn conclusion(&self) -> Conclusion {
        let Counts { lost, out_of_order, phantom, .. } = self.counts;
        if (lost, out_of_order, phantom) == (0, 0, 0) { Conclusion::Good } else { Conclusion::Bad }
    }

    pub(crate) fn print(&self, terminal: Terminal) {
        terminal.print(format_args!("\n{}", self.table()));
        if !self.dead.is_empty() {
            terminal.print(format_args!("\n{}", self.dead_table()));
            let more = self.counts.dead - self.dead.len() as i64;
            if more > 0 {
                terminal.print(format_args!("  and {more} more dead letters"));
            }
        }
        let rate = self.delivered as f64 / self.took.as_secs_f64().max(0.001);
        terminal.print(format_args!(
            "\nThis start delivered {} in {:.1} s, {rate:.0}/s.",
            plural(self.delivered, "event"),
            self.took.as_secs_f64()
        ));
        terminal.print_conclusion(self.conclusion(), &self.sentence());
        terminal.print_json(self.object());
    }

    fn rows(&self) -> [(&'static str, i64, &'static str); 10] {
        let Counts {
            committed,
            rolled_back,
            delivered,
            dead,
            pending,
            held,
            duplicates,
            out_of_order,
            lost,
            phantom,
        } = self.counts;
        [
            ("committed", committed, "the sum of the next five"),
            ("delivered", delivered, "arrived, each counted once"),
            ("dead", dead, "rejected for good, and in sight"),
            ("held", held, "wait behind a dead event of their key"),
            ("pending", pending, "not delivered yet"),
            ("lost", lost, "must be 0: committed, and nowhere to be found"),
            ("rolled_back", rolled_back, "their transaction or savepoint was undone"),
            ("phantom", phantom, "must be 0: delivered, and not committed"),
            ("out_of_order", out_of_order, "must be 0: overtook an event of their key"),
            ("duplicates", duplicates, "arrived again, as happens after a kill"),
        ]
    }

    fn table(&self) -> String {
        let mut table = terminal::table(["the whole file", "events", "meaning"], &[1]);
        for (name, count, meaning) in self.rows() {
            table.add_row([name, &count.to_string(), meaning]);
        }
        table.trim_fmt()
    }

    fn dead_table(&self) -> String {
        let mut table = terminal::table(["dead letter", "key", "reason", "behind it"], &[3]);
        for (letter, behind) in &self.dead {
            table.add_row([
                letter.id.as_str(),
                letter.key.as_deref().unwrap_or(""),
                &letter.error,
                &behind.to_string(),
            ]);
        }
        table.trim_fmt()
    }

    fn sentence(&self) -> String {
        let Counts { lost, out_of_order, phantom, pending, .. } = self.counts;
        if self.conclusion() == Conclusion::Good {
            let to_come = if pending > 0 { format!("; {pending} still to come") } else { String::new() };
            return format!("Good: nothing lost, out of order, or delivered though rolled back{to_come}.");
        }
        let mut faults = Vec::new();
        for (count, fault) in
            [(lost, "lost"), (out_of_order, "out of order"), (phantom, "delivered though not committed")]
        {
            if count > 0 {
                faults.push(format!("{count} {fault}"));
            }
        }
        format!("Bad: {}.", faults.join(", "))
    }

    fn object(&self) -> Map<String, Value> {
        let mut object: Map<String, Value> =
            self.rows().into_iter().map(|(name, count, _)| (name.to_owned(), json!(count))).collect();
        let seconds = self.took.as_secs_f64();
        let rate = self.delivered as f64 / seconds.max(0.001);
        object.insert("seconds".to_owned(), json!((seconds * 1000.0).round() / 1000.0));
        object.insert("events_per_s".to_owned(), json!(rate.round()));
        object
    }
}
