//! Certificates that an authority has taken back: its list, `ca-crl.pem`, beside its certificate. Where there
//! is one, it is held against whatever the other side shows. It may change while sessions are begun: so each
//! looks whether it has, and one that cannot be used any more lets nobody in.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::VerifierBuilderError;
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::TlsError;
use crate::error::list_reason;
use crate::files::{CA_REVOCATIONS, pem_reason};

/// What to do about a list that is of no use.
const RENEW: &str =
    "have its authority make a new one, or take the file away where no certificate was revoked";

/// Lists as they are given to the library.
pub(crate) type Lists = Vec<CertificateRevocationListDer<'static>>;

/// A file as it was: another one, or another content, has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self { inode: file.ino(), bytes: file.len(), changed: (file.ctime(), file.ctime_nsec()) }
    }
}

fn unusable(file: &Path, reason: String) -> TlsError {
    TlsError::Own { file: file.to_owned(), reason, remedy: RENEW }
}

/// What a side begins sessions with, made with the lists of the moment.
pub(crate) struct Current<C> {
    file: PathBuf,
    authorities: Vec<CertificateDer<'static>>,
    make: Box<dyn Fn(Lists) -> Result<Arc<C>, TlsError> + Send + Sync>,
    made: Mutex<(Option<Stamp>, Arc<C>)>,
}

impl<C> Current<C> {
    /// Makes it with the lists in a directory, if there are any.
    pub(crate) fn begin(
        directory: &Path,
        authorities: Vec<CertificateDer<'static>>,
        make: impl Fn(Lists) -> Result<Arc<C>, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let file = directory.join(CA_REVOCATIONS);
        // Whoever uses it later may stand elsewhere.
        let file = std::path::absolute(&file).unwrap_or(file);
        let stamp = stamp_of(&file)?;
        let lists = if stamp.is_some() { load(&file, &authorities)? } else { Lists::new() };
        let made = Mutex::new((stamp, make(lists)?));
        Ok(Self { file, authorities, make: Box::new(make), made })
    }

    /// The same with the lists as they are now.
    pub(crate) fn now(&self) -> Result<Arc<C>, TlsError> {
        let stamp = stamp_of(&self.file)?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.0 == stamp {
            return Ok(Arc::clone(&made.1));
        }
        if stamp.is_none() {
            return Err(unusable(&self.file, "it was there before, and is gone".to_owned()));
        }
        *made = (stamp, (self.make)(load(&self.file, &self.authorities)?)?);
        Ok(Arc::clone(&made.1))
    }
}

fn stamp_of(file: &Path) -> Result<Option<Stamp>, TlsError> {
    match std::fs::metadata(file) {
        Ok(file) => Ok(Some(Stamp::of(&file))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(file, error.to_string())),
    }
}

/// Reads lists, of which each authority must have one that holds now.
fn load(file: &Path, authorities: &[CertificateDer<'_>]) -> Result<Lists, TlsError> {
    let fail = |reason: String| unusable(file, reason);
    let lists = CertificateRevocationListDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Lists, _>>)
        .map_err(|error| fail(pem_reason(&error, "list of revoked certificates")))?;
    if lists.is_empty() {
        return Err(fail("it holds no list of revoked certificates in PEM".to_owned()));
    }
    let mut parsed = Vec::with_capacity(lists.len());
    for list in &lists {
        let (_, list) = CertificateRevocationList::from_der(list)
            .map_err(|error| fail(format!("a list of revoked certificates cannot be read: {error}")))?;
        check_dates(&list).map_err(fail)?;
        parsed.push(list);
    }
    for authority in authorities {
        let (_, authority) = X509Certificate::from_der(authority)
            .map_err(|error| fail(format!("the certificate of its authority cannot be read: {error}")))?;
        let own = |list: &&CertificateRevocationList<'_>| list.issuer() == authority.subject();
        let mut own = parsed.iter().filter(own).peekable();
        if own.peek().is_none() {
            return Err(fail(format!(
                "it has no list of the authority in ca-cert.pem, {}",
                authority.subject()
            )));
        }
        for list in own {
            // What this library cannot check the other does, at each handshake.
            if list.verify_signature(authority.public_key()) == Err(X509Error::SignatureVerificationError) {
                return Err(fail(format!(
                    "its list was not signed by {} in ca-cert.pem",
                    authority.subject()
                )));
            }
        }
    }
    Ok(lists)
}

fn check_dates(list: &CertificateRevocationList<'_>) -> Result<(), String> {
    let now = time::OffsetDateTime::now_utc();
    let Some(until) = list.next_update() else {
        return Err("a list of revoked certificates does not say until when it holds".to_owned());
    };
    if until.to_datetime() < now {
        return Err(format!("the list of revoked certificates expired on {until}"));
    }
    if list.last_update().to_datetime() > now {
        return Err(format!("the list of revoked certificates is not valid before {}", list.last_update()));
    }
    Ok(())
}

/// The library does not take the lists, or the authorities.
pub(crate) fn refused(directory: &Path, error: &VerifierBuilderError) -> TlsError {
    match error {
        VerifierBuilderError::InvalidCrl(error) => {
            unusable(&directory.join(CA_REVOCATIONS), list_reason(error))
        }
        other => TlsError::Own {
            file: directory.join(crate::files::CA_CERTIFICATE),
            reason: format!("nobody could be checked by it: {other}"),
            remedy: crate::files::RENEW,
        },
    }
}
