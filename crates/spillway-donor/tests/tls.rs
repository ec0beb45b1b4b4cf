//! A donor that takes TLS only: what it answers before, what it forgets then, who may come in, and that
//! stores by TLS do what every store must.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::raw::{Raw, error_of};
use common::{Running, config, eventually};
use spillway_core::size::Size;
use spillway_donor::{Config, Donor};
use spillway_nbd::handshake::{self as hs, ClientOption, InfoQuery, MetaQuery, OptionReply};
use spillway_store::testing::{check_store, expect_pages, open_store, pages, write};
use spillway_store::{StoreError, StoreSpec};
use spillway_tls::making::{Wish, make};
use spillway_tls::{ClientSide, ServerSide, Session};

const MIB: u64 = 1 << 20;
const TLS_REQUIRED: u32 = 1 << 31 | 5;

fn certificates(client: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let hosts = vec!["127.0.0.1".to_owned(), "donor.lab".to_owned()];
    make(directory.path(), &Wish { hosts, client: client.to_owned(), from_days: 0, until_days: 2 }).unwrap();
    directory
}

fn with_tls(directory: &Path, memory_bytes: u64) -> Config {
    Config { tls: Some(ServerSide::load(directory).unwrap()), ..config(memory_bytes) }
}

fn uri(donor: &Running, export: &str, directory: &Path) -> String {
    format!("nbds://{}/{export}?tls-certificates={}", donor.tcp, directory.display())
}

/// An NBD client by TLS, after STARTTLS.
struct Client {
    raw: Raw,
    session: Session,
    plain: Vec<u8>,
}

impl Client {
    fn start(donor: &Running, directory: &Path) -> Self {
        let mut raw = Raw::greeted(donor.tcp);
        assert_eq!(raw.option(&ClientOption::StartTls), ["Ack"]);
        let session = ClientSide::load(directory).unwrap().begin("127.0.0.1").unwrap();
        let mut client = Self { raw, session, plain: Vec::new() };
        while client.session.is_handshaking() {
            client.pump();
        }
        client
    }

    /// Sends what is pending, and receives once if the handshake waits for something.
    fn pump(&mut self) {
        let mut sealed = Vec::new();
        self.session.pending(&mut sealed);
        self.raw.say(&sealed);
        if self.session.is_handshaking() {
            self.receive();
        }
    }

    fn receive(&mut self) -> usize {
        let mut bytes = [0; 16384];
        let count = self.raw.0.read(&mut bytes).unwrap();
        self.session.open(&bytes[..count], &mut self.plain).unwrap();
        count
    }

    fn option(&mut self, option: &ClientOption<'_>) -> Vec<String> {
        let (mut bytes, mut sealed) = (Vec::new(), Vec::new());
        hs::put_option(&mut bytes, option);
        self.session.seal(&bytes, &mut sealed).unwrap();
        self.raw.say(&sealed);
        let mut all = Vec::new();
        loop {
            while let Some(header) = self.plain.first_chunk() {
                let header = hs::decode_reply_header(header).unwrap();
                let end = hs::REPLY_HEADER_BYTES + header.data_bytes as usize;
                let Some(data) = self.plain.get(hs::REPLY_HEADER_BYTES..end) else { break };
                let reply = hs::decode_reply(header, data).unwrap();
                let is_last = matches!(reply, OptionReply::Ack | OptionReply::Error { .. });
                all.push(format!("{reply:?}"));
                self.plain.drain(..end);
                if is_last {
                    return all;
                }
            }
            assert!(self.receive() > 0, "hung up after {all:?}");
        }
    }
}

#[test]
fn before_tls_every_other_option_is_refused() {
    let directory = certificates("ada");
    let donor = Running::start_with(with_tls(directory.path(), MIB));
    let mut client = Raw::greeted(donor.tcp);
    let query = || InfoQuery { name: "e", kinds: vec![] };
    let meta = || MetaQuery { name: "e", queries: vec!["base:allocation"] };
    for option in [
        ClientOption::List,
        ClientOption::StructuredReply,
        ClientOption::Info(query()),
        ClientOption::Go(query()),
        ClientOption::SetMetaContext(meta()),
        ClientOption::ListMetaContext(meta()),
        ClientOption::Unknown(4711),
    ] {
        assert!(error_of(&client.option(&option), TLS_REQUIRED), "{option:?}");
    }
    assert_eq!(client.option(&ClientOption::Abort), ["Ack"]);
    // The old way knows no error.
    let mut old = Raw::greeted(donor.tcp);
    old.say(b"IHAVEOPT\0\0\0\x01\0\0\0\x01e");
    assert!(old.is_hung_up_on());
    assert_eq!(donor.status().exports.len(), 0);
    // On a Unix socket all is as without TLS.
    check_store(&donor.unix_uri("e"));
}

