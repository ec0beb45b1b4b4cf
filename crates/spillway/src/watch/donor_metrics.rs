//! A donor's metrics. docs/reference/metrics.md describes each name.
//!
//! Clients and exports have none of their own: whoever can connect would make a series that never goes.
//! `spillway donor status --json` tells of each.

use std::fmt::Error;

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use spillway_donor::status::Status;

use crate::watch::writer::{Writer, ratio};

impl Writer<'_, '_> {
    /// All metrics of a donor.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn donor(&mut self, donor: &Status) -> Result<(), Error> {
        let places = donor.listening_on.join(" ");
        let labels = vec![("version", donor.version.as_str()), ("listening_on", places.as_str())];
        let about = "What lends memory, and where";
        self.0.encode_descriptor("donor", about, None, MetricType::Info)?.encode_info(&labels)?;
        let uptime = "Time since the start of the donor";
        self.gauge("donor_uptime", uptime, Some(&Unit::Seconds), donor.uptime_s)?;
        let ending = "1 while it lets in nobody new and waits for its runs to end";
        self.gauge("donor_ending", ending, None, f64::from(u8::from(donor.is_ending)))?;
        self.donor_memory(donor)?;
        self.donor_clients(donor)?;
        self.donor_counts(donor)
    }

    fn donor_memory(&mut self, donor: &Status) -> Result<(), Error> {
        let memory = &donor.memory;
        let available = donor.pressure.available_bytes;
        for (name, help, bytes) in [
            ("donor_offered", "Memory that the donor lends", Some(memory.offered_bytes)),
            ("donor_used", "Memory that stored pages take", Some(memory.used_bytes)),
            ("donor_promised", "Memory that is promised to runs, taken or not", Some(memory.promised_bytes)),
            ("donor_free", "Memory that is neither promised nor taken", Some(memory.free_bytes)),
            ("donor_machine_available", "Memory that its machine could still give", available),
            (
                "donor_keep_free",
                "Memory that the donor keeps free there",
                Some(donor.pressure.keep_free_bytes),
            ),
        ] {
            if let Some(bytes) = bytes {
                self.gauge(name, help, Some(&Unit::Bytes), bytes as f64)?;
            }
        }
        if let Some(share) = donor.pressure.stalled_share {
            let help = "Share of the last ten seconds in which somebody on its machine waited for memory";
            self.gauge("donor_machine_stalled", help, Some(&ratio()), share)?;
        }
        let short = "1 while its machine is short of memory: what runs on pools have there moves to others";
        self.gauge("donor_short", short, None, f64::from(u8::from(donor.pressure.is_short)))?;
        let locked = "1 where the pages that it holds are kept from being swapped";
        self.gauge("donor_locked", locked, None, f64::from(u8::from(memory.is_locked)))
    }

    fn donor_clients(&mut self, donor: &Status) -> Result<(), Error> {
        let connections: u64 = donor.clients.iter().map(|client| client.connections).sum();
        let lost = donor.exports.iter().filter(|export| export.grace_left_s.is_some()).count();
        for (name, help, number) in [
            ("donor_clients", "Clients that have a connection or an export", donor.clients.len() as u64),
            ("donor_open_connections", "Connections at present", connections),
            ("donor_exports", "Exports that exist", donor.exports.len() as u64),
            ("donor_lost_exports", "Exports of runs that are lost and waited for", lost as u64),
        ] {
            self.gauge(name, help, None, number as f64)?;
        }
        Ok(())
    }

    fn donor_counts(&mut self, donor: &Status) -> Result<(), Error> {
        let counts = &donor.counts;
        self.counter("donor_connections", "Connections that were served", counts.connections)?;
        self.counters(
            "donor_unserved_connections",
            "Connections that ended by the client's fault, and those that were turned away",
            "why",
            &[("failed", counts.failed_connections), ("refused", counts.refused_connections)],
        )?;
        self.counter("donor_granted_runs", "Runs that were promised memory", counts.granted_runs)?;
        self.counter("donor_refusals", "Runs and exports that were refused", counts.refusals)?;
        self.counters(
            "donor_gone_runs",
            "Runs that are gone: ended, or lost and not come back for",
            "how",
            &[("ended", counts.ended_runs), ("expired", counts.expired_runs)],
        )?;
        self.counter("donor_lost_runs", "Times that a run's last connection was lost", counts.lost_runs)?;
        self.counter("donor_requests", "Requests of clients", counts.requests)?;
        self.counter("donor_written_bytes", "Bytes that clients wrote", counts.written_bytes)?;
        self.counter("donor_read_bytes", "Bytes that clients read", counts.read_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::watch::donor_snapshot::tests::donor_snapshot;
    use crate::watch::metrics;

    #[test]
    fn a_donors_numbers_are_told_under_names_of_their_own() {
        let text = metrics::text(&Arc::new(donor_snapshot(2.5, 4096)));
        for line in [
            "spillway_donor_info{version=\"1.2.3\",listening_on=\"nbd://127.0.0.1:10809\"} 1",
            "spillway_donor_uptime_seconds 2.5",
            "spillway_donor_offered_bytes 67108864.0",
            "spillway_donor_used_bytes 4096.0",
            "spillway_donor_machine_stalled_ratio 0.01",
            "spillway_donor_clients 1.0",
            "spillway_donor_granted_runs_total 2",
            "spillway_donor_written_bytes_total 4096",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert!(text.lines().filter(|line| !line.starts_with('#')).all(|line| line.contains("_donor_")));
    }
}
