//! The NBD codec: what is encoded decodes to the same, garbage is refused, limits hold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "exercise/wire.rs"]
mod exercise;

use proptest::prelude::*;
use spillway_nbd::handshake::{self as hs, ClientOption, InfoQuery, MetaQuery, OptionReply};
use spillway_nbd::transmission::{
    ChunkFlags, Command, ReplyHead, Request, RequestFlags, chunk, decode_extents, decode_hole,
};
use spillway_nbd::{MAX_OPTION_BYTES, MAX_REQUEST_BYTES, WireError};

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        Just(Command::Read),
        Just(Command::Write),
        Just(Command::Disconnect),
        Just(Command::Flush),
        Just(Command::Trim),
        Just(Command::Cache),
        Just(Command::WriteZeroes),
        Just(Command::BlockStatus),
        (8..u16::MAX).prop_map(Command::Unknown),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let fields = (any::<u16>(), any_command(), any::<u64>(), any::<u64>(), any::<u32>());
    fields.prop_map(|(flags, command, cookie, offset, length)| Request {
        flags: RequestFlags::from_bits_retain(flags),
        command,
        cookie,
        offset,
        length,
    })
}

/// Well-formed messages, so that the fuzzing starts beyond the magic numbers.
fn near_messages() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop_oneof![
        Just(Vec::new()),
        Just(hs::encode_greeting(hs::HandshakeFlags::all()).to_vec()),
        Just(b"IHAVEOPT\0\0\0\x07".to_vec()),
        Just(b"IHAVEOPT\0\0\0\x0a".to_vec()),
        Just(vec![0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9, 0, 0, 0, 7, 0, 0, 0, 3]),
        any_request().prop_map(|request| request.encode().to_vec()),
        Just(vec![0x67, 0x44, 0x66, 0x98]),
        Just(vec![0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1]),
    ];
    (prefix, prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(mut prefix, tail)| {
        prefix.extend(tail);
        prefix
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn garbage_never_panics(data in prop::collection::vec(any::<u8>(), 0..600)) {
        exercise::exercise(&data);
    }

    #[test]
    fn almost_messages_never_panic(data in near_messages()) {
        exercise::exercise(&data);
    }

    #[test]
    fn requests_round_trip(request in any_request(), tail in prop::collection::vec(any::<u8>(), 0..10)) {
        let mut bytes = request.encode().to_vec();
        for cut in 0..bytes.len() {
            prop_assert_eq!(Request::decode(&bytes[..cut]), Ok(None));
        }
        bytes.extend(tail);
        prop_assert_eq!(Request::decode(&bytes), Ok(Some(request)));
    }

    #[test]
    fn options_round_trip(name in "[^\0]{0,80}", queries in prop::collection::vec("[^\0]{0,40}", 0..8),
                          kinds in prop::collection::vec(any::<u16>(), 0..8)) {
        let info = InfoQuery { name: &name, kinds };
        let meta = MetaQuery { name: &name, queries: queries.iter().map(String::as_str).collect() };
        let options = [
            ClientOption::ExportName(&name), ClientOption::Abort, ClientOption::List, ClientOption::StartTls,
            ClientOption::Info(info.clone()), ClientOption::Go(info), ClientOption::StructuredReply,
            ClientOption::ListMetaContext(meta.clone()), ClientOption::SetMetaContext(meta),
        ];
        for option in options {
            let mut bytes = Vec::new();
            hs::put_option(&mut bytes, &option);
            let (header, data) = bytes.split_first_chunk().unwrap();
            let header = hs::decode_option_header(header).unwrap();
            prop_assert_eq!(header.data_bytes as usize, data.len());
            prop_assert_eq!(hs::decode_option(header.option, data), Ok(option));
        }
    }

    #[test]
    fn option_replies_round_trip(name in "[^\0]{0,80}", size_bytes in any::<u64>(), id in any::<u32>(),
                                 flags in any::<u16>(), blocks in any::<[u32; 3]>()) {
        let replies = [
            OptionReply::Ack,
            OptionReply::Server(&name),
            OptionReply::Export { size_bytes, flags: hs::ExportFlags::from_bits_truncate(flags) },
            OptionReply::Name(&name),
            OptionReply::Description(&name),
            OptionReply::Blocks(hs::BlockSizes {
                minimum_bytes: blocks[0], preferred_bytes: blocks[1], maximum_bytes: blocks[2],
            }),
            OptionReply::MetaContext { id, name: &name },
            OptionReply::Error { kind: hs::reply::ERR_UNKNOWN, message: &name },
        ];
        for reply in replies {
            let mut bytes = Vec::new();
            hs::put_reply(&mut bytes, hs::option::GO, &reply);
            let (header, data) = bytes.split_first_chunk().unwrap();
            let header = hs::decode_reply_header(header).unwrap();
            prop_assert_eq!(hs::decode_reply(header, data), Ok(reply));
        }
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused() {
    for (kind, payload_bytes) in [
        (chunk::OFFSET_DATA, MAX_REQUEST_BYTES + 9),
        (chunk::NONE, 1),
        (chunk::ERROR, 1 << 20),
        (77, u32::MAX),
    ] {
        let mut bytes = Vec::new();
        ReplyHead::Chunk { flags: ChunkFlags::DONE, kind, cookie: 1, payload_bytes }.put(&mut bytes);
        assert!(matches!(ReplyHead::decode(&bytes), Err(WireError::Limit { .. })), "chunk kind {kind}");
    }

    let long = "n".repeat(4097);
    assert!(matches!(
        hs::decode_option(hs::option::EXPORT_NAME, long.as_bytes()),
        Err(WireError::Limit { .. })
    ));
    let huge = vec![0; MAX_OPTION_BYTES as usize + 1];
    assert!(matches!(hs::decode_option(hs::option::ABORT, &huge), Err(WireError::Limit { .. })));
}

#[test]
fn malformed_messages_are_refused() {
    // A name that says it is longer than the option.
    assert!(matches!(
        hs::decode_option(hs::option::GO, &[0, 0, 0, 9, b'x', 0, 0]),
        Err(WireError::Length { .. })
    ));
    // Bytes after the end.
    assert!(matches!(
        hs::decode_option(hs::option::GO, &[0, 0, 0, 0, 0, 0, 7]),
        Err(WireError::Length { .. })
    ));
    assert!(matches!(hs::decode_option(hs::option::LIST, b"x"), Err(WireError::Length { .. })));
    assert!(matches!(hs::decode_option(hs::option::EXPORT_NAME, &[0xff]), Err(WireError::Text { .. })));
    assert!(matches!(hs::decode_option(hs::option::EXPORT_NAME, b"a\0b"), Err(WireError::Text { .. })));
    assert!(matches!(Request::decode(b"GET / HTTP/1.1\r\n"), Err(WireError::Magic { .. })));
    assert!(matches!(ReplyHead::decode(b"HTTP/1.1"), Err(WireError::Magic { .. })));
    assert_eq!(hs::decode_client_flags([0, 0, 0, 4]), None);
    assert!(decode_hole(&[0; 11]).is_err() && decode_hole(&[0; 13]).is_err());
    assert!(decode_extents(&[0; 9]).is_err());
}
