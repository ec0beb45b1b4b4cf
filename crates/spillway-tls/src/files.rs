//! Certificates and keys as they lie in a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::TlsError;

/// The certificate of the authority that has signed the other side's.
pub const CA_CERTIFICATE: &str = "ca-cert.pem";
/// What certificates the authority has taken back, if it says so: the name is libnbd's, nbdkit's and QEMU's.
pub const CA_REVOCATIONS: &str = "ca-crl.pem";
/// The authority's key, which only who makes certificates needs.
pub const CA_KEY: &str = "ca-key.pem";
/// What a server shows: its certificate.
pub const SERVER_CERTIFICATE: &str = "server-cert.pem";
/// The key of a server's certificate.
pub const SERVER_KEY: &str = "server-key.pem";
/// What a client shows: its certificate.
pub const CLIENT_CERTIFICATE: &str = "client-cert.pem";
/// The key of a client's certificate.
pub const CLIENT_KEY: &str = "client-key.pem";

/// What to do about a certificate of one's own that is of no use.
pub(crate) const RENEW: &str = "make a new one";

/// Which files one side has.
pub(crate) struct Names {
    pub certificate: &'static str,
    pub key: &'static str,
    /// The names in words, for messages.
    pub needed: &'static str,
}

pub(crate) const SERVER: Names = Names {
    certificate: SERVER_CERTIFICATE,
    key: SERVER_KEY,
    needed: "ca-cert.pem, server-cert.pem and server-key.pem",
};

pub(crate) const CLIENT: Names = Names {
    certificate: CLIENT_CERTIFICATE,
    key: CLIENT_KEY,
    needed: "ca-cert.pem, client-cert.pem and client-key.pem",
};

/// What one side shows, and whom it believes.
pub(crate) struct Material {
    pub authorities: Arc<RootCertStore>,
    /// Their certificates as they were read.
    pub authority_certificates: Vec<CertificateDer<'static>>,
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    /// The file of the certificate, for messages.
    pub file: PathBuf,
}

impl Material {
    /// Reads one side's files.
    pub(crate) fn load(directory: &Path, names: &Names) -> Result<Self, TlsError> {
        let ca_file = directory.join(CA_CERTIFICATE);
        let fail = |file: &Path, reason: String| TlsError::File {
            file: file.to_owned(),
            reason,
            needed: names.needed,
        };
        let mut authorities = RootCertStore::empty();
        let authority_certificates = certificates(&ca_file).map_err(|reason| fail(&ca_file, reason))?;
        for authority in &authority_certificates {
            authorities
                .add(authority.clone())
                .map_err(|error| fail(&ca_file, format!("it holds no certificate of a CA: {error}")))?;
        }
        let file = directory.join(names.certificate);
        let chain = certificates(&file).map_err(|reason| fail(&file, reason))?;
        let key_file = directory.join(names.key);
        let key = PrivateKeyDer::from_pem_file(&key_file)
            .map_err(|error| fail(&key_file, pem_reason(&error, "key")))?;
        if let Some(first) = chain.first() {
            check_dates(&file, first)?;
        }
        Ok(Self { authorities: Arc::new(authorities), authority_certificates, chain, key, file })
    }
}

/// The certificates in a file; at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| pem_reason(&error, "certificate"))?;
    if found.is_empty() { Err("it holds no certificate".to_owned()) } else { Ok(found) }
}

pub(crate) fn pem_reason(error: &rustls::pki_types::pem::Error, what: &str) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => error.to_string(),
        Error::NoItemsFound => format!("it holds no {what} in PEM"),
        other => format!("it holds no {what} in PEM: {other:?}"),
    }
}

/// Nobody would take a certificate that has expired.
fn check_dates(file: &Path, certificate: &CertificateDer<'_>) -> Result<(), TlsError> {
    let own = |reason: String, remedy| TlsError::Own { file: file.to_owned(), reason, remedy };
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|error| own(format!("the certificate cannot be read: {error}"), RENEW))?;
    let validity = parsed.validity();
    let now = time::OffsetDateTime::now_utc();
    if validity.not_after.to_datetime() < now {
        return Err(own(format!("the certificate expired on {}", validity.not_after), RENEW));
    }
    if validity.not_before.to_datetime() > now {
        let reason = format!("the certificate is not valid before {}", validity.not_before);
        return Err(own(reason, "set this machine's clock, or make a new one"));
    }
    Ok(())
}
