//! Asks a donor how it stands, and tells it to be drained or to stay.

use std::net::SocketAddr;
use std::time::Duration;

use spillway_nbd::private::PrivateQuery;
use spillway_nbd::run_standing::{RunStanding, parse_runs};
use spillway_nbd::standing::Standing;

use super::client::{known_address, let_relays_start, need_relay, random_token};
use super::connection::{Address, ConnectError, ask_donor};
use crate::spec::{Tls, Transport};
use crate::{Claim, Patience, StoreSpec};

/// Where a donor is asked: plainly, or by TLS.
#[derive(Clone, Debug)]
pub struct Door(Way);

#[derive(Clone, Debug)]
enum Way {
    Known(Address),
    /// By a relay of this command's own, which ends soon after each question.
    Tls {
        spec: Box<StoreSpec>,
        token: String,
    },
}

impl Door {
    /// The way to a donor whose certificate must be for `host`, or for the name that `tls` has.
    #[must_use]
    pub fn by_tls(address: SocketAddr, host: &str, tls: &Tls) -> Self {
        let_relays_start();
        let spec = StoreSpec::Nbd {
            host: address.ip().to_string(),
            port: address.port(),
            export: String::new(),
            size: None,
            patience: Patience::default(),
            claim: Claim::None,
            transport: Transport::Tls(tls.clone()).of_host(host),
        };
        Self(Way::Tls { spec: Box::new(spec), token: random_token() })
    }

    pub(crate) fn known(address: Address) -> Self {
        Self(Way::Known(address))
    }

    fn address(&self) -> Result<Address, ConnectError> {
        match &self.0 {
            Way::Known(address) => Ok(address.clone()),
            Way::Tls { spec, token } => {
                let refused = |reason: String| ConnectError::Refused(reason);
                need_relay(spec, token).map_err(|error| refused(error.to_string()))?;
                known_address(spec, token).ok_or_else(|| refused("it has no address".to_owned()))
            }
        }
    }
}

/// The way without TLS.
impl From<SocketAddr> for Door {
    fn from(address: SocketAddr) -> Self {
        Self::known(Address::Tcp(address))
    }
}

fn another_kind() -> ConnectError {
    ConnectError::Refused("it is no Spillway donor of this version".to_owned())
}

/// How the donor behind this door stands.
///
/// # Errors
/// It cannot be reached in this time, or is no Spillway donor.
pub fn standing(door: &Door, timeout: Duration) -> Result<Standing, ConnectError> {
    let contexts = ask_donor(&door.address()?, PrivateQuery::Standing, timeout)?;
    contexts.iter().find_map(|context| Standing::parse(context)).ok_or_else(another_kind)
}

/// What the donor behind this door has for each of its runs.
///
/// # Errors
/// As [`standing`].
pub fn runs(door: &Door, timeout: Duration) -> Result<Vec<RunStanding>, ConnectError> {
    let contexts = ask_donor(&door.address()?, PrivateQuery::Runs, timeout)?;
    contexts.iter().find_map(|context| parse_runs(context)).ok_or_else(another_kind)
}

/// Tells the donor behind this door to let in no new run and have those that it has go elsewhere; or, where
/// not `is_draining`, to stay.
///
/// # Errors
/// As [`standing`].
pub fn drain(door: &Door, is_draining: bool, timeout: Duration) -> Result<(), ConnectError> {
    let query = if is_draining { PrivateQuery::Drain } else { PrivateQuery::Stay };
    let contexts = ask_donor(&door.address()?, query, timeout)?;
    if contexts.contains(&query.text()) { Ok(()) } else { Err(another_kind()) }
}
