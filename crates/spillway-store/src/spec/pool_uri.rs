//! The URI of a pool, taken apart.

use std::ops::RangeInclusive;
use std::time::Duration;

use spillway_pool::slabs::room::{MOST_DATA, MOST_PARITY};
use spillway_pool::{MAX_DONORS, MOST_WANTED_COPIES};

use super::members::{EtcdPool, EtcdSpeech, Members, PoolDonor};
use super::pool::{Domains, PoolSpec, USUAL_REBUILD};
use super::redundancy::{Code, Redundancy};
use super::transport::Transport;
use super::wishes::{Claim, Patience};
use super::{DEFAULT_NBD_PORT, SpecError, StoreSpec, Uri};

const FORM: &str = "pool:HOST:PORT,HOST:PORT,...?copies=N or pool:etcd://HOST:PORT/NAME";

impl Uri<'_> {
    pub(super) fn pool(&self) -> Result<StoreSpec, SpecError> {
        let [
            copies,
            least,
            data,
            parity,
            size,
            timeout,
            reconnect,
            domain,
            rebuild,
            plain,
            certificates,
            hostname,
            spill,
            spill_size,
            etcd_certificates,
            claim,
        ] = self.parameters(
            [
                "copies",
                "least",
                "data",
                "parity",
                "size",
                "timeout",
                "reconnect",
                "domain",
                "rebuild",
                "plain",
                "tls-certificates",
                "tls-hostname",
                "spill",
                "spill-size",
                "etcd-certificates",
                "claim",
            ],
            "copies, least, data, parity, size, timeout, reconnect, domain, rebuild, plain, \
                 tls-certificates, tls-hostname, spill, spill-size, etcd-certificates and claim",
        )?;
        let transport = self.transport([plain, certificates, hostname], FORM)?;
        let members = match self.is_etcd() {
            true => Members::Etcd(self.etcd_shown(etcd_certificates, &transport)?),
            false if etcd_certificates.is_some() => {
                let reason = "is for pools that are named in etcd: pool:etcds://HOST:PORT/NAME; leave it out";
                return Err(self.parameter("etcd-certificates", reason));
            }
            false => Members::Listed(self.pool_donors()?),
        };
        let redundancy = self.redundancy((copies, least), (data, parity))?;
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
        let domains = match &members {
            Members::Listed(donors) => self.domains(domain, donors.len())?,
            Members::Etcd(_) if domain.is_some() => {
                let reason = "is each donor's own to say: spillway donor --domain NAME; leave it out here";
                return Err(self.parameter("domain", reason));
            }
            Members::Etcd(_) => Domains::Host,
        };
        let size = self.any_size(size)?;
        let spill = self.spill((spill, spill_size))?;
        let claim = match &members {
            Members::Listed(_) => self.pool_claim(claim)?,
            Members::Etcd(_) if claim.is_some() => {
                let reason = "is for NBD servers of other kinds, which are listed; leave it out";
                return Err(self.parameter("claim", reason));
            }
            Members::Etcd(_) => Claim::Free,
        };
        let pool =
            PoolSpec { members, redundancy, size, patience, domains, rebuild, transport, spill, claim };
        self.has_enough_donors(&pool)?;
        Ok(StoreSpec::Pool(Box::new(pool)))
    }

    /// By its claim a run finds out whether a server still has what it was given: there is always one.
    fn pool_claim(&self, name: Option<Vec<u8>>) -> Result<Claim, SpecError> {
        match self.claim(name)? {
            Claim::None => Err(self.parameter("claim", "'none' is none of a pool's; write free or take")),
            claim => Ok(claim),
        }
    }

    /// The pool in etcd, and what is shown to that: what donors are shown, unless something else is named.
    fn etcd_shown(&self, own: Option<Vec<u8>>, transport: &Transport) -> Result<EtcdPool, SpecError> {
        let etcd = self.etcd()?;
        if own.is_some() && etcd.speech == EtcdSpeech::Plain {
            return Err(self.parameter("etcd-certificates", "is for etcds:, which speaks TLS; write that"));
        }
        let own = own.map(|path| self.path("the directory of etcd-certificates", &path, FORM)).transpose()?;
        let of_donors = match transport {
            Transport::Tls(tls) => Some(tls.certificates.clone()),
            Transport::Unsaid | Transport::Plain => None,
        };
        etcd.shown(own.or(of_donors).as_deref()).ok_or_else(|| {
            self.form(
                "etcds: speaks TLS, and no certificates are named",
                "?tls-certificates=DIR, or \
                       ?etcd-certificates=DIR where those are for etcd alone",
            )
        })
    }

    /// `copies=N&least=M` or `data=K&parity=M`, where one of them is given.
    fn redundancy(
        &self,
        (copies, least): (Option<Vec<u8>>, Option<Vec<u8>>),
        (data, parity): (Option<Vec<u8>>, Option<Vec<u8>>),
    ) -> Result<Redundancy, SpecError> {
        let (has_copies, is_coded) =
            (copies.is_some() || least.is_some(), data.is_some() || parity.is_some());
        match (has_copies, is_coded) {
            (false, false) => Ok(Redundancy::Unsaid),
            (true, true) => {
                let reason = "and 'copies' or 'least' are two ways to survive donors: give one of the two";
                Err(self.parameter(if data.is_some() { "data" } else { "parity" }, reason))
            }
            (true, false) => {
                let usual = Redundancy::USUAL_COPIES.width();
                let copies = self.count("copies", copies, usual, 1..=MOST_WANTED_COPIES)?;
                Ok(Redundancy::Copies { copies, least: self.count("least", least, 1, 1..=copies)? })
            }
            (false, true) => self.coded(data, parity),
        }
    }

    /// `data=K&parity=M`. Parity of one page is that page again: with `data=1` these are copies.
    fn coded(&self, data: Option<Vec<u8>>, parity: Option<Vec<u8>>) -> Result<Redundancy, SpecError> {
        let data = self.count("data", data, Code::USUAL.data, 1..=MOST_DATA)?;
        if data == 1 {
            let usual = Redundancy::USUAL_COPIES.width() - 1;
            let parity = self.count("parity", parity, usual, 0..=MOST_WANTED_COPIES - 1)?;
            return Ok(Redundancy::Copies { copies: 1 + parity, least: 1 });
        }
        let parity = self.count("parity", parity, Code::USUAL.parity, 1..=MOST_PARITY)?;
        Ok(Redundancy::Coded(Code { data, parity }))
    }

    /// Whether there can be so many parts of a page's row on donors that were listed.
    fn has_enough_for_code(&self, pool: &PoolSpec, code: Code) -> Result<(), SpecError> {
        let (needed, donors, domains) = (code.parts(), pool.listed().len(), pool.domain_count());
        if !matches!(pool.members, Members::Listed(_)) || domains >= needed {
            return Ok(());
        }
        let Code { data, parity } = code;
        let (have, remedy) = match donors < needed {
            true => (format!("these are {donors}"), "name more donors, or ask for less: data=, parity="),
            false => (
                format!("these are {donors} in {domains} failure domains"),
                "name donors on other machines, ask for less, or say which fail together by domain=a,b,... \
                 (domain=each: none)",
            ),
        };
        Err(self.form(
            format!(
                "{data} parts of data and {parity} of parity need {needed} donors that fail apart, and \
                 {have}: \
                 {remedy}"
            ),
            FORM,
        ))
    }

    /// Whether there can be so many copies on donors that were listed.
    fn has_enough_donors(&self, pool: &PoolSpec) -> Result<(), SpecError> {
        let (copies, donors) = (pool.redundancy.width(), pool.listed().len());
        let is_listed = matches!(pool.members, Members::Listed(_));
        if donors + pool.spill_places() > MAX_DONORS {
            let reason = format!("with a last resort a pool can have {} donors: name fewer", MAX_DONORS - 1);
            return Err(self.form(reason, FORM));
        }
        if let Some(code) = pool.redundancy.code() {
            return self.has_enough_for_code(pool, code);
        }
        if is_listed && pool.domain_count() < copies {
            let (donors, remedy) = match donors {
                1 => ("1 donor", "name more donors, or write copies=1 and lose pages with it"),
                _ if donors < copies => ("too few donors", "name more donors, or ask for fewer copies"),
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
        Ok(())
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
            let (host, port) = self.host_and_port(authority, DEFAULT_NBD_PORT, FORM)?;
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
        known: RangeInclusive<usize>,
    ) -> Result<usize, SpecError> {
        let Some(text) = text else { return Ok(usual) };
        let text = String::from_utf8_lossy(&text);
        let count = text.parse().ok().filter(|count| known.contains(count));
        let (least, most) = known.into_inner();
        count.ok_or_else(|| self.parameter(name, format!("'{text}' is not a number from {least} to {most}")))
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
