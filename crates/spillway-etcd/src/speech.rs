//! Whether a server that makes nothing of plain HTTP speaks TLS: then the user is told to say so.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A record of TLS's handshake with a greeting in which nothing is. Whoever speaks TLS answers with an alert,
/// whatever certificates he wants, and nobody else answers so.
const EMPTY_GREETING: [u8; 9] = [22, 3, 1, 0, 4, 1, 0, 0, 0];
/// What an alert begins with.
const ALERT: [u8; 2] = [21, 3];

/// What Go's servers say where they take nothing but TLS.
const TOLD_BY_GO: &str = "HTTP request to an HTTPS server";

/// What to do about it.
const REMEDY: &str = "it takes nothing but TLS: write etcds:// in place of etcd://, and name certificates \
                      for it: --etcd-certificates DIR, or etcd-certificates=DIR in a store's address";

/// What is wrong where plain HTTP broke so; `None` where the error says it.
pub(crate) fn after(error: &ureq::Error, server: &str, patience: Duration) -> Option<&'static str> {
    let may_be = match error {
        ureq::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ),
        ureq::Error::Protocol(_) => true,
        _ => false,
    };
    (may_be && speaks_tls(server, patience)).then_some(REMEDY)
}

/// The same where it answered with this.
pub(crate) fn in_answer(text: &str) -> Option<&'static str> {
    text.contains(TOLD_BY_GO).then_some(REMEDY)
}

/// Whether what listens there speaks TLS.
fn speaks_tls(server: &str, patience: Duration) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut addresses = server.to_socket_addrs()?;
        let address = addresses.next().ok_or(ErrorKind::AddrNotAvailable)?;
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(&EMPTY_GREETING)?;
        let mut answer = [0; ALERT.len()];
        stream.read_exact(&mut answer)?;
        Ok(answer == ALERT)
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use spillway_tls::ServerSide;
    use spillway_tls::making::{Wish, make};

    use super::*;

    /// The address of somebody who does this with one connection.
    fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || serve(listener.accept().unwrap().0));
        address
    }

    fn answers(server: &str) -> bool {
        speaks_tls(server, Duration::from_secs(10))
    }

    #[test]
    fn who_speaks_tls_is_known_from_who_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = vec!["127.0.0.1".to_owned()];
        make(directory.path(), &Wish { hosts, client: "a".to_owned(), from_days: 0, until_days: 1 }).unwrap();
        let side = ServerSide::load(directory.path()).unwrap();
        let by_tls = server(move |mut stream| {
            let (mut session, mut bytes) = (side.begin().unwrap(), [0; 100]);
            let count = stream.read(&mut bytes).unwrap();
            let (mut plain, mut answer) = (Vec::new(), Vec::new());
            session.open(&bytes[..count], &mut plain).unwrap_err();
            session.pending(&mut answer);
            stream.write_all(&answer).unwrap();
        });
        assert!(answers(&by_tls));
        assert!(!answers(&server(drop)), "it hangs up");
        let plain = server(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap());
        assert!(!answers(&plain));
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(!answers(&nobody));
    }

    #[test]
    fn only_where_somebody_hung_up_he_is_asked() {
        let refused = ureq::Error::Io(ErrorKind::ConnectionRefused.into());
        assert_eq!(after(&refused, "127.0.0.1:1", Duration::from_secs(1)), None);
        assert!(in_answer("Client sent an HTTP request to an HTTPS server.\n").is_some());
        assert_eq!(in_answer("{}"), None);
    }
}
