//! `spillway pool`: the donors of a pool, for who looks after them.

mod drain;
mod status;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use spillway_store::nbd::Door;
use spillway_store::spec::{PoolDonor, Tls};

use crate::exit::complain;

const EXAMPLE: &str = "\
Examples:
  spillway pool status etcd://10.0.0.9:2379/lab
  spillway pool status 10.0.0.2:10809,10.0.0.3:10809 --json
  spillway pool drain 10.0.0.2:10809";

/// See how the donors of a pool stand, and move everything off one of them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct PoolArgs {
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    Status(status::StatusArgs),
    Drain(drain::DrainArgs),
}

/// Does what was asked for.
pub fn run(args: &PoolArgs) -> ExitCode {
    let outcome = match &args.command {
        PoolCommand::Status(args) => status::status(args),
        PoolCommand::Drain(args) => drain::drain(args),
    };
    outcome.unwrap_or_else(|(status, text)| {
        complain(format!("pool: {text}"));
        ExitCode::from(status)
    })
}

/// How the donors are reached.
#[derive(Args, Clone, Debug)]
struct Reach {
    /// By TLS, with the client's certificate, its key and the CA's in this
    /// directory
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// The donors' certificates are for this name, not for the hosts as named
    #[arg(long, value_name = "NAME", requires = "tls_certificates")]
    tls_hostname: Option<String>,
}

impl Reach {
    fn door(&self, donor: &PoolDonor) -> Result<Door, String> {
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