#[test]
fn what_was_agreed_before_tls_is_forgotten() {
    let directory = certificates("ada");
    let donor = Running::start_with(with_tls(directory.path(), MIB));
    let mut client = Client::start(&donor, directory.path());
    let meta = MetaQuery { name: "e", queries: vec!["base:allocation"] };
    let set = ClientOption::SetMetaContext(meta);
    assert!(error_of(&client.option(&set), 1 << 31 | 3), "structured replies come first");
    assert_eq!(client.option(&ClientOption::StructuredReply), ["Ack"]);
    assert_eq!(client.option(&set).len(), 2);
    assert!(error_of(&client.option(&ClientOption::StartTls), 1 << 31 | 3), "TLS is spoken already");
    assert_eq!(client.option(&ClientOption::List), ["Ack"]);
}

/// Who is on the way could otherwise have commands of its own taken for the client's.
#[test]
fn plain_bytes_behind_starttls_end_the_connection() {
    let directory = certificates("ada");
    let donor = Running::start_with(with_tls(directory.path(), MIB));
    let mut client = Raw::greeted(donor.tcp);
    let mut bytes = Vec::new();
    hs::put_option(&mut bytes, &ClientOption::StartTls);
    hs::put_option(&mut bytes, &ClientOption::Go(InfoQuery { name: "smuggled", kinds: vec![] }));
    client.say(&bytes);
    assert_eq!(client.replies(), ["Ack"]);
    // Whoever did that goes on as if nothing had happened.
    let mut session = ClientSide::load(directory.path()).unwrap().begin("127.0.0.1").unwrap();
    let is_through = loop {
        let (mut sealed, mut buffer) = (Vec::new(), [0; 16384]);
        session.pending(&mut sealed);
        if client.0.write_all(&sealed).is_err() || !session.is_handshaking() {
            break !session.is_handshaking();
        }
        match client.0.read(&mut buffer) {
            Ok(count) if count > 0 => session.open(&buffer[..count], &mut Vec::new()).unwrap(),
            _ => break false,
        }
    };
    assert!(!is_through, "TLS came about");
    eventually("the failure is counted", || donor.status().counts.failed_connections == 1);
    assert_eq!(donor.status().exports.len(), 0, "nothing was opened");
}

