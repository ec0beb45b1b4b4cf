//! Asks a donor how it stands, and tells it to be drained or to stay.

use std::net::SocketAddr;
use std::time::Duration;

use spillway_nbd::private::PrivateQuery;
use spillway_nbd::standing::Standing;

use super::connection::{Address, ConnectError, ask_donor};

fn another_kind() -> ConnectError {
    ConnectError::Refused("it is no Spillway donor of this version".to_owned())
}

/// How the donor at this address stands.
///
/// # Errors
/// It cannot be reached in this time, or is no Spillway donor.
pub fn standing(address: SocketAddr, timeout: Duration) -> Result<Standing, ConnectError> {
    let contexts = ask_donor(&Address::Tcp(address), PrivateQuery::Standing, timeout)?;
    contexts.iter().find_map(|context| Standing::parse(context)).ok_or_else(another_kind)
}

/// Tells the donor at this address to let in no new run and have those that it has go elsewhere; or, where
/// not `is_draining`, to stay.
///
/// # Errors
/// As [`standing`].
pub fn drain(address: SocketAddr, is_draining: bool, timeout: Duration) -> Result<(), ConnectError> {
    let query = if is_draining { PrivateQuery::Drain } else { PrivateQuery::Stay };
    let contexts = ask_donor(&Address::Tcp(address), query, timeout)?;
    if contexts.contains(&query.text()) { Ok(()) } else { Err(another_kind()) }
}
