//! A relay that is told by which key it is to know its server, and servers that speak no more than TLS needs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use spillway_nbd::handshake::{
    CLIENT_FLAGS_BYTES, HandshakeFlags, OPTION_HEADER_BYTES, OptionReply, encode_greeting, option, put_reply,
    reply,
};
use spillway_tls::files::CA_CERTIFICATE;
use spillway_tls::making::{Wish as Certificates, make};
use spillway_tls::{ClientSide, KeyPrint, ServerSide};

use super::{Meeting, Target, listen_at, serve};
use crate::nbd::meeting::Wish;
use crate::nbd::reaching::{Attempt, ConnectError};

const HOST: &str = "127.0.0.1";

/// Certificates of two authorities, of which each side takes both: two servers have certificates for one
/// host, by different keys.
fn two_machines() -> [tempfile::TempDir; 2] {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for directory in &directories {
        let wish =
            Certificates { hosts: vec![HOST.into()], client: "run".into(), from_days: 0, until_days: 9 };
        make(directory.path(), &wish).unwrap();
    }
    let file = |directory: &tempfile::TempDir| directory.path().join(CA_CERTIFICATE);
    let both = directories.each_ref().map(|one| std::fs::read_to_string(file(one)).unwrap()).concat();
    directories.iter().for_each(|directory| std::fs::write(file(directory), &both).unwrap());
    directories
}

/// Serves by TLS what asks for it, one after the other; where it listens, and by which key it is known.
fn server(certificates: &Path) -> (SocketAddr, KeyPrint) {
    let side = ServerSide::load(certificates).unwrap();
    let listener = TcpListener::bind((HOST, 0)).unwrap();
    let (address, key) = (listener.local_addr().unwrap(), side.key());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Who is not to its liking hangs up.
            let _ = converse(&side, &stream.unwrap());
        }
    });
    (address, key)
}

fn converse(side: &ServerSide, mut stream: &TcpStream) -> std::io::Result<()> {
    stream.write_all(&encode_greeting(HandshakeFlags::FIXED_NEWSTYLE))?;
    stream.read_exact(&mut [0; CLIENT_FLAGS_BYTES])?;
    stream.read_exact(&mut [0; OPTION_HEADER_BYTES])?;
    let mut answer = Vec::new();
    put_reply(&mut answer, option::STARTTLS, &OptionReply::Ack);
    stream.write_all(&answer)?;
    let (mut session, mut plain) = (side.begin().unwrap(), Vec::new());
    let mut has_answered = false;
    loop {
        let mut sealed = vec![0; 4096];
        let count = stream.read(&mut sealed)?;
        if count == 0 || session.open(&sealed[..count], &mut plain).is_err() {
            return Ok(());
        }
        let mut out = Vec::new();
        session.pending(&mut out);
        if plain.len() >= OPTION_HEADER_BYTES && !std::mem::replace(&mut has_answered, true) {
            let mut refusal = Vec::new();
            let error = OptionReply::Error { kind: reply::ERR_UNSUP, message: "" };
            put_reply(&mut refusal, option::NONE, &error);
            session.seal(&refusal, &mut out).unwrap();
        }
        stream.write_all(&out)?;
    }
}

/// A relay to this server in this process, shown by the certificates of a client.
fn relay(name: &str, address: SocketAddr, certificates: &Path) -> Meeting {
    let meeting = Meeting::of(&format!("{name} {}", std::process::id()), "nbds://");
    let listener = listen_at(&meeting).unwrap().unwrap();
    let tls = ClientSide::load(certificates).unwrap();
    let (own, target) = (meeting.clone(), Target { addresses: vec![address], host: HOST.into(), tls });
    std::thread::spawn(move || serve::serve(listener, own, target));
    meeting
}

fn knock(meeting: &Meeting, wish: Wish) -> Result<(), ConnectError> {
    meeting.knock(wish, Attempt::of(Duration::from_secs(30))).map(drop)
}

#[test]
fn a_server_that_has_another_key_than_was_registered_is_not_used() {
    let [donor, other] = two_machines();
    let ((address, key), (_, other_key)) = (server(donor.path()), server(other.path()));
    assert_ne!(key, other_key);
    let meeting = relay("another key", address, other.path());
    assert_eq!(knock(&meeting, Wish::PassOn), Ok(()), "its certificate is for that host, which is all");
    assert_eq!(knock(&meeting, Wish::Expect(key)), Ok(()));
    assert_eq!([Wish::PassOn, Wish::TakeOver].map(|wish| knock(&meeting, wish)), [Ok(()), Ok(())]);
    // It is registered anew, by another machine.
    assert_eq!(knock(&meeting, Wish::Expect(other_key)), Ok(()));
    for wish in [Wish::PassOn, Wish::TakeOver] {
        let Err(ConnectError::Refused(text)) = knock(&meeting, wish) else { panic!("{wish:?}") };
        assert!(text.contains(&key.to_string()) && text.contains(&other_key.to_string()), "{text}");
        assert!(text.contains("registered with") && text.contains("restart it"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert_eq!(knock(&meeting, Wish::Expect(key)), Ok(()));
    assert_eq!(knock(&meeting, Wish::TakeOver), Ok(()), "and by the donor itself");
}

#[test]
fn a_relay_ends_when_nobody_is_connected_but_stays_for_who_asks_it_to_though_no_server_is_there() {
    let [donor, _] = two_machines();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let meeting = relay("to stay", nobody, donor.path());
    let stays = meeting.knock(Wish::Stay, Attempt::of(Duration::from_secs(30))).unwrap();
    let is_there = || match knock(&meeting, Wish::PassOn) {
        Err(ConnectError::NobodyListens) => true,
        Err(ConnectError::Unreachable(text)) => !text.contains("relay for TLS is gone"),
        other => panic!("{other:?}"),
    };
    // Longer than it lingers.
    std::thread::sleep(3 * serve::LINGER);
    assert!(is_there());
    drop(stays);
    let gone = (0..1000).any(|_| {
        std::thread::sleep(2 * serve::LINGER);
        !is_there()
    });
    assert!(gone);
}
