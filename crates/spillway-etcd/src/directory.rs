//! The donors of a pool, as a run finds them in etcd; and the runs, as they say there how they are.

use std::time::{Duration, Instant};

use spillway_store::membership::{Directory, Member, RunState};
use spillway_store::spec::EtcdPool;

use crate::gateway::{EtcdError, Gateway, Lease};
use crate::plain_name::is_plain_name;
use crate::run_registration;
use crate::watch::Watch;
use crate::{Registration, prefix};

/// A run that has died is gone from etcd after so long.
const LEASE_S: u64 = 10;
/// How often its lease is kept alive.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Where the donors of one pool are registered.
#[derive(Debug)]
pub struct EtcdDirectory {
    pool: EtcdPool,
    gateway: Gateway,
    /// Of the run that is registered by this: its lease, when that was kept alive last, and what it has said.
    registered: Option<(Lease, Instant, RunState)>,
    /// What tells of changes, once somebody waits for them, and how many were known at the last look.
    watch: Option<(Watch, u64)>,
}

impl EtcdDirectory {
    fn keep_registered(&mut self, run: &RunState) -> Result<(), EtcdError> {
        let run = run.clone();
        let (lease, kept) = match self.registered.take() {
            Some((lease, kept, known)) if kept.elapsed() < KEEP_ALIVE => {
                self.registered = Some((lease, kept, known.clone()));
                if known == run {
                    return Ok(());
                }
                (lease, kept)
            }
            // etcd may have been away for too long, or have lost its data.
            Some((lease, ..)) if self.gateway.keep_alive(lease)? => (lease, Instant::now()),
            _ => (self.gateway.grant(LEASE_S)?, Instant::now()),
        };
        let value = serde_json::to_string(&run).unwrap_or_default();
        self.gateway.put(&run_registration::key(&self.pool, &run), &value, lease)?;
        self.registered = Some((lease, kept, run));
        Ok(())
    }
}

impl Drop for EtcdDirectory {
    /// Takes the run out of the pool, if etcd answers in time; else it goes with its lease.
    fn drop(&mut self) {
        if let Some((lease, ..)) = self.registered.take() {
            let _ = self.gateway.revoke(lease);
        }
    }
}

/// Opens the directory of a pool; nobody is asked yet.
///
/// # Errors
/// Certificates for it are missing, or of no use.
pub fn open(pool: &EtcdPool) -> Result<Box<dyn Directory>, String> {
    let gateway = Gateway::new(pool).map_err(|error| error.to_string())?;
    Ok(Box::new(EtcdDirectory { pool: pool.clone(), gateway, registered: None, watch: None }))
}

impl Directory for EtcdDirectory {
    fn look(&mut self) -> Result<Vec<Member>, String> {
        let watched = self.watch.as_mut().and_then(|(watch, known)| {
            *known = watch.changes();
            watch.found()
        });
        let found = match watched {
            Some(found) => found,
            None => self.gateway.under(&prefix(&self.pool)).map_err(|error| error.to_string())?,
        };
        Ok(found.iter().filter_map(|(key, value)| member(key, value)).collect())
    }

    fn await_change(&mut self, most: Duration) -> bool {
        if self.watch.is_none() {
            self.watch = Watch::start(&self.pool, prefix(&self.pool)).map(|watch| (watch, 0));
        }
        match &self.watch {
            Some((watch, known)) => watch.await_change(*known, most),
            None => {
                std::thread::sleep(most);
                false
            }
        }
    }

    fn register(&mut self, run: &RunState) -> Result<(), String> {
        self.keep_registered(run).map_err(|error| error.to_string())
    }

    fn runs(&mut self) -> Result<Vec<RunState>, String> {
        let found = self.gateway.under(&run_registration::prefix(&self.pool));
        let found = found.map_err(|error| error.to_string())?;
        Ok(found.iter().filter_map(|(key, value)| run_registration::run(key, value)).collect())
    }
}

/// What a key and its value say; none where they are no donor's, for anybody can write there.
#[must_use]
pub fn member(key: &str, value: &str) -> Option<Member> {
    let member: Member = serde_json::from_str::<Registration>(value).ok()?.into();
    let is_whole = key.ends_with(&format!("/{}", member.address))
        && member.address.parse::<std::net::SocketAddr>().is_ok_and(|address| address.port() != 0)
        && [&member.domain, &member.version].into_iter().all(|text| is_plain_name(text))
        && (member.key.is_empty() || is_plain_name(&member.key));
    is_whole.then_some(member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_donor_is_left_out() {
        let value = r#"{"address":"10.0.0.2:10809","domain":"rack 1","version":"0.1.0","offered_bytes":8,
            "free_bytes":4,"is_draining":true,"key_of_a_later_version":"x"}"#;
        let key = "/spillway/pools/lab/donors/10.0.0.2:10809";
        let found = member(key, value).unwrap_or_default();
        let wanted = Member {
            address: "10.0.0.2:10809".into(),
            domain: "rack 1".into(),
            version: "0.1.0".into(),
            offered_bytes: 8,
            free_bytes: 4,
            is_draining: true,
            key: String::new(),
        };
        assert_eq!(found, wanted);
        let with_key = value.replace('{', r#"{"key":"sha256:00ff","#);
        assert_eq!(member(key, &with_key), Some(Member { key: "sha256:00ff".into(), ..wanted }));
        for (key, value) in [
            ("/spillway/pools/lab/donors/10.0.0.3:10809", value.to_owned()),
            (key, String::new()),
            (key, "{}".to_owned()),
            (key, value.replace("rack 1", "")),
            (key, value.replace("rack 1", "\\u001b[2J")),
            (key, value.replace("0.1.0", &"x".repeat(300))),
            (key, value.replace('{', r#"{"key":"\u001b[2J","#)),
            ("/spillway/pools/lab/donors/a:1", value.replace("10.0.0.2:10809", "a:1")),
        ] {
            assert_eq!(member(key, &value), None, "{key} {value}");
        }
    }
}
