//! The live view: lines redrawn in place on a terminal, one line a second elsewhere.

use std::time::Duration;

use super::{pulse::Pulse, rate::Rate};
use crate::terminal::{Canvas, Terminal};

/// How often a line is printed where nothing can be redrawn.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Characters of a bar.
const BAR: u64 = 24;

/// Shows the numbers of a run.
pub(crate) struct View {
    written: Rate,
    delivered: Rate,
    screen: Screen,
}

enum Screen {
    Live {
        canvas: Canvas,
        /// Events to be committed, which is the length of the bars.
        events: u64,
        /// The sentence that is shown while there is nothing else to say.
        hint: &'static str,
    },
    Lines {
        terminal: Terminal,
        next: Duration,
    },
}

impl View {
    /// The view of a start that commits `events` events and then may end by itself.
    pub(crate) fn new(terminal: Terminal, events: u64, ends: bool) -> Self {
        let hint = if ends { "ends when nothing is pending" } else { "Ctrl-C ends it with the result" };
        let screen = match terminal.canvas() {
            Some(canvas) => Screen::Live { canvas, events, hint },
            None => Screen::Lines { terminal, next: LINE_EVERY },
        };
        Self { written: Rate::default(), delivered: Rate::default(), screen }
    }

    pub(crate) fn show(&mut self, pulse: &Pulse) {
        self.written.sample(pulse.at, pulse.committed);
        self.delivered.sample(pulse.at, pulse.engine.delivered);
        match &mut self.screen {
            Screen::Live { canvas, events, hint } => {
                let state = pulse.standby.map_or_else(|| (*hint).to_owned(), waiting);
                canvas.draw(&picture(pulse, *events, &self.written, &self.delivered, &state));
            }
            Screen::Lines { terminal, next } => {
                if pulse.at >= *next {
                    *next = pulse.at + LINE_EVERY;
                    terminal.print(line(pulse, &self.written, &self.delivered));
                }
            }
        }
    }

    /// Draws the last picture, which stays.
    pub(crate) fn end(mut self, pulse: &Pulse) {
        if let Screen::Live { hint, .. } = &mut self.screen {
            *hint = "ended";
            self.show(&Pulse { standby: None, ..*pulse });
        }
    }
}

fn picture(pulse: &Pulse, events: u64, written: &Rate, delivered: &Rate, state: &str) -> [String; 5] {
    let growth = |name, total: u64, rate: &Rate| {
        let bar = bar(total, events);
        format!("  {name:10}{bar} {total:>8} {:>7.0}/s  {}", rate.per_second(), rate.picture())
    };
    [
        growth("written", pulse.committed, written),
        growth("delivered", pulse.engine.delivered, delivered),
        format!("  {:10}{}", "queues", queues(pulse)),
        format!("  {:10}{}", "trouble", trouble(pulse)),
        format!("  {:10}{state}", ""),
    ]
}

fn line(pulse: &Pulse, written: &Rate, delivered: &Rate) -> String {
    let mut line = format!(
        "{:>4} s  written {} ({:.0}/s) · delivered {} ({:.0}/s) · {} · {}",
        pulse.at.as_secs(),
        pulse.committed,
        written.per_second(),
        pulse.engine.delivered,
        delivered.per_second(),
        queues(pulse),
        trouble(pulse),
    );
    if let Some(left) = pulse.standby {
        line.push_str(" · ");
        line.push_str(&waiting(left));
    }
    line
}

fn bar(done: u64, of: u64) -> String {
    let filled = (done.min(of) * BAR).checked_div(of).unwrap_or(BAR);
    (0..BAR).map(|place| if place < filled { '━' } else { '╌' }).collect()
}

fn queues(pulse: &Pulse) -> String {
    let Pulse { engine, .. } = pulse;
    let (hot, cold, lag_ms) = (engine.hot_depth, engine.cold_depth, engine.oldest_lag_ms);
    format!("hot {hot} · cold {cold} · pending {} · lag {lag_ms} ms", pulse.pending())
}

fn trouble(pulse: &Pulse) -> String {
    let Pulse { rolled_back, engine, stats, held, .. } = pulse;
    let (retries, dead) = (engine.failed, stats.dead);
    let keys = plural(stats.held_keys, "key");
    format!("{rolled_back} rolled back · retries {retries} · dead {dead}, {held} behind · {keys} held")
}

fn waiting(left: Duration) -> String {
    format!("waiting for the lease, {:.1} s: another instance has it, or was killed", left.as_secs_f64())
}

pub(crate) fn plural(count: u64, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        let filled = |done, of| bar(done, of).chars().filter(|&place| place == '━').count() as u64;
        assert_eq!(
            [filled(0, 10), filled(5, 10), filled(10, 10), filled(99, 10), filled(0, 0)],
            [0, BAR / 2, BAR, BAR, BAR]
        );
    }
}
