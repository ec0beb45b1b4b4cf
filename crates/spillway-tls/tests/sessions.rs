//! Certificates that were made, loaded and shown, and what is said of those that are wrong.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;

use spillway_tls::making::{Wish, make};
use spillway_tls::{ClientSide, ServerSide, Session, TlsError};

fn wish(from_days: i64, until_days: i64) -> Wish {
    Wish {
        hosts: vec!["127.0.0.1".to_owned(), "donor.lab".to_owned()],
        client: "ada".to_owned(),
        from_days,
        until_days,
    }
}

fn certificates() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), &wish(0, 2)).unwrap();
    directory
}

/// Has both talk until neither has anything to say; what each got.
fn talk(client: &mut Session, server: &mut Session) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    loop {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        client.pending(&mut up);
        server.open(&up, &mut to_server)?;
        server.pending(&mut down);
        client.open(&down, &mut to_client)?;
        if up.is_empty() && down.is_empty() {
            return Ok((to_client, to_server));
        }
    }
}

fn begin(client: &Path, server: &Path, host: &str) -> (Session, Session) {
    (
        ClientSide::load(client).unwrap().begin(host).unwrap(),
        ServerSide::load(server).unwrap().begin().unwrap(),
    )
}

#[test]
fn both_sides_know_each_other_and_bytes_arrive() {
    let directory = certificates();
    for host in ["127.0.0.1", "donor.lab"] {
        let (mut client, mut server) = begin(directory.path(), directory.path(), host);
        talk(&mut client, &mut server).unwrap();
        assert!(!client.is_handshaking() && !server.is_handshaking());
        assert_eq!(server.client_name().unwrap().to_string(), "ada");
        let bytes: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        let (mut sealed, mut plain) = (Vec::new(), Vec::new());
        client.seal(&bytes, &mut sealed).unwrap();
        // In pieces of any size.
        sealed.chunks(1_777).for_each(|piece| server.open(piece, &mut plain).unwrap());
        assert_eq!(plain, bytes);
        assert!(!sealed.windows(64).any(|window| window == &bytes[..64]));
        server.end(&mut sealed);
        assert!(!server.has_ended());
        sealed.clear();
        client.end(&mut sealed);
        server.open(&sealed, &mut plain).unwrap();
        assert!(server.has_ended());
    }
}

#[test]
fn a_server_is_known_by_its_key_once_it_has_shown_that_it_has_it() {
    let (directory, other) = (certificates(), certificates());
    let (mut client, mut server) = begin(directory.path(), directory.path(), "donor.lab");
    assert!(client.other_key().is_err(), "nobody has said anything");
    talk(&mut client, &mut server).unwrap();
    let [own, others] = [&directory, &other].map(|one| ServerSide::load(one.path()).unwrap().key());
    assert_eq!(client.other_key().unwrap(), own);
    assert!(own != others && own != server.other_key().unwrap(), "each has a key of its own");
}

#[test]
fn a_bit_that_changed_ends_the_session() {
    let directory = certificates();
    let (mut client, mut server) = begin(directory.path(), directory.path(), "donor.lab");
    talk(&mut client, &mut server).unwrap();
    let (mut sealed, mut plain) = (Vec::new(), Vec::new());
    client.seal(&[7; 5000], &mut sealed).unwrap();
    sealed[2000] ^= 1;
    let error = server.open(&sealed, &mut plain).unwrap_err();
    assert!(matches!(error, TlsError::Broken(_)) && plain.is_empty(), "{error}");
}

#[test]
fn garbage_is_told_and_takes_no_memory() {
    let directory = certificates();
    let side = ServerSide::load(directory.path()).unwrap();
    for garbage in
        [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0xff; 100_000], &[0x16; 100_000], b"\x16\x03\x01\xff\xff"]
    {
        let (mut server, mut plain) = (side.begin().unwrap(), Vec::new());
        let outcome = garbage.chunks(4096).try_for_each(|piece| server.open(piece, &mut plain));
        // An announcement alone is no error yet.
        assert!(garbage.len() < 6 || outcome.is_err(), "{outcome:?}");
        assert!(plain.is_empty() && server.is_handshaking());
    }
}

