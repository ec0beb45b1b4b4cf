//! How events become lines of text or JSON.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::allowance::Allowance;
use crate::catalogue::{ALL, Described, Manner};
use crate::format::Format;
use crate::journal::Journal;
use crate::outlet::Outlet;

/// Writes the events of the catalogue down; what else `tracing` is told of is none of ours.
#[derive(Debug)]
pub struct Lines {
    format: Format,
    outlet: Outlet,
    /// Told in place of the outlet.
    journal: Option<Journal>,
    /// By place in the catalogue.
    allowances: Mutex<Vec<Allowance>>,
}

/// An event as JSON.
#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since 1970, UTC.
    unix_ms: u64,
    of: &'a str,
    event: &'a str,
    level: &'a str,
    text: &'a str,
    /// Events of this name that were not written since the last one that was.
    left_out: u64,
    #[serde(flatten)]
    fields: &'a Map<String, Value>,
}

impl Lines {
    /// Writes them so, there.
    #[must_use]
    pub fn new(format: Format, outlet: Outlet) -> Self {
        Self { format, outlet, journal: None, allowances: Mutex::new(vec![Allowance::WHOLE; ALL.len()]) }
    }

    /// The same; where they would go to the journal, it is told of each with its name and fields.
    #[must_use]
    pub fn with_fields_for_journal(mut self) -> Self {
        // Where nobody listens there, lines are what it can have.
        self.journal = self.outlet.is_journal_socket().then(Journal::open).and_then(Result::ok);
        self
    }

    /// Whether one may be written now, and how many of its name were not since the last one.
    fn ask(&self, index: usize, manner: Manner, now: Instant) -> Option<u64> {
        if manner == Manner::Said {
            return Some(0);
        }
        let mut allowances = self.allowances.lock().unwrap_or_else(PoisonError::into_inner);
        allowances.get_mut(index).map_or(Some(0), |allowance| allowance.ask(now))
    }

    fn line(&self, described: &Described, told: &Told, left_out: u64) -> String {
        match self.format {
            Format::Text if left_out == 0 => format!("{}{}", described.says, told.text),
            Format::Text => format!(
                "{}{} ({left_out} lines like this one were left out before it)",
                described.says, told.text
            ),
            Format::Json => {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let line = Line {
                    unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
                    of: described.of,
                    event: described.name,
                    level: described.level_word(),
                    text: &told.text,
                    left_out,
                    fields: &told.fields,
                };
                serde_json::to_string(&line).unwrap_or_default()
            }
        }
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let is_it = |described: &&Described| {
            described.name == metadata.name() && described.target == metadata.target()
        };
        let Some((index, described)) = ALL.iter().enumerate().find(|(_, described)| is_it(described)) else {
            return;
        };
        if described.manner == Manner::Quiet && self.format == Format::Text && self.journal.is_none() {
            return;
        }
        let Some(left_out) = self.ask(index, described.manner, Instant::now()) else { return };
        if let Some(journal) = &self.journal {
            if left_out > 0 {
                let says = described.says;
                let line = format!("{says}{left_out} lines like the next one were left out");
                self.outlet.write(described.level, &line);
            }
            return journal.tell(event, context);
        }
        let mut told = Told::default();
        event.record(&mut told);
        self.outlet.write(described.level, &self.line(described, &told, left_out));
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Told {
    text: String,
    fields: Map<String, Value>,
}

impl Told {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        // Each line has these from the catalogue.
        if ["event", "of"].contains(&field.name()) {
            return;
        }
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" { self.text = text } else { self.put(field, text) }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{donor, run};

    fn told(format: Format, tell: impl FnOnce()) -> String {
        crate::testing::told(format, tell).unwrap()
    }

    #[test]
    fn text_is_the_sentence_alone_and_quiet_events_are_not_in_it() {
        let text = told(Format::Text, || {
            donor::client_came("user 6 has come", "user 6");
            run::store_away("store nbd://a: no answer", "nbd://a", "no answer", 59);
            run::limit_reached("the local limit is reached", 8 << 20);
            tracing::error!("somebody else's");
        });
        assert_eq!(text, "spillway donor: user 6 has come\nspillway: store nbd://a: no answer\n");
    }

    #[test]
    fn json_has_the_name_the_level_and_the_fields_and_stays_on_its_line() {
        let text = told(Format::Json, || {
            donor::export_made("x made export 'a\\n'", "x\n\u{1b}[2J", "a\n\"b");
            run::limit_reached("the local limit is reached", 8 << 20);
        });
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [made, limit] = &lines[..] else { panic!("{text}") };
        assert_eq!(
            (&made["of"], &made["event"], &made["level"]),
            (&"donor".into(), &"export_made".into(), &"info".into())
        );
        assert_eq!((&made["export"], &made["client"]), (&"a\n\"b".into(), &"x\n\u{1b}[2J".into()));
        assert_eq!(made["text"], "x made export 'a\\n'");
        assert_eq!(
            (&limit["event"], &limit["local_limit_bytes"]),
            (&"limit_reached".into(), &(8 << 20).into())
        );
        assert!(limit["unix_ms"].as_u64() > Some(1_700_000_000_000) && limit["left_out"] == 0, "{limit}");
    }

    #[test]
    fn what_may_come_often_is_limited_by_its_name_and_what_was_left_out_is_told() {
        let text = told(Format::Json, || {
            (0..30).for_each(|_| donor::connection_failed("a connection failed: garbage", "x", "garbage"));
            donor::client_came("x has come", "x");
            (0..30).for_each(|_| donor::note("something"));
        });
        let count = |name: &str| text.matches(&format!("\"event\":\"{name}\"")).count();
        // Another second may have begun meanwhile.
        let failed = count("connection_failed");
        assert!((20..30).contains(&failed), "{failed}");
        assert_eq!((count("client_came"), count("note")), (1, 30));
    }

    #[test]
    fn a_line_says_how_many_were_left_out() {
        let lines = Lines::new(Format::Text, Outlet::stderr());
        let described = ALL.iter().find(|described| described.name == "client_came").unwrap();
        let told = Told { text: "x has come".to_owned(), fields: Map::new() };
        assert_eq!(
            lines.line(described, &told, 980),
            "spillway donor: x has come (980 lines like this one were left out before it)"
        );
    }
}
