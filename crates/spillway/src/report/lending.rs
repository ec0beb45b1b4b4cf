//! What a donor did: looks at it, made into values over time and into a few figures.

use maud::{Markup, PreEscaped, html};
use serde::Serialize;
use spillway_donor::journal::Counts;
use spillway_donor::status::Status;
use spillway_report::ChartError;
use spillway_report::chart::Series;
use spillway_report::timeline::Timeline;
use spillway_snapshot::history::Look;

use crate::short::{bytes, count, seconds};
use crate::status::name_of;
use crate::top::rates::donor_rates;
use crate::watch::donor_snapshot::donor_of;

const MIB: f64 = (1 << 20) as f64;
/// Where there are more looks at a donor, every other one is left out.
const MOST_LOOKS: usize = 1200;

/// One look at a donor.
struct Point {
    at_s: f64,
    uptime_s: f64,
    used_bytes: u64,
    promised_bytes: u64,
    counts: Counts,
}

/// One donor over its time.
pub struct Lending {
    name: String,
    pid: u32,
    uid: u32,
    points: Vec<Point>,
    first: Status,
    last: Status,
}

/// A donor in figures.
#[derive(Serialize)]
pub struct LendingSummary<'a> {
    /// What it is called.
    pub name: &'a str,
    /// Its process, by number.
    pub pid: u32,
    /// The user whose it is, by number.
    pub uid: u32,
    /// Time from the first look to the last, in seconds.
    pub recorded_s: f64,
    /// Memory that it lends.
    pub offered_bytes: u64,
    /// The most that was seen to be held.
    pub peak_used_bytes: u64,
    /// The most that was seen to be promised.
    pub peak_promised_bytes: u64,
    /// Runs that were promised memory while it was recorded.
    pub granted_runs: u64,
    /// Runs and exports that were refused.
    pub refusals: u64,
    /// Times that a run's last connection was lost.
    pub lost_runs: u64,
    /// Bytes that clients wrote.
    pub written_bytes: u64,
    /// Bytes that clients read.
    pub read_bytes: u64,
}

/// Makes stories of looks at donors.
#[derive(Default)]
pub struct Lenders(Vec<Lending>);

impl Lenders {
    /// Takes the next look.
    pub fn take(&mut self, look: &Look) {
        for snapshot in &look.seen {
            let Some(status) = donor_of(snapshot) else { continue };
            let point = Point {
                at_s: look.at_s,
                uptime_s: snapshot.uptime_s,
                used_bytes: status.memory.used_bytes,
                promised_bytes: status.memory.promised_bytes,
                counts: status.counts,
            };
            let is_same = |known: &&mut Lending| {
                (known.uid, known.pid) == (snapshot.uid, snapshot.pid)
                    && known.points.last().is_none_or(|last| last.uptime_s <= point.uptime_s)
            };
            match self.0.iter_mut().rev().find(is_same) {
                Some(known) => known.go_on(point, status),
                None => self.0.push(Lending {
                    name: name_of(snapshot),
                    pid: snapshot.pid,
                    uid: snapshot.uid,
                    points: vec![point],
                    first: status.clone(),
                    last: status,
                }),
            }
        }
    }

    /// All of them, in the order in which they were first seen.
    pub fn end(self) -> Vec<Lending> {
        self.0
    }
}

impl Lending {
    fn go_on(&mut self, point: Point, status: Status) {
        if self.points.len() >= MOST_LOOKS {
            let mut at = 0;
            self.points.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.points.push(point);
        self.last = status;
    }

    /// The donor in figures.
    pub fn summary(&self) -> LendingSummary<'_> {
        let (first, last) = (&self.first.counts, &self.last.counts);
        let peak = |of: fn(&Point) -> u64| self.points.iter().map(of).max().unwrap_or(0);
        LendingSummary {
            name: &self.name,
            pid: self.pid,
            uid: self.uid,
            recorded_s: self.last.uptime_s - self.first.uptime_s,
            offered_bytes: self.last.memory.offered_bytes,
            peak_used_bytes: peak(|point| point.used_bytes),
            peak_promised_bytes: peak(|point| point.promised_bytes),
            granted_runs: last.granted_runs.saturating_sub(first.granted_runs),
            refusals: last.refusals.saturating_sub(first.refusals),
            lost_runs: last.lost_runs.saturating_sub(first.lost_runs),
            written_bytes: last.written_bytes.saturating_sub(first.written_bytes),
            read_bytes: last.read_bytes.saturating_sub(first.read_bytes),
        }
    }

