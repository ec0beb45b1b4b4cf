//! A pool of donors: `pool:HOST:PORT,HOST:PORT,...[?copies=N&least=M&size=SIZE&timeout=SECONDS
//! &reconnect=SECONDS&domain=DOMAINS&rebuild=SIZE&claim=CLAIM&tls-certificates=DIR&tls-hostname=NAME
//! &plain]`, or `pool:etcd://HOST:PORT/NAME` with the same but domain and claim. `data=K&parity=M` in place
//! of copies and least; `spill=file:PATH&spill-size=SIZE`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_pool::EXTENT_BYTES;
use spillway_pool::slabs::room::slabs_for;

use super::members::{Members, PoolDonor};
use super::query::{Query, encode, encode_path};
use super::redundancy::{Code, Redundancy};
use super::transport::Transport;
use super::wishes::{Claim, Patience};

/// Bytes that are copied a second at most while lost copies are made anew.
pub(super) const USUAL_REBUILD: Size = Size::from_bytes(256 << 20);

/// Which donors fail together (`?domain=DOMAINS`): no two copies of a page are put on such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Domains {
    /// `host`: those of one host, by the names that were given.
    #[default]
    Host,
    /// `each`: none does, as far as is known.
    Each,
    /// `a,b,a`: those of one name here; a name for each donor, in their order.
    Named(Vec<String>),
}

/// A file for the pages for which a pool's donors have no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spill {
    /// A file that does not exist yet, a directory to make one in, or a block device.
    pub path: PathBuf,
    /// Bytes of pages that it may hold; by default as much as the donors, or the whole device.
    pub size: Option<Size>,
}

/// A pool of donors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// The donors that it has.
    pub members: Members,
    /// How a page outlives the donors that it is on.
    pub redundancy: Redundancy,
    /// Bytes of pages that the run may need; by default what the donors have.
    pub size: Option<Size>,
    /// How long a silent donor is waited for by a write, and how long a page whose donors are all away.
    pub patience: Patience,
    /// Which donors fail together.
    pub domains: Domains,
    /// Bytes copied a second, at most, while lost copies are made anew.
    pub rebuild: Size,
    /// How the connections to its donors are protected.
    pub transport: Transport,
    /// Its last resort, for pages for which donors have no room.
    pub spill: Option<Spill>,
    /// What the run does about others that may use a listed donor, where that is an NBD server of another
    /// kind; never [`Claim::None`].
    pub claim: Claim,
}

impl PoolSpec {
    /// How patient a pool is where nobody says it.
    pub const USUAL_PATIENCE: Patience =
        Patience { timeout: Duration::from_secs(2), reconnect: Duration::from_secs(10) };

    /// Places that a pool's last resort takes among its donors.
    #[must_use]
    pub fn spill_places(&self) -> usize {
        usize::from(self.spill.is_some())
    }

    /// The same pool with this redundancy.
    #[must_use]
    pub fn with(&self, redundancy: Redundancy) -> Self {
        Self { redundancy, ..self.clone() }
    }

    /// Extents that each donor needs for so many bytes of pages, if all have a part of each.
    #[must_use]
    pub fn extents_for(&self, bytes: u64) -> u64 {
        match self.redundancy {
            Redundancy::Coded(code) => slabs_for(bytes.div_ceil(PAGE_SIZE as u64), code.data),
            Redundancy::Unsaid | Redundancy::Copies { .. } => bytes.div_ceil(EXTENT_BYTES),
        }
    }

    /// The donors that were listed, in their order.
    #[must_use]
    pub fn listed(&self) -> &[PoolDonor] {
        match &self.members {
            Members::Listed(donors) => donors,
            Members::Etcd(_) => &[],
        }
    }

    /// What is shown to etcd, where donors are not shown the same.
    fn etcd_certificates(&self) -> Option<&Path> {
        let Members::Etcd(etcd) = &self.members else { return None };
        let of_donors = match &self.transport {
            Transport::Tls(tls) => Some(tls.certificates.as_path()),
            Transport::Unsaid | Transport::Plain => None,
        };
        etcd.certificates().filter(|directory| Some(*directory) != of_donors)
    }

    /// The number of each listed donor's failure domain.
    #[must_use]
    pub fn domain_numbers(&self) -> Vec<u32> {
        let names: Vec<String> = match &self.domains {
            Domains::Host => self.listed().iter().map(|donor| donor.host.to_lowercase()).collect(),
            Domains::Each => (0..self.listed().len()).map(|index| index.to_string()).collect(),
            Domains::Named(names) => names.clone(),
        };
        let number = |name: &String| names.iter().position(|other| other == name).unwrap_or(0) as u32;
        names.iter().map(number).collect()
    }

    /// How many of the listed donors fail apart.
    #[must_use]
    pub fn domain_count(&self) -> usize {
        let mut numbers = self.domain_numbers();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    }
}

impl fmt::Display for PoolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pool:")?;
        match &self.members {
            Members::Listed(donors) => {
                for (index, donor) in donors.iter().enumerate() {
                    write!(f, "{}{donor}", if index > 0 { "," } else { "" })?;
                }
            }
            Members::Etcd(pool) => pool.fmt(f)?,
        }
        let mut query = Query::default();
        match self.redundancy {
            Redundancy::Unsaid => {}
            Redundancy::Coded(Code { data, parity }) => {
                query.put(f, "data", data)?;
                query.put(f, "parity", parity)?;
            }
            Redundancy::Copies { copies, least } => {
                query.put(f, "copies", copies)?;
                if least != 1 {
                    query.put(f, "least", least)?;
                }
            }
        }
        query.size(f, self.size)?;
        for (name, own, usual) in [
            ("timeout", self.patience.timeout, Self::USUAL_PATIENCE.timeout),
            ("reconnect", self.patience.reconnect, Self::USUAL_PATIENCE.reconnect),
        ] {
            if own != usual {
                query.put(f, name, own.as_secs_f64())?;
            }
        }
        match &self.domains {
            Domains::Host => {}
            Domains::Each => query.put(f, "domain", "each")?,
            Domains::Named(names) => query.put(f, "domain", encode(&names.join(",")))?,
        }
        if self.rebuild != USUAL_REBUILD {
            query.put(f, "rebuild", self.rebuild.bytes())?;
        }
        if let Some(Spill { path, size }) = &self.spill {
            query.put(f, "spill", format_args!("file:{}", encode_path(path)))?;
            query.named_size(f, "spill-size", *size)?;
        }
        query.claim(f, self.claim)?;
        if let Some(directory) = self.etcd_certificates() {
            query.put(f, "etcd-certificates", encode_path(directory))?;
        }
        self.transport.put(f, &mut query)
    }
}
