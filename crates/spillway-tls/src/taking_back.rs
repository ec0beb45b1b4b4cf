//! Taking certificates back: the authority's list of those that it has revoked, made or made anew by whoever
//! has its key. What was on it stays there.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, PublicKeyData, RevocationReason,
    RevokedCertParams, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::{CertificateRevocationList, RevokedCertificate};

use crate::TlsError;
use crate::files::{CA_CERTIFICATE, CA_KEY, CA_REVOCATIONS, pem_reason};
use crate::identity::ClientName;

const BEGIN: &str = "-----BEGIN X509 CRL-----";
const END: &str = "-----END X509 CRL-----";

/// A list that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where the list is.
    pub file: PathBuf,
    /// Certificates that are on it.
    pub count: usize,
    /// The number of this list of the authority's: each has a higher one than that before.
    pub number: u64,
}

/// Makes the list in a directory that has the authority's certificate and key, with these certificates beside
/// those that are on it already. Each is the file of one, or the name that one in the directory is for. It
/// holds for so many days.
///
/// # Errors
/// There is no such certificate, it is another authority's, or a file cannot be read or written.
pub fn take_back(directory: &Path, which: &[String], days: i64) -> Result<Listed, TlsError> {
    let key_file = directory.join(CA_KEY);
    let text = std::fs::read_to_string(&key_file).map_err(|error| {
        fail(&key_file, format!("{error}; only who has the CA's key can take certificates back"))
    })?;
    let key = KeyPair::from_pem(&text)
        .map_err(|error| fail(&key_file, format!("it holds no key of a CA: {error}")))?;
    let authority = authority_of(directory, &key)?;
    let issuer = Issuer::from_ca_cert_der(&authority, key)
        .map_err(|error| fail(&directory.join(CA_CERTIFICATE), format!("it is no CA's: {error}")))?;
    let (_, authority) = parsed(&directory.join(CA_CERTIFICATE), &authority)?;
    let file = directory.join(CA_REVOCATIONS);
    let Before { mut revoked, others, number } = before(&file, &authority)?;
    for wanted in which {
        let serial = serial_of(directory, &authority, wanted)?;
        if !revoked.iter().any(|known| known.serial_number == serial) {
            revoked.push(RevokedCertParams {
                serial_number: serial,
                revocation_time: OffsetDateTime::now_utc(),
                reason_code: None,
                invalidity_date: None,
            });
        }
    }
    let (count, number) = (revoked.len(), number.saturating_add(1));
    let now = OffsetDateTime::now_utc();
    let list = CertificateRevocationListParams {
        // A clock may be a little behind.
        this_update: now - Duration::hours(1),
        next_update: now + Duration::days(days),
        crl_number: SerialNumber::from(number),
        issuing_distribution_point: None,
        revoked_certs: revoked,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let made = list.signed_by(&issuer).and_then(|list| list.pem());
    let made = made.map_err(|error| fail(&file, format!("no list could be made: {error}")))?;
    replace(&file, &(others + &made))
        .map_err(|error| fail(&file, format!("{error}; name a directory that you may write to")))?;
    Ok(Listed { file, count, number })
}

fn fail(file: &Path, reason: String) -> TlsError {
    TlsError::Making { file: file.to_owned(), reason }
}

fn parsed<'a>(
    file: &Path,
    certificate: &'a CertificateDer<'_>,
) -> Result<(&'a [u8], X509Certificate<'a>), TlsError> {
    X509Certificate::from_der(certificate)
        .map_err(|error| fail(file, format!("its certificate cannot be read: {error}")))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| fail(file, pem_reason(&error, "certificate")))?;
    if found.is_empty() {
        return Err(fail(file, "it holds no certificate in PEM".to_owned()));
    }
    Ok(found)
}

/// The certificate of the authority whose key this is.
fn authority_of(directory: &Path, key: &KeyPair) -> Result<CertificateDer<'static>, TlsError> {
    let file = directory.join(CA_CERTIFICATE);
    for certificate in certificates(&file)? {
        let own = key.subject_public_key_info();
        if parsed(&file, &certificate)?.1.public_key().raw == own.as_slice() {
            return Ok(certificate);
        }
    }
    Err(fail(&file, format!("{CA_KEY} is not its key: put the CA's own there")))
}

/// What there was of a list.
#[derive(Default)]
struct Before {
    revoked: Vec<RevokedCertParams>,
    /// Lists of other authorities, in PEM.
    others: String,
    number: u64,
}

