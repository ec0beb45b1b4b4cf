//! The relay's way to a server: TCP, NBD's greeting, STARTTLS, and TLS with certificates on both sides.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use spillway_nbd::handshake::{
    ClientOption, HandshakeFlags, REPLY_HEADER_BYTES, decode_reply, decode_reply_header, option, put_option,
    reply,
};
use spillway_tls::{Session, TlsError};

use super::target::{Target, Whom};
use crate::nbd::connection::{Address, Greeter};
use crate::nbd::reaching::{Attempt, ConnectError, Wire};

/// How long a server may take to take a connection; then its next address is tried.
const CONNECTING: Duration = Duration::from_secs(2);
/// Most that is received at once while TLS begins.
const CHUNK_BYTES: usize = 16 << 10;
/// Most plain bytes before the answer to our question is complete.
const MAX_ANSWER_BYTES: usize = 8 << 10;

/// A connection to a server on which NBD goes on with options.
pub(super) struct Upstream {
    pub socket: OwnedFd,
    pub session: Session,
    /// What the server can do, by its greeting.
    pub greeting: HandshakeFlags,
}

fn refused(error: TlsError) -> ConnectError {
    match error {
        // Who is on the way can make such a thing up: another try may do.
        TlsError::Broken(_) => ConnectError::Unreachable(error.to_string()),
        other => ConnectError::Refused(other.to_string()),
    }
}

impl Upstream {
    /// Connects; `connected` is called when the server has taken the TCP connection.
    pub(super) fn reach(
        target: &Target,
        whom: &Whom<'_>,
        until: Instant,
        mut connected: impl FnMut(),
    ) -> Result<Self, ConnectError> {
        let mut last = ConnectError::Unreachable("the name has no address".to_owned());
        for address in &target.addresses {
            let attempt = Attempt { connect: CONNECTING, until };
            match Greeter::connect(&Address::Tcp(*address), attempt) {
                Ok(greeter) => {
                    connected();
                    return Self::upgrade((target, whom), greeter, *address);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn upgrade(
        (target, whom): (&Target, &Whom<'_>),
        greeter: Greeter,
        address: SocketAddr,
    ) -> Result<Self, ConnectError> {
        let mut greeter = greeter;
        let greeting = greeter.greeting()?;
        let no_tls = |text: &str| {
            ConnectError::Refused(format!(
                "the server at {address} does not speak TLS{text}: give it --tls-certificates, or write \
                 nbd:// and ?plain where the network is yours alone"
            ))
        };
        if !greeting.contains(HandshakeFlags::FIXED_NEWSTYLE) {
            return Err(no_tls(""));
        }
        greeter.send_flags(greeting)?;
        if let Err(refusal) = greeter.ask(&ClientOption::StartTls, |_| {})? {
            return Err(no_tls(&format!(" ({})", refusal.text)));
        }
        // The answer ends where TLS begins: whatever a meddler put behind it is taken for TLS, and is none.
        let mut starting =
            Starting { wire: greeter.into_wire(), session: target.tls.begin(whom.host).map_err(refused)? };
        starting.shake_hands()?;
        // Before anything of the run's is said.
        starting.check_key(whom)?;
        starting.ask()?;
        let Starting { wire, session } = starting;
        Ok(Self { socket: wire.into_socket().into_fd(), session, greeting })
    }
}

/// A connection on which TLS begins.
struct Starting {
    wire: Wire,
    session: Session,
}

impl Starting {
    fn shake_hands(&mut self) -> Result<(), ConnectError> {
        let mut plain = Vec::new();
        loop {
            let mut sealed = Vec::new();
            self.session.pending(&mut sealed);
            self.wire.send(&sealed)?;
            if !self.session.is_handshaking() {
                return if plain.is_empty() { Ok(()) } else { Err(unasked()) };
            }
            self.receive(&mut plain)?;
        }
    }

    /// A certificate for this host may be another machine's, or may have been stolen from an earlier one.
    fn check_key(&self, whom: &Whom<'_>) -> Result<(), ConnectError> {
        let Some(expected) = whom.key else { return Ok(()) };
        let shown = self.session.other_key().map_err(refused)?;
        if shown == expected {
            return Ok(());
        }
        Err(ConnectError::Refused(format!(
            "what answers there has a certificate for {}, but with the key {shown}, and the donor was \
             registered with {expected}: see which machine it is, and if it is the donor, restart it so that \
             it registers with its new key",
            whom.host
        )))
    }

    /// A server says only after the handshake whether it takes our certificate. So it is asked for something
    /// that it does not have: that it answers is the answer.
    fn ask(&mut self) -> Result<(), ConnectError> {
        let (mut question, mut sealed) = (Vec::new(), Vec::new());
        put_option(&mut question, &ClientOption::Unknown(option::NONE));
        self.session.seal(&question, &mut sealed).map_err(refused)?;
        self.wire.send(&sealed)?;
        let mut plain = Vec::new();
        loop {
            if let Some(header) = plain.first_chunk::<REPLY_HEADER_BYTES>() {
                let header = decode_reply_header(header)?;
                let end = REPLY_HEADER_BYTES + header.data_bytes as usize;
                if let Some(data) = plain.get(REPLY_HEADER_BYTES..end) {
                    let _ = decode_reply(header, data)?;
                    let is_answer = header.option == option::NONE && header.kind & reply::ERROR_BIT != 0;
                    return if is_answer && plain.len() == end { Ok(()) } else { Err(unasked()) };
                }
            }
            if plain.len() > MAX_ANSWER_BYTES {
                return Err(unasked());
            }
            self.receive(&mut plain)?;
        }
    }

    fn receive(&mut self, plain: &mut Vec<u8>) -> Result<(), ConnectError> {
        let mut sealed = [0; CHUNK_BYTES];
        let count = self.wire.receive_some(&mut sealed).map_err(|error| match error {
            ConnectError::TurnedAway => {
                ConnectError::Unreachable("the server hung up while TLS began".to_owned())
            }
            other => other,
        })?;
        let opened = self.session.open(&sealed[..count], plain);
        if opened.is_err() {
            let mut last = Vec::new();
            self.session.pending(&mut last);
            // It learns why, if it still listens.
            let _ = self.wire.send(&last);
        }
        opened.map_err(refused)?;
        match self.session.has_ended() {
            true => Err(ConnectError::TurnedAway),
            false => Ok(()),
        }
    }
}

fn unasked() -> ConnectError {
    ConnectError::Refused("the server says by TLS what it was not asked for: it is no NBD server".to_owned())
}
