//! A donor as the snapshot has it, and what is read of others' snapshots.

use serde::Deserialize;
use spillway_donor::status::Status;
use spillway_snapshot::snapshot::{Body, Snapshot, VERSION};

use crate::watch::teller::Subject;

/// What a donor is called, where programs have a name.
const NAME: &str = "donor";

/// A donor that is told of, by what says how it stands.
pub struct DonorSubject<F>(pub F);

impl<F: Fn() -> Status + Send> Subject for DonorSubject<F> {
    fn snapshot(&self) -> Snapshot {
        let status = (self.0)();
        Snapshot {
            version: VERSION,
            spillway_version: status.version.clone(),
            pid: status.pid,
            uid: rustix::process::geteuid().as_raw(),
            name: NAME.to_owned(),
            uptime_s: status.uptime_s,
            // A status has strings for keys alone, so it is always told.
            body: Body::Donor { donor: serde_json::to_value(&status).unwrap_or_default() },
        }
    }
}

/// What a snapshot says of a donor; none where it is of something else, or of a version that lacks a key.
pub fn donor_of(snapshot: &Snapshot) -> Option<Status> {
    match &snapshot.body {
        Body::Donor { donor } => Status::deserialize(donor).ok(),
        Body::Run { .. } | Body::Tier { .. } => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use spillway_donor::journal::Counts;
    use spillway_donor::status::{ClientStatus, MemoryStatus, Pressure};

    /// A donor of 64 MiB after so long, whose one client has written so much.
    pub(crate) fn donor_snapshot(uptime_s: f64, written_bytes: u64) -> Snapshot {
        let status = Status {
            pid: 12,
            version: "1.2.3".to_owned(),
            uptime_s,
            listening_on: vec!["nbd://127.0.0.1:10809".to_owned()],
            is_ending: false,
            memory: MemoryStatus {
                offered_bytes: 64 << 20,
                used_bytes: written_bytes.min(48 << 20),
                promised_bytes: 48 << 20,
                free_bytes: 16 << 20,
                is_locked: true,
            },
            pressure: Pressure {
                available_bytes: Some(1 << 30),
                stalled_share: Some(0.01),
                keep_free_bytes: 1 << 29,
                is_short: false,
            },
            clients: vec![ClientStatus { client: "127.0.0.1".to_owned(), ..ClientStatus::default() }],
            exports: Vec::new(),
            counts: Counts { granted_runs: 2, refusals: 1, written_bytes, ..Counts::default() },
        };
        DonorSubject(move || status.clone()).snapshot()
    }

    #[test]
    fn a_donor_is_found_in_its_snapshot_and_nowhere_else() {
        let snapshot = donor_snapshot(1.0, 4096);
        let told = serde_json::from_str(&serde_json::to_string(&snapshot).unwrap()).unwrap();
        assert_eq!(donor_of(&told).unwrap().memory.used_bytes, 4096);
        let later = Body::Donor { donor: serde_json::json!({ "pid": 1 }) };
        assert!(donor_of(&Snapshot { body: later, ..snapshot }).is_none());
        assert!(donor_of(&crate::watch::metrics::tests::whole_snapshot()).is_none());
    }
}
