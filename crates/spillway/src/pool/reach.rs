//! How the donors of a pool are reached from the command line.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use clap::Args;
use spillway_store::nbd::Door;
use spillway_store::spec::{PoolDonor, Tls};

/// How the donors are reached.
#[derive(Args, Clone, Debug, Default)]
pub struct Reach {
    /// By TLS, with the client's certificate, its key and the CA's in this
    /// directory
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// The donors' certificates are for this name, not for the hosts as named
    #[arg(long, value_name = "NAME", requires = "tls_certificates")]
    tls_hostname: Option<String>,
}

impl Reach {
    /// Where the client's certificates are.
    pub(super) fn certificates(&self) -> Option<&Path> {
        self.tls_certificates.as_deref()
    }

    /// The way to one of them.
    pub(super) fn door(&self, donor: &PoolDonor) -> Result<Door, String> {
        let address = resolve(donor)?;
        let Some(certificates) = &self.tls_certificates else { return Ok(address.into()) };
        let tls = Tls { certificates: certificates.clone(), hostname: self.tls_hostname.clone() };
        Ok(Door::by_tls(address, &donor.host, &tls))
    }
}

/// A donor's address in digits.
fn resolve(donor: &PoolDonor) -> Result<SocketAddr, String> {
    let mut addresses = (donor.host.as_str(), donor.port)
        .to_socket_addrs()
        .map_err(|error| format!("donor {donor} has no address: {error}; name it by IP address"))?;
    addresses.next().ok_or_else(|| format!("donor {donor} has no address; name it by IP address"))
}
