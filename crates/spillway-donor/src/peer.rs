//! Who a client is, as far as a connection or its certificate tells: limits are counted for each.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::getpeername;
use rustix::net::sockopt::socket_peercred;
use spillway_tls::ClientName;

/// A client: all connections with certificates of one name, from one address, or of one user on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// Another machine, or this one by TCP. Of an IPv6 address the network of 64 bits, which one machine has
    /// to itself.
    Address(IpAddr),
    /// Whoever has shown a certificate of this name, from wherever.
    Certificate(ClientName),
    /// A user of this machine, by a Unix socket or rings.
    User(u32),
    /// The kernel does not say.
    Unknown,
}

impl Peer {
    /// Who is at the other end of a TCP connection.
    #[must_use]
    pub fn of_tcp(socket: &OwnedFd) -> Self {
        let address = getpeername(socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        address.map_or(Self::Unknown, |address| Self::Address(network_of(address.ip().to_canonical())))
    }

    /// Who is at the other end of a Unix socket.
    #[must_use]
    pub fn of_unix(socket: &OwnedFd) -> Self {
        socket_peercred(socket).map_or(Self::Unknown, |peer| Self::User(peer.uid.as_raw()))
    }
}

fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(network)) if !network.is_loopback() => write!(f, "{network}/64"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Certificate(name) => write!(f, "client {name}"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Unknown => f.write_str("an unknown client"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_name_whatever_addresses_of_its_network_it_uses() {
        let peer = |text: &str| Peer::Address(network_of(text.parse::<IpAddr>().unwrap().to_canonical()));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.5"), peer("10.0.0.5"));
        assert_eq!(peer("2001:db8::1").to_string(), "2001:db8::/64");
        assert_eq!(peer("::1").to_string(), "::1");
        assert_eq!(Peer::User(7).to_string(), "user 7");
    }
}
