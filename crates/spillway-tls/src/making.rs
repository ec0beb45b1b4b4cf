//! Making certificates: an authority of one's own, a server's and a client's, for whoever has no authority
//! yet.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::TlsError;
use crate::files::{CA_CERTIFICATE, CA_KEY, CLIENT_CERTIFICATE, CLIENT_KEY, SERVER_CERTIFICATE, SERVER_KEY};
use crate::identity::ClientName;
use crate::sides::server_name;

/// What certificates are wanted.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Names and IP addresses by which clients reach the server.
    pub hosts: Vec<String>,
    /// Who the client is to servers.
    pub client: String,
    /// From how many days from now the certificates are valid; those before are in the past.
    pub from_days: i64,
    /// Until how many days from now.
    pub until_days: i64,
}

/// Makes an authority, a server's and a client's certificate in a directory; the files that were written.
///
/// # Errors
/// A name that no certificate can be for, a file that is there already, or one that cannot be written.
pub fn make(directory: &Path, wish: &Wish) -> Result<Vec<PathBuf>, TlsError> {
    for host in &wish.hosts {
        server_name(host)?;
    }
    if ClientName::new(&wish.client).is_none() {
        return Err(TlsError::Name(wish.client.clone()));
    }
    let fail = |file: &Path, reason: String| TlsError::Making { file: file.to_owned(), reason };
    std::fs::create_dir_all(directory)
        .map_err(|error| fail(directory, format!("{error}; name a directory that you may write to")))?;
    let all = [CA_CERTIFICATE, CA_KEY, SERVER_CERTIFICATE, SERVER_KEY, CLIENT_CERTIFICATE, CLIENT_KEY];
    if let Some(there) = all.iter().map(|name| directory.join(name)).find(|file| file.exists()) {
        return Err(fail(&there, "it is there already; name another directory".to_owned()));
    }
    let texts =
        texts(wish).map_err(|error| fail(directory, format!("no certificate: {error}; try again")))?;
    let mut written = Vec::with_capacity(all.len());
    for (name, text) in all.iter().zip(texts) {
        let file = directory.join(name);
        write(&file, &text, name.ends_with("-key.pem"))
            .map_err(|error| fail(&file, format!("{error}; name a directory that you may write to")))?;
        written.push(file);
    }
    Ok(written)
}

/// Certificate and key of the authority, the server and the client, in PEM.
fn texts(wish: &Wish) -> Result<[String; 6], rcgen::Error> {
    let authority_key = KeyPair::generate()?;
    // A name of its own, so that the certificates of two are told apart.
    let digits: String =
        authority_key.public_key_raw().iter().skip(1).take(4).map(|byte| format!("{byte:02x}")).collect();
    let mut authority = params(wish, Vec::new(), &format!("Spillway authority {digits}"))?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(authority, authority_key)?;
    let signed = |mut params: CertificateParams, purpose| {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;
        Ok::<_, rcgen::Error>((certificate.pem(), key.serialize_pem()))
    };
    let first = wish.hosts.first().map_or("server", String::as_str);
    let server = params(wish, wish.hosts.clone(), first)?;
    let (server, server_key) = signed(server, ExtendedKeyUsagePurpose::ServerAuth)?;
    let client = params(wish, Vec::new(), &wish.client)?;
    let (client, client_key) = signed(client, ExtendedKeyUsagePurpose::ClientAuth)?;
    Ok([authority.pem(), authority.key().serialize_pem(), server, server_key, client, client_key])
}

fn params(wish: &Wish, hosts: Vec<String>, name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    // A clock may be a little behind.
    params.not_before = now + Duration::days(wish.from_days) - Duration::hours(1);
    params.not_after = now + Duration::days(wish.until_days);
    Ok(params)
}

fn write(file: &Path, text: &str, is_secret: bool) -> std::io::Result<()> {
    let mode = if is_secret { 0o600 } else { 0o644 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?.write_all(text.as_bytes())
}
