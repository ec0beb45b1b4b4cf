//! Feeds anything to what opens records of a connection that a session has left. Shared by the property test
//! (`records.rs`) and the fuzz target (`fuzz/fuzz_targets/tls_records.rs`).

#[path = "sides.rs"]
mod sides;

use sides::SIDES;
use spillway_tls::Session;
use spillway_tls::records::{
    Content, HEAD_BYTES, KEYS_BYTES, Keys, MAX_RECORD_BYTES, Opener, Sealer, TAIL_BYTES,
};

/// A client's connection that its session has left, and the server's session.
pub struct Pair {
    pub keys: Keys,
    pub sealer: Sealer,
    pub opener: Opener,
    pub server: Session,
}

/// One whose handshake is over.
pub fn pair() -> Pair {
    let (client, server) = &*SIDES;
    let (mut client, mut server) = (client.begin("host").unwrap(), server.begin().unwrap());
    let mut plain = Vec::new();
    loop {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        client.pending(&mut up);
        server.open(&up, &mut plain).unwrap();
        server.pending(&mut down);
        client.open(&down, &mut plain).unwrap();
        if up.is_empty() && down.is_empty() {
            break;
        }
    }
    assert!(plain.is_empty());
    let keys = client.into_keys().unwrap();
    let (sealer, opener) = Keys::decode(keys.encode()).unwrap();
    Pair { keys, sealer, opener, server }
}

/// Panics where something is wrong.
pub fn exercise(data: &[u8]) {
    // Anything from the network: nobody but the server can make a record.
    let mut pair = pair();
    let opened = pair.opener.open(&mut data.to_vec());
    assert!(!matches!(opened, Ok(Some(_))), "a record of nobody's");
    // Anything inside a record, as a server might send: what our own sealer does with the opener's keys.
    let mut swapped = *pair.keys.encode();
    let (one, other) = swapped.split_at_mut(KEYS_BYTES / 2);
    one.swap_with_slice(other);
    let (mut theirs, _) = Keys::decode(&swapped).unwrap();
    let (_, mut ours) = Keys::decode(pair.keys.encode()).unwrap();
    let content = &data[..data.len().min(1 << 14)];
    let mut record = vec![0; MAX_RECORD_BYTES];
    record[HEAD_BYTES..HEAD_BYTES + content.len()].copy_from_slice(content);
    let bytes = theirs.seal(&mut record, content.len()).unwrap();
    assert_eq!(bytes, HEAD_BYTES + content.len() + TAIL_BYTES);
    // While it is not all there nothing is done to it.
    assert_eq!(ours.open(&mut record.clone()[..bytes - 1]), Ok(None));
    let opened = ours.open(&mut record[..bytes]).unwrap().unwrap();
    assert_eq!(opened.record_bytes, bytes);
    assert_eq!(opened.content, Content::Data(HEAD_BYTES..HEAD_BYTES + content.len()));
    assert_eq!(&record[HEAD_BYTES..HEAD_BYTES + content.len()], content);
}
