//! What a server and a client begin sessions with. Nothing is kept from one session for the next: each shows
//! and checks certificates anew.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

use crate::error::Side;
use crate::files::{CLIENT, Material, RENEW, SERVER};
use crate::revocation::{Current, Lists, refused};
use crate::{KeyPrint, Session, TlsError};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Our own key and certificate do not do.
fn own(material_file: &Path, key_file: &str, error: &Error) -> TlsError {
    let (reason, remedy) = match error {
        Error::InconsistentKeys(_) => {
            (format!("the key in {key_file} is not this certificate's"), "put the two of one pair there")
        }
        other => (format!("certificate and {key_file} cannot be used: {other}"), RENEW),
    };
    TlsError::Own { file: material_file.to_owned(), reason, remedy }
}

/// A server that lets in only clients with a certificate of its CA.
#[derive(Clone)]
pub struct ServerSide {
    config: Arc<Current<ServerConfig>>,
    key: KeyPrint,
}

impl ServerSide {
    /// Reads `ca-cert.pem`, `server-cert.pem` and `server-key.pem`, and `ca-crl.pem` if it is there.
    ///
    /// # Errors
    /// A file is missing, holds something else, has expired, or the key does not fit.
    pub fn load(directory: &Path) -> Result<Self, TlsError> {
        let Material { authorities, authority_certificates, chain, key, file } =
            Material::load(directory, &SERVER)?;
        let shown = chain.first().map_or(&[][..], |own| own.as_ref());
        let key_print = KeyPrint::of_certificate(shown)?;
        let own_directory = directory.to_owned();
        let make = move |lists: Lists| {
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), provider());
            let verifier = builder.with_crls(lists).enforce_revocation_expiration().build();
            let verifier = verifier.map_err(|error| refused(&own_directory, &error))?;
            let own = |error: Error| own(&file, SERVER.key, &error);
            let mut config = ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&TLS13])
                .map_err(own)?
                .with_client_cert_verifier(verifier)
                .with_single_cert(chain.clone(), key.clone_key())
                .map_err(own)?;
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            Ok(Arc::new(config))
        };
        let config = Arc::new(Current::begin(directory, authority_certificates, make)?);
        Ok(Self { config, key: key_print })
    }

    /// The key by which clients may know it.
    #[must_use]
    pub fn key(&self) -> KeyPrint {
        self.key
    }

    /// Begins a session with a client.
    ///
    /// # Errors
    /// The list of revoked certificates cannot be used any more.
    pub fn begin(&self) -> Result<Session, TlsError> {
        let inner = ServerConnection::new(self.config.now()?);
        let inner = inner.map_err(|error| TlsError::of(&error, Side::Server))?;
        Ok(Session::new(Connection::Server(inner), Side::Server))
    }
}

impl fmt::Debug for ServerSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSide").finish_non_exhaustive()
    }
}

/// A client that speaks only with servers that have a certificate of its CA.
#[derive(Clone)]
pub struct ClientSide(Arc<Current<ClientConfig>>);

impl ClientSide {
    /// Reads `ca-cert.pem`, `client-cert.pem` and `client-key.pem`, and `ca-crl.pem` if it is there.
    ///
    /// # Errors
    /// A file is missing, holds something else, has expired, or the key does not fit.
    pub fn load(directory: &Path) -> Result<Self, TlsError> {
        let Material { authorities, authority_certificates, chain, key, file } =
            Material::load(directory, &CLIENT)?;
        let own_directory = directory.to_owned();
        let make = move |lists: Lists| {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::clone(&authorities), provider());
            let verifier = builder.with_crls(lists).enforce_revocation_expiration().build();
            let verifier = verifier.map_err(|error| refused(&own_directory, &error))?;
            let own = |error: Error| own(&file, CLIENT.key, &error);
            let mut config = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&TLS13])
                .map_err(own)?
                .with_webpki_verifier(verifier)
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(own)?;
            config.resumption = Resumption::disabled();
            // For `Session::into_keys`.
            config.enable_secret_extraction = true;
            Ok(Arc::new(config))
        };
        Ok(Self(Arc::new(Current::begin(directory, authority_certificates, make)?)))
    }

    /// Begins a session with the server of this name or IP address, which its certificate must be for.
    ///
    /// # Errors
    /// It is no name that a certificate can be for, or the list of revoked certificates cannot be used any
    /// more.
    pub fn begin(&self, host: &str) -> Result<Session, TlsError> {
        let name = server_name(host)?;
        let inner = ClientConnection::new(self.0.now()?, name);
        let inner = inner.map_err(|error| TlsError::of(&error, Side::Client))?;
        Ok(Session::new(Connection::Client(inner), Side::Client))
    }
}

impl fmt::Debug for ClientSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSide").finish_non_exhaustive()
    }
}

/// The name as certificates have it.
///
/// # Errors
/// It is neither a host's name nor an IP address.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    match host.parse::<IpAddr>() {
        Ok(address) => Ok(ServerName::from(address)),
        Err(_) => ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned())),
    }
}
