//! Where a relay connects to, and what it shows there.

use std::net::SocketAddr;

use spillway_tls::{ClientSide, KeyPrint};

/// What a server's certificate is to be.
pub(super) struct Whom<'a> {
    /// The host that it must be for.
    pub host: &'a str,
    /// The key that it must have, if one is known.
    pub key: Option<KeyPrint>,
}

/// Where a relay connects to, and what it shows there.
pub(in crate::nbd) struct Target {
    /// The server's addresses, tried in this order.
    pub addresses: Vec<SocketAddr>,
    /// Whom the server's certificate must be for.
    pub host: String,
    /// Our certificate, and whose we take.
    pub tls: ClientSide,
}