#[test]
fn garbage_and_silence_in_the_handshake_harm_nobody() {
    let directory = certificates("ada");
    let mut limits = config(MIB).limits;
    limits.handshake = Duration::from_millis(1500);
    let donor = Running::start_with(Config { limits, ..with_tls(directory.path(), 8 * MIB) });
    let (_parts, store) = open_store(&uri(&donor, "e", directory.path()));
    let mut lane = store.open_lane().unwrap();
    assert!(write(&mut *lane, &[1, 2], &pages(2, 1)).iter().all(Result::is_ok));
    let begun = Instant::now();
    let mut strangers: Vec<Raw> = (0..12).map(|_| Raw::greeted(donor.tcp)).collect();
    for (number, stranger) in strangers.iter_mut().enumerate() {
        assert_eq!(stranger.option(&ClientOption::StartTls), ["Ack"]);
        match number % 4 {
            0 => stranger.say(&[0xff; 100]),
            1 => stranger.say(b"\x16\x03\x01\x40\x00"),
            2 => stranger.say(b"\x16\x03\x01"),
            _ => {}
        }
    }
    expect_pages(&mut *lane, &[1, 2], &pages(2, 1));
    for stranger in &mut strangers {
        // An alert at most, and the end.
        let mut rest = Vec::new();
        let end = stranger.0.read_to_end(&mut rest);
        assert!(end.is_ok() && rest.len() < 100, "{end:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(15));
    expect_pages(&mut *lane, &[1, 2], &pages(2, 1));
    eventually("the failures are counted", || donor.status().counts.failed_connections >= 12);
}

#[test]
fn stores_by_tls_do_what_every_store_must() {
    let directory = certificates("ada");
    let donor = Running::start_with(with_tls(directory.path(), 16 * MIB));
    check_store(&format!("{}&size=4M", uri(&donor, "e", directory.path())));
    // By another name that the certificate is for.
    check_store(&format!("{}&size=4M&tls-hostname=donor.lab", uri(&donor, "f", directory.path())));
}

#[test]
fn a_run_ends_and_gives_its_memory_back_by_tls() {
    let directory = certificates("ada");
    let donor = Running::start_with(with_tls(directory.path(), 4 * MIB));
    let spec: StoreSpec = uri(&donor, "e", directory.path()).parse().unwrap();
    for round in 0..3 {
        let token = format!("run{round}");
        let parts = spec.prepare(&token).unwrap();
        assert_eq!(donor.status().exports[0].promised_bytes, Some(4 * MIB), "all of it each time");
        spec.end(parts.fd.as_ref().unwrap());
        assert_eq!(donor.status().exports.len(), 0);
    }
    assert_eq!(donor.status().counts.ended_runs, 3);
    eventually("all have left", || donor.status().clients.is_empty());
    assert_eq!(donor.status().counts.failed_connections, 0);
}

#[test]
fn a_named_export_is_dropped_by_tls() {
    let directory = certificates("ada");
    let donor = Running::start_with(with_tls(directory.path(), MIB));
    let mut client = Client::start(&donor, directory.path());
    client.option(&ClientOption::Go(InfoQuery { name: "disk", kinds: vec![] }));
    assert_eq!(donor.status().exports[0].client, "client ada");
    spillway_store::nbd::drop_export(&uri(&donor, "disk", directory.path()).parse().unwrap()).unwrap();
    assert_eq!(donor.status().exports.len(), 0);
}

#[test]
fn a_client_is_known_by_its_certificate_and_has_its_share() {
    let directory = certificates("ada");
    let config =
        Config { per_client: Some(Size::from_bytes(2 * MIB)), ..with_tls(directory.path(), 8 * MIB) };
    let donor = Running::start_with(config);
    let spec: StoreSpec = uri(&donor, "e", directory.path()).parse().unwrap();
    let first = spec.prepare("first").unwrap();
    let status = donor.status();
    assert_eq!(status.clients.len(), 1, "{status:?}");
    assert_eq!(
        (status.clients[0].client.as_str(), status.clients[0].promised_bytes),
        ("client ada", 2 * MIB)
    );
    let refusal = spec.prepare("second").unwrap_err().to_string();
    assert!(refusal.contains("0 B of the 2.0 MiB that one client may have"), "{refusal}");
    spec.end(first.fd.as_ref().unwrap());
    spec.prepare("third").unwrap();
}

/// What a run is told that cannot begin; each is a run of its own.
fn refusal(spec: &str) -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let token = format!("refused{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let error = spec.parse::<StoreSpec>().unwrap().prepare(&token).unwrap_err();
    assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn certificates_that_are_wrong_are_refused_in_one_line() {
    let (ours, other) = (certificates("ada"), certificates("eve"));
    let donor = Running::start_with(with_tls(ours.path(), MIB));
    let text = refusal(&uri(&donor, "", other.path()));
    assert!(text.contains("the server's certificate is of another CA"), "{text}");
    // A client of another CA that takes ours for the server's.
    std::fs::copy(ours.path().join("ca-cert.pem"), other.path().join("ca-cert.pem")).unwrap();
    let text = refusal(&uri(&donor, "", other.path()));
    assert!(text.contains("the server does not take this client's certificate"), "{text}");
    assert!(text.contains("client-cert.pem"), "{text}");
    let text = refusal(&format!("{}&tls-hostname=elsewhere.lab", uri(&donor, "", ours.path())));
    assert!(text.contains("is not for elsewhere.lab but for"), "{text}");
    let text = refusal(&format!("nbds://{}/?tls-certificates=/nonexistent", donor.tcp));
    assert!(text.contains("/nonexistent/ca-cert.pem") && text.contains("makes them"), "{text}");
    // Neither side guesses what the other speaks.
    let text = refusal(&format!("nbd://{}/", donor.tcp));
    assert!(text.contains("the server takes TLS only: write nbds://"), "{text}");
    let plain = Running::start(MIB);
    let text = refusal(&uri(&plain, "", ours.path()));
    assert!(text.contains("does not speak TLS") && text.contains("--tls-certificates"), "{text}");
    assert_eq!(donor.status().exports.len() + plain.status().exports.len(), 0);
}

#[test]
fn other_machines_are_neither_listened_to_nor_spoken_to_unless_somebody_says_how() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let listen = vec![address.parse().unwrap()];
        let error = Donor::bind(&Config { listen: listen.clone(), ..config(MIB) }).unwrap_err().to_string();
        assert!(error.contains("--tls-certificates DIR") && error.contains("--plain"), "{error}");
        Donor::bind(&Config { listen, plain: true, ..config(MIB) }).unwrap();
    }
    // An address for documents: nobody is there, and nobody is asked.
    let begun = Instant::now();
    for uri in ["nbd://192.0.2.1:1/", "pool:192.0.2.1:1,192.0.2.2:1"] {
        let text = refusal(uri);
        assert!(text.contains("192.0.2.1 is not this machine"), "{text}");
        assert!(text.contains("?tls-certificates=DIR") && text.contains("?plain"), "{text}");
    }
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_stranger_gets_nothing_from_a_relay() {
    let directory = certificates("ada");
    let donor = Running::start_with(with_tls(directory.path(), MIB));
    let (_parts, store) = open_store(&uri(&donor, "e", directory.path()));
    let mut lane = store.open_lane().unwrap();
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let names: Vec<&str> = table
        .lines()
        .filter(|line| line.split_whitespace().nth(3) == Some("00010000"))
        .filter_map(|line| line.split_once('@').map(|(_, name)| name))
        .filter(|name| name.starts_with("spillway-tls-"))
        .collect();
    assert!(!names.is_empty());
    for name in names {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        // Other tests' relays may end meanwhile.
        let Ok(mut stranger) = std::os::unix::net::UnixStream::connect_addr(&address) else { continue };
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stranger.write_all(&[0; 32]);
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.is_empty(), "it is told nothing");
    }
    assert!(write(&mut *lane, &[1], &pages(1, 1))[0].is_ok());
    expect_pages(&mut *lane, &[1], &pages(1, 1));
}
