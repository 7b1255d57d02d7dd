//! What is said during a run and at its end.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is what the program is for")]

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    judge::{Conclusion, Promise},
    ledger::{Book, Event, TxOutcome},
    stage::Shared,
    time::{Micros, SECOND},
};

/// Most things of one kind that are listed.
const LISTED: usize = 10;

/// Says lines: on standard output, or beside it where that is for a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Voice {
    pub(crate) json: bool,
}

impl Voice {
    pub(crate) fn say(self, line: impl AsRef<str>) {
        if self.json { eprintln!("{}", line.as_ref()) } else { println!("{}", line.as_ref()) }
    }

    /// One line on how it goes.
    pub(crate) fn progress(self, shared: &Shared) {
        let now = shared.clock.now();
        let (written, delivered, (waiting, oldest)) = {
            let mut book = shared.ledger.lock();
            (book.committed, book.delivered, book.waiting())
        };
        let oldest = oldest.map_or(0.0, |oldest| now.saturating_sub(oldest) as f64 / SECOND as f64);
        let lasting = shared.incidents.lasting().join(", ");
        self.say(format!(
            "{:>4}:{:02}  written {written}  delivered {delivered}  waiting {waiting}  oldest {oldest:.1} s  faults {}  [{lasting}]",
            now / SECOND / 60,
            now / SECOND % 60,
            shared.incidents.count(),
        ));
    }
}

/// How long events took from the commit to their first arrival, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Lags {
    p50: u64,
    p99: u64,
    max: u64,
}

impl Lags {
    /// Of times in microseconds, in order.
    fn of(times: &[Micros]) -> Self {
        let at =
            |share: usize| times.get(times.len() * share / 100).or(times.last()).map_or(0, |at| at / 1000);
        Self { p50: at(50), p99: at(99), max: times.last().map_or(0, |last| last / 1000) }
    }

    fn of_all(book: &Book) -> Self {
        let committed = book.events.iter().filter(|event| event.outcome == TxOutcome::Committed);
        let lag = |event: &Event| Some(event.first?.at.saturating_sub(event.committed_at));
        let mut times: Vec<Micros> = committed.filter_map(lag).collect();
        times.sort_unstable();
        Self::of(&times)
    }

    fn line(self) -> String {
        format!("{} ms, {} ms, {} ms", self.p50, self.p99, self.max)
    }

    fn json(self) -> Value {
        json!({ "p50": self.p50, "p99": self.p99, "max": self.max })
    }
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    pub(crate) folder: &'a Path,
    pub(crate) shared: &'a Shared,
    pub(crate) book: &'a Book,
    pub(crate) conclusion: &'a Conclusion,
    pub(crate) problems: &'a [String],
}

impl Report<'_> {
    pub(crate) fn is_good(&self) -> bool {
        self.conclusion.wrong.is_empty() && self.problems.is_empty()
    }

    pub(crate) fn print(&self, voice: Voice) {
        if voice.json {
            println!("{}", self.json());
            return;
        }
        let (book, conclusion) = (self.book, self.conclusion);
        let (lags, clear) = (Lags::of_all(book), Lags::of(&conclusion.clear_lags));
        let mut rows: Vec<(String, String)> = vec![
            ("seed".into(), self.seed.to_string()),
            ("minutes".into(), format!("{:.1}", self.minutes)),
            ("committed".into(), book.committed.to_string()),
            ("rolled back".into(), book.rolled_back.to_string()),
            ("delivered".into(), book.delivered.to_string()),
            ("relays started".into(), self.shared.roster.all().len().to_string()),
            (
                "duplicates, explained".into(),
                (conclusion.duplicates - conclusion.count(Promise::Unexplained)).to_string(),
            ),
            ("  of slowness".into(), conclusion.of_slowness.to_string()),
            ("poisoned".into(), conclusion.poisoned.to_string()),
            ("dead, rejected".into(), conclusion.rejected.to_string()),
            ("over a minute, with a reason".into(), conclusion.late_for_a_reason.to_string()),
            ("lag p50, p99, max".into(), lags.line()),
            ("events with a clear way".into(), conclusion.clear_lags.len().to_string()),
            ("  lag p50, p99, max".into(), clear.line()),
        ];
        rows.extend(
            self.shared
                .incidents
                .counts()
                .into_iter()
                .map(|(what, count)| (format!("fault: {what}"), count.to_string())),
        );
        for promise in Promise::ALL {
            rows.push((format!("wrong: {}", promise.name()), conclusion.count(promise).to_string()));
        }
        rows.push(("wrong: problems".into(), self.problems.len().to_string()));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        println!();
        for (name, value) in rows {
            println!("{name:<width$}  {value}");
        }
        for promise in Promise::ALL {
            for wrong in conclusion.wrong.iter().filter(|wrong| wrong.promise == promise).take(LISTED) {
                println!("\n{}: {}", promise.name(), wrong.what);
            }
        }
        for problem in self.problems.iter().take(LISTED) {
            println!("\nproblem: {problem}");
        }
        if self.is_good() {
            println!("\nAll promises held.");
        } else {
            println!(
                "\nPromises are broken. The logs of the relays and the history are in {}.\nThe same faults again: --seed {}",
                self.folder.display(),
                self.seed
            );
        }
    }

    fn json(&self) -> Value {
        let (book, conclusion) = (self.book, self.conclusion);
        let (lags, clear) = (Lags::of_all(book), Lags::of(&conclusion.clear_lags));
        let wrong: serde_json::Map<String, Value> = Promise::ALL
            .into_iter()
            .map(|promise| (promise.name().to_owned(), json!(conclusion.count(promise))))
            .collect();
        let list: Vec<Value> = conclusion
            .wrong
            .iter()
            .map(|wrong| json!({ "promise": wrong.promise.name(), "what": wrong.what }))
            .collect();
        json!({
            "good": self.is_good(),
            "seed": self.seed,
            "minutes": self.minutes,
            "committed": book.committed,
            "rolled_back": book.rolled_back,
            "delivered": book.delivered,
            "duplicates": conclusion.duplicates,
            "duplicates_of_slowness": conclusion.of_slowness,
            "poisoned": conclusion.poisoned,
            "dead_rejected": conclusion.rejected,
            "over_a_minute_with_a_reason": conclusion.late_for_a_reason,
            "lag_ms": lags.json(),
            "with_a_clear_way": conclusion.clear_lags.len(),
            "clear_lag_ms": clear.json(),
            "faults": self.shared.incidents.counts(),
            "wrong": wrong,
            "list": list,
            "problems": self.problems,
            "folder": (!self.is_good()).then(|| self.folder.display().to_string()),
        })
    }
}
