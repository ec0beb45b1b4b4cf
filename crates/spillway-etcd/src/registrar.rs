//! The registration of a donor, kept up by a thread for as long as the donor lives. Where etcd is away, or
//! has lost its data, the donor goes on, and registers again.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use spillway_store::membership::Member;
use spillway_store::spec::EtcdPool;

use crate::gateway::{EtcdError, Gateway, Lease};
use crate::{Registration, prefix};

/// A donor that has died is gone from etcd after so long.
const LEASE_S: u64 = 10;
/// How often the lease is kept alive, and the donor looked at.
const PERIOD: Duration = Duration::from_secs(2);

/// Keeps a donor registered until it is dropped.
#[derive(Debug)]
pub struct Registrar {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What there is to tell of a registration.
#[derive(Clone, Copy, Debug)]
pub struct RegistrarNews<'a> {
    /// The pool that it is about.
    pub pool: &'a str,
    /// Why the donor is not registered, where it is not.
    pub failure: Option<&'a str>,
    /// The same as a sentence.
    pub text: &'a str,
}

/// Somebody who is told what happens.
type Tell = Box<dyn Fn(RegistrarNews<'_>) + Send>;

/// The thread's own part.
struct Registering {
    pool: EtcdPool,
    gateway: Gateway,
    /// The donor as it is now.
    donor: Box<dyn Fn() -> Member + Send>,
    tell: Tell,
    /// The lease, and what is registered under it.
    registered: Option<(Lease, Registration)>,
    /// etcd no longer knew of a registration, and nobody was told yet.
    lost: bool,
    /// Whoever is told knows that etcd does not answer, or that it does.
    told: Option<bool>,
}

impl Registrar {
    /// Registers `donor` in a pool, as it is then, and again when it is another.
    pub fn start(
        pool: &EtcdPool,
        donor: impl Fn() -> Member + Send + 'static,
        tell: impl Fn(RegistrarNews<'_>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let mut registering = Registering {
            pool: pool.clone(),
            gateway: Gateway::new(pool).map_err(std::io::Error::other)?,
            donor: Box::new(donor),
            tell: Box::new(tell),
            registered: None,
            lost: false,
            told: None,
        };
        let body = move || registering.keep_up(&stopped);
        let thread = std::thread::Builder::new().name("registrar".into()).spawn(body)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Registrar {
    /// Takes the donor out of the pool, if etcd answers in time.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Registering {
    fn keep_up(&mut self, stopped: &Receiver<()>) {
        loop {
            let outcome = self.register();
            self.say(&outcome);
            if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        if let (Some((lease, _)), Some(true)) = (&self.registered, self.told) {
            // Else it goes with its lease.
            let _ = self.gateway.revoke(*lease);
        }
    }

    fn register(&mut self) -> Result<(), EtcdError> {
        let now = Registration::from((self.donor)());
        let (pool, gateway) = (&self.pool, &mut self.gateway);
        let lease = match &self.registered {
            Some((lease, _)) if gateway.keep_alive(*lease)? => Some(*lease),
            // etcd was away for too long, or has lost its data.
            _ => None,
        };
        if let (Some(_), Some((_, known))) = (lease, &self.registered)
            && *known == now
        {
            return Ok(());
        }
        let lease = match lease {
            Some(lease) => lease,
            None => {
                self.lost |= self.registered.take().is_some();
                gateway.grant(LEASE_S)?
            }
        };
        let value = serde_json::to_string(&now).unwrap_or_default();
        gateway.put(&format!("{}{}", prefix(pool), now.address), &value, lease)?;
        self.registered = Some((lease, now));
        Ok(())
    }

    /// Says what has changed: whether etcd answers, and a registration that it lost, which nobody would
    /// notice else where etcd was away for less than a period.
    fn say(&mut self, outcome: &Result<(), EtcdError>) {
        let is_well = outcome.is_ok();
        let lost = is_well && std::mem::take(&mut self.lost);
        if self.told.replace(is_well) == Some(is_well) && !lost {
            return;
        }
        let pool = &self.pool;
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let text = match outcome {
            Ok(()) => {
                let address = self.registered.as_ref().map_or("", |(_, own)| own.address.as_str());
                let again = if lost { " again: etcd no longer knew of it" } else { "" };
                format!("registered in {pool} as {address}{again}")
            }
            Err(error) => format!(
                "not registered in {pool}: {error}; it serves on, keeps what it holds, and goes on trying"
            ),
        };
        (self.tell)(RegistrarNews { pool: &pool.to_string(), failure: failure.as_deref(), text: &text });
    }
}
