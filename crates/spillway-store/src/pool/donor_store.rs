//! A donor of a pool as a store of its own, and by which token it knows the run.

use crate::spec::Transport;
use crate::{Claim, StoreSpec};

/// The store that one donor is, by its address in digits, and by the host that its certificate must be for,
/// if that is another than the address. Its patience is that of who opens it: a run is
/// known to the donor by what is printed of this.
pub(super) fn donor_spec(address: &str, transport: &Transport, host: Option<&str>) -> Option<StoreSpec> {
    let address: std::net::SocketAddr = address.parse().ok()?;
    let digits = address.ip().to_string();
    Some(StoreSpec::Nbd {
        transport: transport.of_host(host.unwrap_or(&digits)),
        host: digits,
        port: address.port(),
        export: String::new(),
        size: None,
        patience: crate::Patience::default(),
        claim: Claim::None,
    })
}

/// The token by which a run is known to a donor in one of that donor's lives.
pub(super) fn token_of(run_token: &str, life: u16) -> String {
    if life == 1 { run_token.to_owned() } else { format!("{run_token}/{life}") }
}
