//! A pool that is named in etcd: `etcd://HOST:PORT[,HOST:PORT...]/NAME`, or `etcds:` by TLS.

use std::str::FromStr;

use super::members::{EtcdPool, EtcdSpeech, PoolDonor, SCHEME, TLS_SCHEME};
use super::{DEFAULT_NBD_PORT, SpecError, Uri};

/// Port of etcd where the URI names none.
const DEFAULT_ETCD_PORT: u16 = 2379;
/// Most bytes in a pool's name.
const MOST_NAME_BYTES: usize = 64;
const FORM: &str = "etcd://HOST:PORT/NAME (etcds: by TLS), of letters, digits, '-', '_' and '.' in NAME";

impl FromStr for EtcdPool {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Uri { text, body: text, query: "" }.etcd()
    }
}

impl FromStr for PoolDonor {
    type Err = SpecError;

    /// `HOST:PORT`, or `HOST` alone for the usual port.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (host, port) =
            Uri { text, body: text, query: "" }.host_and_port(text, DEFAULT_NBD_PORT, "HOST:PORT")?;
        Ok(Self { host, port })
    }
}

impl Uri<'_> {
    /// Whether the body names a pool in etcd.
    pub(super) fn is_etcd(&self) -> bool {
        self.body.starts_with(SCHEME) || self.body.starts_with(TLS_SCHEME)
    }

    pub(super) fn etcd(&self) -> Result<EtcdPool, SpecError> {
        let plain = self.body.strip_prefix(SCHEME).map(|rest| (rest, EtcdSpeech::Plain));
        let found = plain.or_else(|| Some((self.body.strip_prefix(TLS_SCHEME)?, EtcdSpeech::Tls(None))));
        let (rest, speech) = found.ok_or_else(|| self.form("it names no etcd", FORM))?;
        let (servers, name) =
            rest.split_once('/').ok_or_else(|| self.form("the pool's name is missing", FORM))?;
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if name.is_empty() || name.len() > MOST_NAME_BYTES || !is_plain {
            return Err(self.form(format!("'{name}' is no name of a pool"), FORM));
        }
        let server = |authority: &str| {
            let (host, port) = self.host_and_port(authority, DEFAULT_ETCD_PORT, FORM)?;
            Ok(PoolDonor { host, port })
        };
        let servers = servers.split(',').map(server).collect::<Result<Vec<_>, SpecError>>()?;
        Ok(EtcdPool { servers, name: name.to_owned(), speech })
    }
}
