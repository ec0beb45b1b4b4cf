//! Feeds anything to what reads a peer's bytes here: names in certificates, and sessions before and after
//! their handshake. Shared by the property test (`hostile.rs`) and the fuzz target
//! (`fuzz/fuzz_targets/tls.rs`).

#[path = "sides.rs"]
mod sides;

use sides::SIDES;
use spillway_tls::{ClientName, Session};

/// Most plain bytes that so many sealed ones can hold.
fn feed(session: &mut Session, bytes: &[u8]) {
    let mut plain = Vec::new();
    let piece = usize::from(bytes.first().copied().unwrap_or(0)) + 1;
    for piece in bytes.chunks(piece) {
        if session.open(piece, &mut plain).is_err() {
            break;
        }
    }
    assert!(plain.len() <= bytes.len(), "more came out than went in");
    session.pending(&mut plain);
}

/// Panics where something is wrong.
pub fn exercise(data: &[u8]) {
    if let Ok(name) = ClientName::of_certificate(data) {
        assert!(ClientName::new(&name.to_string()) == Some(name));
    }
    let (client, server) = &*SIDES;
    let (mut ours, mut theirs) = (client.begin("host").unwrap(), server.begin().unwrap());
    feed(&mut server.begin().unwrap(), data);
    feed(&mut client.begin("host").unwrap(), data);
    // Amid the handshake: behind what a client says first.
    let (mut first, mut plain) = (Vec::new(), Vec::new());
    ours.pending(&mut first);
    theirs.open(&first, &mut plain).unwrap();
    feed(&mut theirs, data);
    feed(&mut ours, data);
}
