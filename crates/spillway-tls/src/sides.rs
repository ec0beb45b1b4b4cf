//! What a server and a client begin sessions with. Nothing is kept from one session for the next: each shows
//! and checks certificates anew.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

use crate::error::Side;
use crate::files::{CLIENT, Material, RENEW, SERVER};
use crate::{Session, TlsError};

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
#[derive(Clone, Debug)]
pub struct ServerSide(Arc<ServerConfig>);

impl ServerSide {
    /// Reads `ca-cert.pem`, `server-cert.pem` and `server-key.pem`.
    ///
    /// # Errors
    /// A file is missing, holds something else, has expired, or the key does not fit.
    pub fn load(directory: &Path) -> Result<Self, TlsError> {
        let Material { authorities, chain, key, file } = Material::load(directory, &SERVER)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider())
            .build()
            .map_err(|error| TlsError::Own {
                file: directory.join(crate::files::CA_CERTIFICATE),
                reason: format!("no client could be checked by it: {error}"),
                remedy: RENEW,
            })?;
        let own = |error: Error| own(&file, SERVER.key, &error);
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(own)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(own)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Begins a session with a client.
    ///
    /// # Errors
    /// The library refuses its configuration.
    pub fn begin(&self) -> Result<Session, TlsError> {
        let inner = ServerConnection::new(Arc::clone(&self.0));
        let inner = inner.map_err(|error| TlsError::of(&error, Side::Server))?;
        Ok(Session::new(Connection::Server(inner), Side::Server))
    }
}

/// A client that speaks only with servers that have a certificate of its CA.
#[derive(Clone, Debug)]
pub struct ClientSide(Arc<ClientConfig>);

impl ClientSide {
    /// Reads `ca-cert.pem`, `client-cert.pem` and `client-key.pem`.
    ///
    /// # Errors
    /// A file is missing, holds something else, has expired, or the key does not fit.
    pub fn load(directory: &Path) -> Result<Self, TlsError> {
        let Material { authorities, chain, key, file } = Material::load(directory, &CLIENT)?;
        let own = |error: Error| own(&file, CLIENT.key, &error);
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(own)?
            .with_root_certificates(authorities)
            .with_client_auth_cert(chain, key)
            .map_err(own)?;
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// Begins a session with the server of this name or IP address, which its certificate must be for.
    ///
    /// # Errors
    /// It is no name that a certificate can be for.
    pub fn begin(&self, host: &str) -> Result<Session, TlsError> {
        let name = server_name(host)?;
        let inner = ClientConnection::new(Arc::clone(&self.0), name);
        let inner = inner.map_err(|error| TlsError::of(&error, Side::Client))?;
        Ok(Session::new(Connection::Client(inner), Side::Client))
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