    /// The donor on a page.
    ///
    /// # Errors
    /// A picture cannot be drawn.
    pub fn section(&self) -> Result<Markup, ChartError> {
        let summary = self.summary();
        let pictures = self.pictures()?;
        Ok(html! {
            section {
                h2 { (self.name) " (" (self.pid) ") lends memory" }
                p.note { code { (self.last.listening_on.join(" and ")) } }
                p {
                    "In the " (seconds(summary.recorded_s)) " that were recorded, of "
                    (bytes(summary.offered_bytes as f64)) " up to "
                    (bytes(summary.peak_promised_bytes as f64)) " were promised and up to "
                    (bytes(summary.peak_used_bytes as f64)) " held. " (count(summary.granted_runs as f64))
                    " runs were promised memory, " (count(summary.refusals as f64)) " refused, "
                    (count(summary.lost_runs as f64)) " lost; clients wrote "
                    (bytes(summary.written_bytes as f64)) " and read " (bytes(summary.read_bytes as f64)) "."
                }
                @for picture in &pictures { div.card { (PreEscaped(picture)) } }
            }
        })
    }

    fn pictures(&self) -> Result<Vec<String>, ChartError> {
        let mib = |of: fn(&Point) -> u64| -> Vec<Option<f64>> {
            self.points.iter().map(|point| Some(of(point) as f64 / MIB)).collect()
        };
        let rates: Vec<_> = self
            .points
            .windows(2)
            .map(|pair| donor_rates(&pair[0].counts, &pair[1].counts, pair[1].uptime_s - pair[0].uptime_s))
            .collect();
        let rate = |of: fn(&crate::top::rates::DonorRates) -> f64| -> Vec<Option<f64>> {
            std::iter::once(None).chain(rates.iter().map(|rates| Some(of(rates) / MIB))).collect()
        };
        let offered = self.points.iter().map(|_| Some(self.last.memory.offered_bytes as f64 / MIB)).collect();
        let series = |name: &str, values| Series { name: name.to_owned(), values };
        let at_s: Vec<f64> = self.points.iter().map(|point| point.at_s).collect();
        let timeline = |title: &str, unit: &str, series| Timeline {
            title: title.to_owned(),
            unit: unit.to_owned(),
            at_s: at_s.clone(),
            series,
        };
        let timelines = [
            timeline(
                "Memory that is lent",
                "MiB",
                vec![
                    series("offered", offered),
                    series("promised", mib(|point| point.promised_bytes)),
                    series("held", mib(|point| point.used_bytes)),
                ],
            ),
            timeline(
                "Traffic of the clients",
                "MiB/s",
                vec![
                    series("written", rate(|rates| rates.written_bytes_per_s)),
                    series("read", rate(|rates| rates.read_bytes_per_s)),
                ],
            ),
        ];
        timelines.iter().filter(|timeline| timeline.has_values()).map(Timeline::svg).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::donor_snapshot::tests::donor_snapshot;

    fn looks(count: u32) -> Vec<Lending> {
        let mut lenders = Lenders::default();
        for at in 0..count {
            let snapshot = donor_snapshot(f64::from(at) + 0.5, u64::from(at) << 20);
            lenders.take(&Look { at_s: f64::from(at), seen: vec![snapshot] });
        }
        lenders.end()
    }

    #[test]
    fn a_donor_is_told_in_figures_and_pictures() {
        let lenders = looks(10);
        let [one] = &lenders[..] else { panic!("{} donors", lenders.len()) };
        let summary = one.summary();
        assert_eq!((summary.recorded_s, summary.written_bytes), (9.0, 9 << 20));
        assert_eq!((summary.peak_used_bytes, summary.offered_bytes), (9 << 20, 64 << 20));
        let page = one.section().unwrap().into_string();
        for text in ["lends memory", "Memory that is lent", "Traffic of the clients", "64M"] {
            assert!(page.contains(text), "no {text} in {page}");
        }
    }

    #[test]
    fn many_looks_are_thinned_and_a_later_donor_of_the_number_is_another() {
        let lenders = looks(5_000);
        assert_eq!(lenders.len(), 1);
        assert!((600..=1200).contains(&lenders[0].points.len()), "{}", lenders[0].points.len());
        assert_eq!(lenders[0].summary().written_bytes, 4_999 << 20);
        let mut lenders = Lenders(lenders);
        lenders.take(&Look { at_s: 6_000.0, seen: vec![donor_snapshot(0.1, 0)] });
        assert_eq!(lenders.end().len(), 2);
    }
}
