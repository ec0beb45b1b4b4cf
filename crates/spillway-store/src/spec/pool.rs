//! `pool:HOST:PORT,HOST:PORT,...[?copies=N&least=M&size=SIZE&timeout=SECONDS&reconnect=SECONDS&domain=DOMAINS
//! &rebuild=SIZE]`.

use std::fmt;
use std::time::Duration;

use spillway_core::size::Size;
use spillway_pool::{MAX_DONORS, MOST_WANTED_COPIES};

use super::printed::{Query, encode};
use super::{Patience, SpecError, StoreSpec, Uri};

const FORM: &str = "pool:HOST:PORT,HOST:PORT,...?copies=N";

/// Copies of a page where nobody says how many.
const USUAL_COPIES: usize = 2;
/// Bytes that are copied a second at most while lost copies are made anew.
const USUAL_REBUILD: Size = Size::from_bytes(256 << 20);

/// A donor of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDonor {
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// The donor's TCP port.
    pub port: u16,
}

impl fmt::Display for PoolDonor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Which donors fail together (`?domain=DOMAINS`): no two copies of a page are put on such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Domains {
    /// `host`: those of one host, by the names that were given.
    #[default]
    Host,
    /// `each`: none.
    Each,
    /// `a,b,a`: those of one name here; a name for each donor, in their order.
    Named(Vec<String>),
}

/// A pool of donors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// The donors.
    pub donors: Vec<PoolDonor>,
    /// On how many of them each page is.
    pub copies: usize,
    /// On how many a page must be for its write to count.
    pub least: usize,
    /// Bytes of pages that the run may need; by default what the donors have.
    pub size: Option<Size>,
    /// How long a silent donor is waited for by a write, and how long a page whose donors are all away.
    pub patience: Patience,
    /// Which donors fail together.
    pub domains: Domains,
    /// Bytes copied a second, at most, while lost copies are made anew.
    pub rebuild: Size,
}

impl PoolSpec {
    /// How patient a pool is where nobody says it.
    pub const USUAL_PATIENCE: Patience =
        Patience { timeout: Duration::from_secs(2), reconnect: Duration::from_secs(10) };

    /// The number of each donor's failure domain.
    #[must_use]
    pub fn domain_numbers(&self) -> Vec<u32> {
        let names: Vec<String> = match &self.domains {
            Domains::Host => self.donors.iter().map(|donor| donor.host.to_lowercase()).collect(),
            Domains::Each => (0..self.donors.len()).map(|index| index.to_string()).collect(),
            Domains::Named(names) => names.clone(),
        };
        let number = |name: &String| names.iter().position(|other| other == name).unwrap_or(0) as u32;
        names.iter().map(number).collect()
    }

    fn domain_count(&self) -> usize {
        let mut numbers = self.domain_numbers();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    }
}

impl Uri<'_> {
    pub(super) fn pool(&self) -> Result<StoreSpec, SpecError> {
        let [copies, least, size, timeout, reconnect, domain, rebuild] = self.parameters(
            ["copies", "least", "size", "timeout", "reconnect", "domain", "rebuild"],
            "copies, least, size, timeout, reconnect, domain and rebuild",
        )?;
        let donors = self.pool_donors()?;
        let copies = self.count("copies", copies, USUAL_COPIES, MOST_WANTED_COPIES)?;
        let least = self.count("least", least, 1, copies)?;
        let usual = PoolSpec::USUAL_PATIENCE;
        let patience = Patience {
            timeout: self.seconds("timeout", timeout, usual.timeout)?,
            reconnect: self.seconds("reconnect", reconnect, usual.reconnect)?,
        };
        if patience.timeout < Duration::from_millis(100) {
            return Err(self.parameter(
                "timeout",
                "is too short to tell a busy donor from a dead one; give 0.1 or more",
            ));
        }
        let rebuild = match rebuild {
            Some(text) => self.size_of("rebuild", &text)?,
            None => USUAL_REBUILD,
        };
        let domains = self.domains(domain, donors.len())?;
        let pool = PoolSpec { donors, copies, least, size: self.any_size(size)?, patience, domains, rebuild };
        let domains = pool.domain_count();
        if domains < copies {
            let (donors, remedy) = match pool.donors.len() {
                1 => ("1 donor", "name more donors, or write copies=1 and lose pages with it"),
                _ if pool.donors.len() < copies => {
                    ("too few donors", "name more donors, or ask for fewer copies")
                }
                _ => (
                    "donors that fail together",
                    "name donors on other machines, ask for fewer copies, or say which fail together by \
                     domain=a,b,... (domain=each: none)",
                ),
            };
            return Err(self.form(
                format!(
                    "{copies} copies of a page need {copies} donors that fail apart, and these are {donors}: \
                     {remedy}"
                ),
                FORM,
            ));
        }
        Ok(StoreSpec::Pool(Box::new(pool)))
    }

    fn pool_donors(&self) -> Result<Vec<PoolDonor>, SpecError> {
        let mut donors: Vec<PoolDonor> = Vec::new();
        for authority in self.body.split(',') {
            if authority.contains('/') {
                let reason =
                    format!("'{authority}' is no HOST:PORT: a pool's donors have no scheme and no export");
                return Err(self.form(reason, FORM));
            }
            if authority.is_empty() {
                return Err(self.form("a donor is missing", FORM));
            }
            let (host, port) = self.host_and_port(authority, FORM)?;
            let donor = PoolDonor { host, port };
            if donors.contains(&donor) {
                return Err(self.form(format!("the donor {donor} is named twice: name each once"), FORM));
            }
            donors.push(donor);
        }
        if donors.len() > MAX_DONORS {
            let reason =
                format!("{} donors are more than a pool can have: name at most {MAX_DONORS}", donors.len());
            return Err(self.form(reason, FORM));
        }
        Ok(donors)
    }

    fn count(
        &self,
        name: &str,
        text: Option<Vec<u8>>,
        usual: usize,
        most: usize,
    ) -> Result<usize, SpecError> {
        let Some(text) = text else { return Ok(usual) };
        let text = String::from_utf8_lossy(&text);
        let count = text.parse().ok().filter(|count| (1..=most).contains(count));
        count.ok_or_else(|| self.parameter(name, format!("'{text}' is not a number from 1 to {most}")))
    }

    fn domains(&self, text: Option<Vec<u8>>, donors: usize) -> Result<Domains, SpecError> {
        let Some(text) = text else { return Ok(Domains::Host) };
        let text = String::from_utf8_lossy(&text);
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        match &*text {
            "host" => Ok(Domains::Host),
            "each" => Ok(Domains::Each),
            _ if names.len() == donors && names.iter().all(|name| !name.is_empty()) => {
                Ok(Domains::Named(names))
            }
            _ => Err(self.parameter(
                "domain",
                format!(
                    "'{text}' is not a name for each of the {donors} donors; write host, each or a,b,..."
                ),
            )),
        }
    }
}

impl fmt::Display for PoolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pool:")?;
        for (index, donor) in self.donors.iter().enumerate() {
            write!(f, "{}{donor}", if index > 0 { "," } else { "" })?;
        }
        let mut query = Query::default();
        if self.copies != USUAL_COPIES {
            query.put(f, "copies", self.copies)?;
        }
        if self.least != 1 {
            query.put(f, "least", self.least)?;
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
        if self.rebuild != USUAL_REBUILD { query.put(f, "rebuild", self.rebuild.bytes()) } else { Ok(()) }
    }
}