fn refused(client: &Path, server: &Path, host: &str) -> (String, String) {
    let (mut ours, mut theirs) = begin(client, server, host);
    let first = talk(&mut ours, &mut theirs).unwrap_err().to_string();
    // The other side hears of it by an alert.
    let (mut up, mut down, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    ours.pending(&mut up);
    theirs.pending(&mut down);
    let told = theirs.open(&up, &mut plain).and_then(|()| ours.open(&down, &mut plain));
    (first, told.map_or_else(|error| error.to_string(), |()| String::new()))
}

#[test]
fn certificates_of_another_authority_are_refused_by_either_side() {
    let (one, other) = (certificates(), certificates());
    let (first, told) = refused(one.path(), other.path(), "donor.lab");
    assert!(first.contains("the server's certificate is of another CA"), "{first}");
    assert!(told.contains("it is of another CA"), "{told}");
    // The client believes the server, which does not believe the client.
    fs::copy(other.path().join("ca-cert.pem"), one.path().join("ca-cert.pem")).unwrap();
    let (first, told) = refused(one.path(), other.path(), "donor.lab");
    assert!(first.contains("the client's certificate is of another CA"), "{first}");
    assert!(told.contains("the server does not take this client's certificate"), "{told}");
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let directory = certificates();
    for host in ["other.lab", "10.0.0.2"] {
        let (first, _) = refused(directory.path(), directory.path(), host);
        assert!(first.contains(&format!("is not for {host} but for")), "{first}");
        assert!(first.contains("donor.lab") && first.contains("tls-hostname"), "{first}");
    }
    let side = ClientSide::load(directory.path()).unwrap();
    for host in ["", "a b", "-", &"x".repeat(300)] {
        assert!(matches!(side.begin(host), Err(TlsError::Name(_))), "{host}");
    }
}

#[test]
fn files_that_are_wrong_are_named_with_reason_and_remedy() {
    let said = |change: &dyn Fn(&Path)| {
        let directory = certificates();
        change(directory.path());
        ClientSide::load(directory.path()).unwrap_err().to_string()
    };
    let text = said(&|path| fs::remove_file(path.join("client-key.pem")).unwrap());
    assert!(
        text.contains("client-key.pem: No such file") && text.contains("certificates' makes them"),
        "{text}"
    );
    let text = said(&|path| fs::write(path.join("ca-cert.pem"), "nothing").unwrap());
    assert!(text.contains("ca-cert.pem: it holds no certificate"), "{text}");
    let text =
        said(&|path| fs::copy(path.join("server-key.pem"), path.join("client-key.pem")).map(drop).unwrap());
    assert!(text.contains("client-cert.pem: the key in client-key.pem is not this"), "{text}");
    let text =
        said(&|path| fs::copy(path.join("client-key.pem"), path.join("client-cert.pem")).map(drop).unwrap());
    assert!(text.contains("client-cert.pem: it holds no certificate"), "{text}");

    let nowhere = ServerSide::load(Path::new("/nonexistent")).unwrap_err().to_string();
    assert!(nowhere.contains("ca-cert.pem, server-cert.pem and server-key.pem"), "{nowhere}");
    for (days, reason) in [((-9, -2), "the certificate expired on"), ((2, 9), "is not valid before")] {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &wish(days.0, days.1)).unwrap();
        let text = ServerSide::load(directory.path()).unwrap_err().to_string();
        assert!(text.contains("server-cert.pem") && text.contains(reason), "{text}");
    }
}

#[test]
fn nothing_is_written_over_and_keys_are_for_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let directory = certificates();
    for name in ["ca-key.pem", "server-key.pem", "client-key.pem"] {
        let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let text = make(directory.path(), &wish(0, 2)).unwrap_err().to_string();
    assert!(text.contains("it is there already"), "{text}");
    let empty = tempfile::tempdir().unwrap();
    let odd = Wish { hosts: vec!["a b".to_owned()], ..wish(0, 2) };
    assert!(matches!(make(empty.path(), &odd), Err(TlsError::Name(_))));
}
