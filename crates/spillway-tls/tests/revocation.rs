//! Lists of revoked certificates: who is kept out by one, on either side; lists that change while sessions
//! are begun; and what is said of one that is of no use.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;

use rcgen::{
    CertificateParams, CertificateRevocationListParams, DnType, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevocationReason, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use spillway_tls::files::{CA_CERTIFICATE, CA_KEY, CA_REVOCATIONS, CLIENT_CERTIFICATE, SERVER_CERTIFICATE};
use spillway_tls::making::{Wish, make};
use spillway_tls::taking_back::take_back;
use spillway_tls::{ClientSide, ServerSide, Session, TlsError};
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

fn certificates() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let hosts = vec!["donor.lab".to_owned()];
    let wish = Wish { hosts, client: "ada".to_owned(), from_days: 0, until_days: 2 };
    make(directory.path(), &wish).unwrap();
    directory
}

fn der(file: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).unwrap()
}

/// The list of a directory's authority: which of its certificates are revoked, and from when to when, in
/// seconds from now, it holds.
fn list(directory: &Path, revoked: &[&str], (from, until): (i64, i64)) -> String {
    let authority = der(&directory.join(CA_CERTIFICATE));
    let (_, authority) = X509Certificate::from_der(&authority).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = authority.subject().iter_common_name().next().unwrap().as_str().unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::CrlSign];
    let key = KeyPair::from_pem(&fs::read_to_string(directory.join(CA_KEY)).unwrap()).unwrap();
    let now = OffsetDateTime::now_utc();
    let revoked_certs = revoked.iter().map(|name| {
        let certificate = der(&directory.join(name));
        let (_, certificate) = X509Certificate::from_der(&certificate).unwrap();
        RevokedCertParams {
            serial_number: SerialNumber::from_slice(certificate.raw_serial()),
            revocation_time: now - Duration::hours(1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        }
    });
    let list = CertificateRevocationListParams {
        this_update: now + Duration::seconds(from),
        next_update: now + Duration::seconds(until),
        crl_number: SerialNumber::from(7),
        issuing_distribution_point: None,
        revoked_certs: revoked_certs.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(&Issuer::new(params, key)).unwrap().pem().unwrap()
}

const HOUR: i64 = 3600;
/// From an hour ago, for one more.
const NOW: (i64, i64) = (-HOUR, HOUR);

/// Puts a list there, as whoever replaces a file in use should.
fn put(directory: &Path, text: &str) {
    let new = directory.join("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, directory.join(CA_REVOCATIONS)).unwrap();
}

/// Has both shake hands: what each has against it.
fn shake_hands(client: &mut Session, server: &mut Session) -> [Result<(), TlsError>; 2] {
    let mut outcomes = [Ok(()), Ok(())];
    loop {
        let (mut up, mut down, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        client.pending(&mut up);
        outcomes[1] = std::mem::replace(&mut outcomes[1], Ok(())).and(server.open(&up, &mut plain));
        server.pending(&mut down);
        outcomes[0] = std::mem::replace(&mut outcomes[0], Ok(())).and(client.open(&down, &mut plain));
        if (up.is_empty() && down.is_empty()) || outcomes.iter().all(Result::is_err) {
            return outcomes;
        }
    }
}

/// What client and server say, whose files are in these directories.
fn said(client: &ClientSide, server: &ServerSide) -> [String; 2] {
    let (mut client, mut server) = (client.begin("donor.lab").unwrap(), server.begin().unwrap());
    let text =
        |outcome: Result<(), TlsError>| outcome.map_or_else(|error| error.to_string(), |()| String::new());
    shake_hands(&mut client, &mut server).map(text)
}

fn sides(client: &Path, server: &Path) -> (ClientSide, ServerSide) {
    (ClientSide::load(client).unwrap(), ServerSide::load(server).unwrap())
}

/// The same certificates in another directory.
fn copy(of: &Path) -> tempfile::TempDir {
    let other = tempfile::tempdir().unwrap();
    for file in fs::read_dir(of).unwrap().flatten() {
        fs::copy(file.path(), other.path().join(file.file_name())).unwrap();
    }
    other
}

#[test]
fn who_is_on_the_list_is_kept_out_by_either_side_and_nobody_else() {
    let ours = certificates();
    let theirs = copy(ours.path());
    put(ours.path(), &list(ours.path(), &[], NOW));
    let (client, server) = sides(ours.path(), ours.path());
    assert_eq!(said(&client, &server), ["", ""], "an empty list keeps nobody out");

    put(theirs.path(), &list(ours.path(), &[CLIENT_CERTIFICATE], NOW));
    let (client, server) = sides(ours.path(), theirs.path());
    let [told, first] = said(&client, &server);
    assert!(first.contains("the client's certificate was revoked, says ca-crl.pem"), "{first}");
    assert!(told.contains("does not take this client's certificate (it was revoked)"), "{told}");

    put(theirs.path(), &list(ours.path(), &[SERVER_CERTIFICATE], NOW));
    let (client, server) = sides(theirs.path(), ours.path());
    let [first, told] = said(&client, &server);
    assert!(first.contains("the server's certificate was revoked, says ca-crl.pem"), "{first}");
    assert!(told.contains("does not take this server's certificate (it was revoked)"), "{told}");
}

#[test]
fn a_list_that_changes_counts_from_the_next_session_on() {
    let ours = certificates();
    let theirs = copy(ours.path());
    let (client, server) = sides(ours.path(), theirs.path());
    assert_eq!(said(&client, &server), ["", ""]);
    put(theirs.path(), &list(ours.path(), &[CLIENT_CERTIFICATE], NOW));
    assert!(said(&client, &server)[1].contains("was revoked"));
    put(theirs.path(), &list(ours.path(), &[], NOW));
    assert_eq!(said(&client, &server), ["", ""]);
    // Whoever has it can no longer say who is revoked: nobody comes in.
    put(theirs.path(), "nothing");
    let text = server.begin().unwrap_err().to_string();
    assert!(text.contains("ca-crl.pem: it holds no list of revoked certificates"), "{text}");
    fs::remove_file(theirs.path().join(CA_REVOCATIONS)).unwrap();
    let text = server.begin().unwrap_err().to_string();
    assert!(text.contains("ca-crl.pem: it was there before, and is gone"), "{text}");
    put(theirs.path(), &list(ours.path(), &[], NOW));
    assert_eq!(said(&client, &server), ["", ""]);
}

#[test]
fn a_list_that_expires_while_it_is_used_lets_nobody_in() {
    let directory = certificates();
    let mut lasts = 2;
    // On a machine that stands still for so long it has ended before it is used: then one that lasts longer.
    let (client, server) = loop {
        put(directory.path(), &list(directory.path(), &[], (-HOUR, lasts)));
        let sides = ClientSide::load(directory.path()).and_then(|client| {
            let server = ServerSide::load(directory.path())?;
            Ok((client, server))
        });
        match sides {
            Ok((client, server)) if said(&client, &server) == ["", ""] => break (client, server),
            _ => lasts *= 2,
        }
    };
    let until = OffsetDateTime::now_utc() + Duration::seconds(lasts + 1);
    while OffsetDateTime::now_utc() < until {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let first = said(&client, &server).concat();
    assert!(first.contains("the list in ca-crl.pem has expired"), "{first}");
}

#[test]
fn a_list_that_is_of_no_use_is_named_with_reason_and_remedy() {
    let (ours, others) = (certificates(), certificates());
    let refused = |text: &str| {
        put(ours.path(), text);
        let texts = [
            ServerSide::load(ours.path()).unwrap_err().to_string(),
            ClientSide::load(ours.path()).unwrap_err().to_string(),
        ];
        assert_eq!(texts[0], texts[1]);
        assert!(texts[0].contains("ca-crl.pem: ") && texts[0].contains("make a new one"), "{}", texts[0]);
        assert_eq!(texts[0].lines().count(), 1);
        texts[0].clone()
    };
    for (text, reason) in [
        (list(ours.path(), &[], (-9 * HOUR, -HOUR)), "the list of revoked certificates expired on"),
        (list(ours.path(), &[], (HOUR, 9 * HOUR)), "is not valid before"),
        (
            list(others.path(), &[], NOW),
            "it has no list of the authority in ca-cert.pem, CN=Spillway authority",
        ),
        (String::new(), "it holds no list of revoked certificates"),
        (fs::read_to_string(ours.path().join(CA_CERTIFICATE)).unwrap(), "it holds no list of revoked"),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n".to_owned(), "cannot be read"),
    ] {
        let line = refused(&text);
        assert!(line.contains(reason), "{reason}: {line}");
    }
    // Of the right name, by another key.
    let forged = copy(ours.path());
    fs::copy(others.path().join(CA_KEY), forged.path().join(CA_KEY)).unwrap();
    let line = refused(&list(forged.path(), &[], NOW));
    assert!(line.contains("its list was not signed by CN=Spillway authority"), "{line}");
    // Its own list beside another's does.
    put(ours.path(), &(list(others.path(), &[], NOW) + &list(ours.path(), &[CLIENT_CERTIFICATE], NOW)));
    let (client, server) = sides(ours.path(), ours.path());
    assert!(said(&client, &server)[1].contains("was revoked"));
}

/// A further client's certificate of the same authority, in a directory of its own, with its own file.
fn another_client(ours: &Path, name: &str) -> tempfile::TempDir {
    let theirs = copy(ours);
    let key = KeyPair::from_pem(&fs::read_to_string(ours.join(CA_KEY)).unwrap()).unwrap();
    let authority = Issuer::from_ca_cert_der(&der(&ours.join(CA_CERTIFICATE)), key).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = OffsetDateTime::now_utc() - Duration::hours(1);
    params.not_after = OffsetDateTime::now_utc() + Duration::days(1);
    let own = KeyPair::generate().unwrap();
    let made = params.signed_by(&own, &authority).unwrap();
    fs::write(theirs.path().join(CLIENT_CERTIFICATE), made.pem()).unwrap();
    fs::write(theirs.path().join("client-key.pem"), own.serialize_pem()).unwrap();
    theirs
}

fn named(name: &str) -> Vec<String> {
    vec![name.to_owned()]
}

#[test]
fn who_is_taken_back_by_name_or_file_is_kept_out_and_others_are_not() {
    let ours = certificates();
    let (bob, eve) = (another_client(ours.path(), "bob"), another_client(ours.path(), "eve"));
    let server = ServerSide::load(ours.path()).unwrap();
    let [ada, bob_side, eve_side] = [ours.path(), bob.path(), eve.path()].map(|directory| {
        assert!(!directory.join(CA_REVOCATIONS).exists());
        ClientSide::load(directory).unwrap()
    });
    let listed = take_back(ours.path(), &named("ada"), 30).unwrap();
    assert_eq!((listed.count, listed.number, &listed.file), (1, 1, &ours.path().join(CA_REVOCATIONS)));
    assert!(said(&ada, &server)[1].contains("the client's certificate was revoked"));
    assert_eq!([said(&bob_side, &server), said(&eve_side, &server)], [["", ""], ["", ""]]);
    // Another beside it, by its file; and who is on it stays there, once.
    let file = eve.path().join(CLIENT_CERTIFICATE).display().to_string();
    let listed = take_back(ours.path(), &[file, "ada".to_owned()], 30).unwrap();
    assert_eq!((listed.count, listed.number), (2, 2));
    assert!(
        said(&ada, &server)[1].contains("was revoked") && said(&eve_side, &server)[1].contains("was revoked")
    );
    assert_eq!(said(&bob_side, &server), ["", ""]);
    // The server's own, by the name that it is for.
    assert_eq!(take_back(ours.path(), &named("donor.lab"), 30).unwrap().count, 3);
    let wary = ClientSide::load(ours.path()).unwrap();
    assert!(said(&wary, &server)[0].contains("the server's certificate was revoked"));
}

#[test]
fn a_list_that_has_expired_is_renewed_with_all_that_was_on_it() {
    let (ours, others) = (certificates(), certificates());
    let bob = another_client(ours.path(), "bob");
    let expired = list(ours.path(), &[CLIENT_CERTIFICATE], (-9 * HOUR, -HOUR));
    let of_another = list(others.path(), &[], NOW);
    put(ours.path(), &(of_another.clone() + &expired));
    assert!(ServerSide::load(ours.path()).unwrap_err().to_string().contains("expired on"));
    let listed = take_back(ours.path(), &[], 30).unwrap();
    assert_eq!((listed.count, listed.number), (1, 8), "the one before was number 7");
    let server = ServerSide::load(ours.path()).unwrap();
    let [ada, bob] = [ours.path(), bob.path()].map(|directory| ClientSide::load(directory).unwrap());
    assert!(said(&ada, &server)[1].contains("was revoked"));
    assert_eq!(said(&bob, &server), ["", ""]);
    // The other authority's list is there still, as it was, and why and since when somebody is on ours.
    let text = fs::read_to_string(ours.path().join(CA_REVOCATIONS)).unwrap();
    assert_eq!(text.matches("BEGIN X509 CRL").count(), 2);
    assert!(text.starts_with(of_another.trim_end()), "{text}");
    let ours_list = text.rsplit_once("-----BEGIN").unwrap().1;
    let der =
        CertificateRevocationListDer::from_pem_slice(format!("-----BEGIN{ours_list}").as_bytes()).unwrap();
    let (_, parsed) = CertificateRevocationList::from_der(&der).unwrap();
    let revoked = parsed.iter_revoked_certificates().next().unwrap();
    assert_eq!(revoked.reason_code().unwrap().1.0, 1);
    assert!(revoked.revocation_date.to_datetime() < OffsetDateTime::now_utc() - Duration::minutes(30));
}

#[test]
fn who_cannot_be_taken_back_is_named_with_the_reason() {
    let (ours, others) = (certificates(), certificates());
    let stranger = others.path().join(CLIENT_CERTIFICATE).display().to_string();
    let own = ours.path().join(CA_CERTIFICATE).display().to_string();
    let key = ours.path().join(CA_KEY).display().to_string();
    let refused = |which: &str| take_back(ours.path(), &named(which), 30).unwrap_err().to_string();
    assert!(refused("bob").contains("no certificate of the CA's in it is for 'bob': name"));
    assert!(refused(&stranger).contains("its certificate was not made by CN=Spillway authority"));
    assert!(refused(&own).contains("was not made by"), "the CA's own");
    assert!(refused(&key).contains("it holds no certificate"));
    // Of two for one name it is not known which.
    let second = another_client(ours.path(), "ada");
    fs::copy(second.path().join(CLIENT_CERTIFICATE), ours.path().join("second.pem")).unwrap();
    assert!(refused("ada").contains("2 certificates in it are for 'ada'"));
    assert!(!ours.path().join(CA_REVOCATIONS).exists());
    // A list that somebody else has made is not gone on with.
    let forged = copy(ours.path());
    fs::copy(others.path().join(CA_KEY), forged.path().join(CA_KEY)).unwrap();
    put(ours.path(), &list(forged.path(), &[], NOW));
    assert!(refused("donor.lab").contains("was not signed by CN=Spillway authority"));
    let text = take_back(forged.path(), &[], 30).unwrap_err().to_string();
    assert!(text.contains("ca-key.pem is not its key"), "{text}");
    fs::remove_file(ours.path().join(CA_KEY)).unwrap();
    assert!(refused("donor.lab").contains("only who has the CA's key"));
}