/// Reads the list that is there, if there is one. One that has expired counts: it is to be made anew.
fn before(file: &Path, authority: &X509Certificate<'_>) -> Result<Before, TlsError> {
    let mut before = Before::default();
    if !file.exists() {
        return Ok(before);
    }
    let text = std::fs::read_to_string(file).map_err(|error| fail(file, error.to_string()))?;
    for block in text.split_inclusive(END).filter_map(|part| part.find(BEGIN).and_then(|at| part.get(at..))) {
        let der = CertificateRevocationListDer::from_pem_slice(block.as_bytes())
            .map_err(|error| fail(file, pem_reason(&error, "list of revoked certificates")))?;
        let (_, list) = CertificateRevocationList::from_der(&der).map_err(|error| {
            fail(file, format!("a list that is there cannot be read: {error}; move it away"))
        })?;
        if list.issuer() != authority.subject() {
            before.others += &format!("{block}\n");
            continue;
        }
        if list.verify_signature(authority.public_key()).is_err() {
            let reason = format!("the list there was not signed by {}; move it away", authority.subject());
            return Err(fail(file, reason));
        }
        let number = list.crl_number().and_then(|number| u64::try_from(number).ok());
        before.number = before.number.max(number.unwrap_or(0));
        before.revoked.extend(list.iter_revoked_certificates().map(as_before));
    }
    Ok(before)
}

fn as_before(revoked: &RevokedCertificate<'_>) -> RevokedCertParams {
    RevokedCertParams {
        serial_number: SerialNumber::from_slice(revoked.raw_serial()),
        revocation_time: revoked.revocation_date.to_datetime(),
        reason_code: revoked.reason_code().and_then(|(_, reason)| reason_of(reason.0)),
        invalidity_date: None,
    }
}

fn reason_of(number: u8) -> Option<RevocationReason> {
    Some(match number {
        1 => RevocationReason::KeyCompromise,
        2 => RevocationReason::CaCompromise,
        3 => RevocationReason::AffiliationChanged,
        4 => RevocationReason::Superseded,
        5 => RevocationReason::CessationOfOperation,
        6 => RevocationReason::CertificateHold,
        9 => RevocationReason::PrivilegeWithdrawn,
        10 => RevocationReason::AaCompromise,
        _ => return None,
    })
}

/// The number of the certificate that is meant: a file, or who it is for.
fn serial_of(
    directory: &Path,
    authority: &X509Certificate<'_>,
    wanted: &str,
) -> Result<SerialNumber, TlsError> {
    let file = Path::new(wanted);
    if file.is_file() {
        let all = certificates(file)?;
        // Those behind the first are of who has signed it.
        let first = all.first().ok_or_else(|| fail(file, "it holds no certificate in PEM".to_owned()))?;
        let (_, certificate) = parsed(file, first)?;
        return serial_if_own(authority, &certificate)
            .ok_or_else(|| fail(file, format!("its certificate was not made by {}", authority.subject())));
    }
    let mut found = Vec::new();
    let entries = std::fs::read_dir(directory).map_err(|error| fail(directory, error.to_string()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_certificate = path.extension().is_some_and(|extension| extension == "pem");
        let first = CertificateDer::pem_file_iter(&path).ok().and_then(|mut all| all.next()?.ok());
        let Some(first) = first.filter(|_| is_certificate) else { continue };
        let (_, certificate) = parsed(&path, &first)?;
        let is_meant = ClientName::of_certificate(&first).is_ok_and(|name| name.to_string() == wanted);
        found.extend(serial_if_own(authority, &certificate).filter(|_| is_meant));
    }
    found.dedup();
    match &found[..] {
        [serial] => Ok(serial.clone()),
        [] => Err(fail(
            directory,
            format!("no certificate of the CA's in it is for '{wanted}': name the certificate's file"),
        )),
        several => Err(fail(
            directory,
            format!("{} certificates in it are for '{wanted}': name the file of one", several.len()),
        )),
    }
}

/// The number of a certificate, if this authority has made it, and it is not its own.
fn serial_if_own(authority: &X509Certificate<'_>, of: &X509Certificate<'_>) -> Option<SerialNumber> {
    let is_own = of.issuer() == authority.subject()
        && of.subject() != authority.subject()
        && of.verify_signature(Some(authority.public_key())).is_ok();
    is_own.then(|| SerialNumber::from_slice(of.raw_serial()))
}

/// Puts it there at once: whoever reads it reads the old one or the new one.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let new = file.with_extension("pem.new");
    let _ = std::fs::remove_file(&new);
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    std::fs::rename(&new, file)
}
