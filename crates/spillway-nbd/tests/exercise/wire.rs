//! What every input must stand: no decoder panics, and what decodes encodes to the same meaning again.
//! Shared by the property tests (`wire.rs`) and the fuzz target (`fuzz/fuzz_targets/nbd_wire.rs`).

use spillway_nbd::handshake as hs;
use spillway_nbd::private::{PrivateQuery, challenge_text, parse_challenge};
use spillway_nbd::proof::Nonce;
use spillway_nbd::run_standing::{parse_runs, runs_text};
use spillway_nbd::standing::Standing;
use spillway_nbd::transmission as tx;

/// Feeds `data` to every decoder.
pub fn exercise(data: &[u8]) {
    handshake(data);
    private(data);
    requests(data);
    replies(data);
}

fn handshake(data: &[u8]) {
    if let Some(greeting) = data.first_chunk()
        && let Ok(flags) = hs::decode_greeting(greeting)
    {
        assert_eq!(hs::decode_greeting(&hs::encode_greeting(flags)), Ok(flags));
    }
    if let Some(flags) = data.first_chunk().and_then(|bytes| hs::decode_client_flags(*bytes)) {
        assert_eq!(hs::decode_client_flags(flags.bits().to_be_bytes()), Some(flags));
    }
    if let Some((header, rest)) = data.split_first_chunk() {
        let header = hs::decode_option_header(header);
        let number = header.map_or(u32::from(data[0]), |header| header.option);
        option(number, rest);
    }
    if let Some((header, rest)) = data.split_first_chunk()
        && let Ok(header) = hs::decode_reply_header(header)
    {
        option_reply(header, rest);
    }
    for kind in [1, 2, 3, 4, 1 << 31 | 6] {
        option_reply(hs::ReplyHeader { option: 7, kind, data_bytes: data.len() as u32 }, data);
    }
    if let Some(bytes) = data.first_chunk() {
        let _ = hs::decode_export_name_reply(bytes);
    }
}

fn option(number: u32, data: &[u8]) {
    for number in [number, 1, 6, 7, 9, 10] {
        let Ok(decoded) = hs::decode_option(number, data) else {
            continue;
        };
        let mut encoded = Vec::new();
        hs::put_option(&mut encoded, &decoded);
        let (header, data) = encoded.split_first_chunk().expect("an option has a header");
        let header = hs::decode_option_header(header).expect("what was encoded decodes");
        assert_eq!(header.data_bytes as usize, data.len());
        assert_eq!(hs::decode_option(header.option, data), Ok(decoded));
    }
}

fn option_reply(header: hs::ReplyHeader, data: &[u8]) {
    let Ok(decoded) = hs::decode_reply(header, data) else {
        return;
    };
    if decoded == hs::OptionReply::Skip {
        return;
    }
    let mut encoded = Vec::new();
    hs::put_reply(&mut encoded, header.option, &decoded);
    let (header, data) = encoded.split_first_chunk().expect("a reply has a header");
    let header = hs::decode_reply_header(header).expect("what was encoded decodes");
    assert_eq!(hs::decode_reply(header, data), Ok(decoded));
}

/// Queries of our own namespace, and the donor's answers: as they are, and behind each beginning of ours.
fn private(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let prefixes = ["", "spillway:", "spillway:run=", "spillway:lane=", "spillway:challenge="];
    let answers =
        ["spillway:standing=", "spillway:standing=1,2,3,4,5,6,0,", "spillway:runs=", "spillway:runs=1,2,3,"];
    for prefix in prefixes.into_iter().chain(answers) {
        let query = format!("{prefix}{text}");
        if let Some(mut runs) = parse_runs(&query) {
            let said = runs_text(runs.clone());
            assert!(said.len() <= spillway_nbd::MAX_NAME_BYTES, "{said}");
            runs.sort_by_key(|run| (std::cmp::Reverse(run.held_bytes), run.number));
            assert_eq!(parse_runs(&said), Some(runs));
        }
        if let Some(standing) = Standing::parse(&query) {
            assert_eq!(Standing::parse(&standing.to_string()), Some(standing));
        }
        if let Some(parsed) = PrivateQuery::parse(&query)
            && parsed != PrivateQuery::Unknown
        {
            assert_eq!(parsed.text(), query);
            if let PrivateQuery::Claim(claim) = parsed {
                // No claim that was made up holds.
                assert!(!claim.holds(Nonce([0; 16]), "e"));
            }
        }
        if let Some(nonce) = parse_challenge(&query) {
            assert_eq!(challenge_text(nonce), query);
        }
    }
}

fn requests(data: &[u8]) {
    if let Ok(Some(request)) = tx::Request::decode(data) {
        assert_eq!(tx::Request::decode(&request.encode()), Ok(Some(request)));
    }
}

fn replies(data: &[u8]) {
    if let Ok(Some(head)) = tx::ReplyHead::decode(data) {
        let mut encoded = Vec::new();
        head.put(&mut encoded);
        assert_eq!(encoded.len(), head.encoded_bytes());
        assert_eq!(tx::ReplyHead::decode(&encoded), Ok(Some(head)));
    }
    let _ = tx::decode_data_offset(data);
    let _ = tx::decode_hole(data);
    if let Ok((error, message)) = tx::decode_error(data) {
        let mut encoded = Vec::new();
        tx::put_error(&mut encoded, error, message);
        // Messages longer than a string may be are cut when they are sent.
        let (error_again, message_again) = tx::decode_error(&encoded).expect("what was encoded decodes");
        assert_eq!(error_again, error);
        assert!(message.starts_with(message_again));
    }
    if let Ok((context, extents)) = tx::decode_extents(data) {
        let mut encoded = Vec::new();
        tx::put_extents(&mut encoded, context, &extents);
        assert_eq!(tx::decode_extents(&encoded), Ok((context, extents)));
    }
}
