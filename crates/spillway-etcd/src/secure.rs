//! TLS to etcd: the sessions of [`spillway_tls`], as donors and runs have them, below the HTTP of `ureq`.

use std::io::{Error, ErrorKind, Read, Write};

use spillway_tls::{ClientSide, Session, TlsError};
use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, TcpConnector, Transport,
    TransportAdapter,
};

/// Most that is received at once.
const CHUNK_BYTES: usize = 16 << 10;

/// Asks servers that have a certificate of the CA, and shows them the client's.
pub(crate) fn agent(config: Config, side: ClientSide) -> Agent {
    let connector = TcpConnector::default().chain(Secure(side));
    Agent::with_parts(config, connector, DefaultResolver::default())
}

/// Begins TLS on each connection.
#[derive(Debug)]
struct Secure(ClientSide);

/// A connection on which TLS is spoken.
struct Secured {
    buffers: LazyBuffers,
    session: Session,
    wire: TransportAdapter,
    /// What has come and was not taken yet.
    plain: Vec<u8>,
    /// Something of the application's has come.
    has_heard: bool,
}

impl std::fmt::Debug for Secured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secured").finish_non_exhaustive()
    }
}

fn broken(error: TlsError) -> ureq::Error {
    Error::new(ErrorKind::InvalidData, error).into()
}

impl<In: Transport> Connector<In> for Secure {
    type Out = Either<In, Secured>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(plain) = chained else { return Ok(None) };
        let host = details.uri.host().unwrap_or_default();
        // An IPv6 address is in brackets here.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut wire = TransportAdapter::new(plain.boxed(), details.current_time.clone());
        wire.set_timeout(details.timeout);
        let buffers =
            LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        let session = self.0.begin(host).map_err(broken)?;
        let mut secured = Secured { buffers, session, wire, plain: Vec::new(), has_heard: false };
        while secured.session.is_handshaking() {
            secured.send_pending()?;
            if secured.session.is_handshaking() {
                secured.receive()?;
            }
        }
        secured.send_pending()?;
        Ok(Some(Either::B(secured)))
    }
}

impl Secured {
    /// Why a connection broke. A server says only after the handshake that it does not take our
    /// certificate, and hangs up, so that what it said may be lost.
    fn reason(&self, error: Error) -> ureq::Error {
        let is_cut = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof];
        if self.has_heard || !is_cut.contains(&error.kind()) {
            return error.into();
        }
        let guess = match self.session.is_handshaking() {
            true => {
                "it hung up where TLS was to begin, as one does that speaks none: write etcd:// in place of \
                 etcds:// where etcd is asked without"
            }
            false => "it hung up as TLS had begun, as one does that does not take this client's certificate",
        };
        Error::new(error.kind(), guess).into()
    }

    fn send_pending(&mut self) -> Result<(), ureq::Error> {
        let mut sealed = Vec::new();
        self.session.pending(&mut sealed);
        Ok(self.wire.write_all(&sealed)?)
    }

    /// Receives some, and opens it.
    fn receive(&mut self) -> Result<(), ureq::Error> {
        let mut sealed = [0; CHUNK_BYTES];
        let count = self.wire.read(&mut sealed).map_err(|error| self.reason(error))?;
        if count == 0 {
            // Whoever cuts a connection must not pass for the end of an answer.
            return Err(self.reason(Error::new(ErrorKind::UnexpectedEof, "etcd hung up amid TLS")));
        }
        let opened = self.session.open(&sealed[..count], &mut self.plain);
        // It learns why, if it still listens.
        let sent = self.send_pending();
        opened.map_err(broken)?;
        sent
    }
}

impl Transport for Secured {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.wire.set_timeout(timeout);
        let mut sealed = Vec::new();
        self.session.seal(&self.buffers.output()[..amount], &mut sealed).map_err(broken)?;
        self.wire.write_all(&sealed).map_err(|error| self.reason(error))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.wire.set_timeout(timeout);
        while self.plain.is_empty() {
            if self.session.has_ended() {
                return Ok(false);
            }
            self.receive()?;
        }
        self.has_heard = true;
        let place = self.buffers.input_append_buf();
        let count = place.len().min(self.plain.len());
        place[..count].copy_from_slice(&self.plain[..count]);
        self.plain.drain(..count);
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        self.plain.is_empty() && !self.session.has_ended() && self.wire.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
