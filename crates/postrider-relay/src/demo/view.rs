//! The live view: lines that are drawn again where somebody watches, a line a second elsewhere.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{pulse::Pulse, rate::Rate};
use crate::terminal::Terminal;

/// How often a line is printed where nothing can be drawn again.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Shows what happens.
pub(crate) struct View {
    written: Rate,
    delivered: Rate,
    screen: Screen,
}

enum Screen {
    Live(Live),
    Lines { terminal: Terminal, next: Duration },
}

/// The lines that are drawn again and again.
struct Live {
    /// Keeps the lines together.
    _all: MultiProgress,
    written: ProgressBar,
    delivered: ProgressBar,
    queues: ProgressBar,
    trouble: ProgressBar,
    state: ProgressBar,
    /// What is said while there is nothing else to say.
    hint: &'static str,
}

impl View {
    /// A view on a start that commits `events` events and then, perhaps, ends by itself.
    pub(crate) fn new(terminal: Terminal, events: u64, ends: bool) -> Self {
        let screen = if terminal.is_live() {
            let hint = if ends { "ends when nothing is pending" } else { "Ctrl-C ends it with the verdict" };
            Screen::Live(Live::new(events, hint))
        } else {
            Screen::Lines { terminal, next: LINE_EVERY }
        };
        Self { written: Rate::default(), delivered: Rate::default(), screen }
    }

    pub(crate) fn show(&mut self, pulse: &Pulse) {
        self.written.sample(pulse.at, pulse.committed);
        self.delivered.sample(pulse.at, pulse.engine.delivered);
        match &mut self.screen {
            Screen::Live(live) => live.draw(pulse, &self.written, &self.delivered),
            Screen::Lines { terminal, next } => {
                if pulse.at >= *next {
                    *next = pulse.at + LINE_EVERY;
                    terminal.say(line(pulse, &self.written, &self.delivered));
                }
            }
        }
    }

    /// The last picture stays.
    pub(crate) fn end(self) {
        if let Screen::Live(live) = self.screen {
            live.state.set_message("");
            let lines = [live.written, live.delivered, live.queues, live.trouble, live.state];
            lines.iter().for_each(ProgressBar::abandon);
        }
    }
}

impl Live {
    fn new(events: u64, hint: &'static str) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stdout_with_hz(10));
        let bar = |name, length, template| {
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("━╸╌");
            all.add(ProgressBar::new(length).with_style(style).with_prefix(name))
        };
        const BAR: &str = "  {prefix:10}{bar:24} {wide_msg}";
        const TEXT: &str = "  {prefix:10}{wide_msg}";
        Self {
            written: bar("written", events, BAR),
            delivered: bar("delivered", events, BAR),
            queues: bar("queues", 0, TEXT),
            trouble: bar("trouble", 0, TEXT),
            state: bar("", 0, TEXT),
            hint,
            _all: all,
        }
    }

    fn draw(&self, pulse: &Pulse, written: &Rate, delivered: &Rate) {
        let Pulse { engine, stats, .. } = pulse;
        for (bar, total, rate) in
            [(&self.written, pulse.committed, written), (&self.delivered, engine.delivered, delivered)]
        {
            bar.set_length(bar.length().unwrap_or(0).max(total));
            bar.set_position(total);
            bar.set_message(format!("{total:>8} {:>7.0}/s  {}", rate.per_second(), rate.picture()));
        }
        self.queues.set_message(queues(pulse));
        self.trouble.set_message(format!(
            "{} rolled back · {} retries · {} dead · {} held",
            pulse.rolled_back,
            engine.failed,
            stats.dead,
            plural(stats.held_keys, "key")
        ));
        self.state.set_message(pulse.standby.map_or_else(|| self.hint.to_owned(), waiting));
    }
}

fn queues(pulse: &Pulse) -> String {
    let Pulse { engine, .. } = pulse;
    format!(
        "hot {} · cold {} · pending {} · lag {} ms",
        engine.hot_depth,
        engine.cold_depth,
        pulse.pending(),
        engine.oldest_lag_ms
    )
}

fn line(pulse: &Pulse, written: &Rate, delivered: &Rate) -> String {
    let Pulse { engine, stats, .. } = pulse;
    let mut line = format!(
        "{:>4} s  written {} ({:.0}/s) · delivered {} ({:.0}/s) · {} · {} rolled back · {} retries · {} dead · {} held",
        pulse.at.as_secs(),
        pulse.committed,
        written.per_second(),
        engine.delivered,
        delivered.per_second(),
        queues(pulse),
        pulse.rolled_back,
        engine.failed,
        stats.dead,
        plural(stats.held_keys, "key"),
    );
    if let Some(left) = pulse.standby {
        line.push_str(" · ");
        line.push_str(&waiting(left));
    }
    line
}

fn waiting(left: Duration) -> String {
    format!("waiting for the lease, {:.1} s: another instance has it, or was killed", left.as_secs_f64())
}

pub(crate) fn plural(count: u64, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}
