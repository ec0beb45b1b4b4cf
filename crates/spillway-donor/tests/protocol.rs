//! The donor's half of the NBD protocol, byte by byte: what it answers to each option and request, and to
//! clients that are wrong.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::Write;
use std::time::Duration;

use spillway_nbd::errno;
use spillway_nbd::handshake::{ClientOption, InfoQuery, MetaQuery, info};
use spillway_nbd::transmission::{
    Command, ExtentFlags, ReplyHead, Request, RequestFlags, chunk, decode_error, decode_extents,
};

use common::Running;
use common::raw::{Raw, error_of, export_flags};

const MIB: u64 = 1 << 20;
const PAGE: usize = 4096;

#[test]
fn options_are_answered_as_the_protocol_says() {
    let donor = Running::start(MIB);
    let mut client = Raw::greeted(donor.tcp);
    assert_eq!(client.option(&ClientOption::List), ["Ack"]);
    assert!(error_of(&client.option(&ClientOption::StartTls), 1 << 31 | 1));
    assert!(error_of(&client.option(&ClientOption::Unknown(4711)), 1 << 31 | 1));
    let meta = |queries| ClientOption::SetMetaContext(MetaQuery { name: "a", queries });
    assert!(
        error_of(&client.option(&meta(vec!["base:allocation"])), 1 << 31 | 3),
        "structured replies come first"
    );
    assert_eq!(client.option(&ClientOption::StructuredReply), ["Ack"]);
    let context = |id| format!("MetaContext {{ id: {id}, name: \"base:allocation\" }}");
    let list = |queries| ClientOption::ListMetaContext(MetaQuery { name: "a", queries });
    assert_eq!(client.option(&list(vec![])), [context(0), "Ack".into()]);
    assert_eq!(client.option(&list(vec!["base:"])), [context(0), "Ack".into()]);
    assert_eq!(client.option(&list(vec!["qemu:"])), ["Ack"]);
    assert_eq!(client.option(&meta(vec!["qemu:x", "base:allocation"])), [context(1), "Ack".into()]);

    let query = InfoQuery { name: "a", kinds: vec![info::BLOCK_SIZE, info::NAME] };
    let description = client.option(&ClientOption::Info(query.clone()));
    let flags = export_flags();
    assert_eq!(
        description,
        [
            format!("Export {{ size_bytes: {MIB}, flags: {flags:?} }}"),
            "Name(\"a\")".into(),
            "Blocks(BlockSizes { minimum_bytes: 1, preferred_bytes: 4096, maximum_bytes: 33554432 })".into(),
            "Ack".into()
        ]
    );
    assert_eq!(client.option(&ClientOption::List), ["Ack"], "asking does not make an export");
    assert_eq!(client.option(&ClientOption::Go(query)), description);
    let mut other = Raw::greeted(donor.tcp);
    assert_eq!(other.option(&ClientOption::List), ["Server(\"a\")", "Ack"]);
    assert_eq!(other.option(&ClientOption::Abort), ["Ack"]);
    assert!(other.is_hung_up_on());
}

#[test]
fn malformed_options_are_refused_and_the_handshake_goes_on() {
    let donor = Running::start(MIB);
    let mut client = Raw::greeted(donor.tcp);
    // GO with a name longer than its data.
    client.say(b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\x63\0\0");
    assert!(error_of(&client.replies(), 1 << 31 | 3));
    // An option of 64 KiB and a byte: too big, and the end.
    client.say(b"IHAVEOPT\0\0\0\x63\0\x01\0\x01");
    assert!(error_of(&client.replies(), 1 << 31 | 9));
    assert!(client.is_hung_up_on());
}

#[test]
fn the_old_way_of_choosing_an_export_works() {
    let donor = Running::start(MIB);
    for (client_flags, zeroes) in [(1u32, 124), (3, 0)] {
        let mut client = Raw::connect(donor.tcp);
        client.array::<18>();
        client.say(&client_flags.to_be_bytes());
        client.say(b"IHAVEOPT\0\0\0\x01\0\0\0\x03old");
        assert_eq!(client.array(), MIB.to_be_bytes());
        assert_eq!(client.array(), export_flags().bits().to_be_bytes());
        assert_eq!(client.bytes(zeroes), vec![0; zeroes]);
        assert_eq!(client.write(5, b"data"), 0);
        assert_eq!(client.read(4, 6), Ok(b"\0data\0".to_vec()));
    }
}

#[test]
fn simple_replies_read_write_trim_and_zero() {
    let donor = Running::start(MIB);
    let mut client = Raw::opened(donor.tcp, "e", false);
    assert_eq!(client.write(PAGE as u64 - 2, b"across"), 0);
    assert_eq!(client.read(PAGE as u64 - 3, 8), Ok(b"\0across\0".to_vec()));
    // TRIM forgets whole pages only; WRITE_ZEROES zeroes everything.
    client.request(Command::Trim, 1, 2 * PAGE as u32 - 2, &[]);
    assert_eq!(client.simple(), 0);
    assert_eq!(client.read(PAGE as u64 - 2, 6), Ok(b"across".to_vec()));
    client.request(Command::WriteZeroes, PAGE as u64 - 1, 2, &[]);
    assert_eq!(client.simple(), 0);
    assert_eq!(client.read(PAGE as u64 - 2, 6), Ok(b"a\0\0oss".to_vec()));
    client.request(Command::Trim, 0, MIB as u32, &[]);
    assert_eq!(client.simple(), 0);
    assert_eq!(client.read(0, MIB as u32), Ok(vec![0; MIB as usize]));
    for command in [Command::Flush, Command::Cache] {
        client.request(command, 0, 0, &[]);
        assert_eq!(client.simple(), 0);
    }
    assert_eq!((client.write(7, b""), client.read(7, 0)), (0, Ok(vec![])));
    client.request_with(RequestFlags::FUA, Command::Write, 0, 1, b"f");
    assert_eq!(client.simple(), 0);
}

#[test]
fn wrong_requests_get_errors_and_the_connection_goes_on() {
    let donor = Running::start(MIB);
    let mut client = Raw::opened(donor.tcp, "e", false);
    assert_eq!(client.write(0, b"kept"), 0);
    assert_eq!(client.read(MIB - 1, 2), Err(errno::EINVAL));
    assert_eq!(client.read(u64::MAX, 2), Err(errno::EINVAL));
    assert_eq!(client.write(MIB - 1, b"xx"), errno::ENOSPC);
    let requests = [
        (Command::Trim, RequestFlags::empty(), MIB, 1, errno::EINVAL),
        (Command::WriteZeroes, RequestFlags::empty(), MIB, 1, errno::ENOSPC),
        (Command::Unknown(99), RequestFlags::empty(), 0, 4, errno::EINVAL),
        (Command::Read, RequestFlags::REQ_ONE, 0, 4, errno::EINVAL),
        (Command::Trim, RequestFlags::from_bits_retain(1 << 9), 0, 4096, errno::EINVAL),
        // Not agreed on in the handshake.
        (Command::BlockStatus, RequestFlags::empty(), 0, 4096, errno::EINVAL),
    ];
    for (command, flags, offset, length, error) in requests {
        client.request_with(flags, command, offset, length, &[]);
        assert_eq!(client.simple(), error, "{command:?}");
    }
    assert_eq!(client.read(0, 4), Ok(b"kept".to_vec()));
    client.request(Command::Disconnect, 0, 0, &[]);
    assert!(client.is_hung_up_on());
}

#[test]
fn structured_replies_tell_data_from_holes() {
    let donor = Running::start(MIB);
    let mut client = Raw::opened(donor.tcp, "e", true);
    let page = [7; PAGE];
    assert_eq!(client.write(4 * PAGE as u64, &page), 0);
    let cookie = client.request(Command::Read, 2 * PAGE as u64, 4 * PAGE as u32, &[]);
    let mut chunks = Vec::new();
    loop {
        let ReplyHead::Chunk { flags, kind, cookie: of, payload_bytes } = client.head() else {
            panic!("simple")
        };
        assert_eq!(of, cookie);
        chunks.push((kind, client.bytes(payload_bytes as usize)));
        if flags.bits() & 1 != 0 {
            break;
        }
    }
    let hole = |pages: u64| [&(pages * PAGE as u64).to_be_bytes()[..], &(PAGE as u32).to_be_bytes()].concat();
    let mut two_pages = hole(2);
    two_pages[8..].copy_from_slice(&(2 * PAGE as u32).to_be_bytes());
    let data = [&(4 * PAGE as u64).to_be_bytes()[..], &page].concat();
    assert_eq!(
        chunks,
        [(chunk::OFFSET_HOLE, two_pages), (chunk::OFFSET_DATA, data), (chunk::OFFSET_HOLE, hole(5))]
    );

    // One chunk where the client wants one.
    client.request_with(RequestFlags::DF, Command::Read, 2 * PAGE as u64, 4 * PAGE as u32, &[]);
    let ReplyHead::Chunk { kind, payload_bytes, .. } = client.head() else { panic!("simple") };
    assert_eq!((kind, payload_bytes as usize), (chunk::OFFSET_DATA, 8 + 4 * PAGE));
    assert_eq!(client.bytes(payload_bytes as usize)[8 + 2 * PAGE..8 + 3 * PAGE], page);

    // Errors are chunks too.
    client.request(Command::Read, MIB, 1, &[]);
    let ReplyHead::Chunk { kind, payload_bytes, .. } = client.head() else { panic!("simple") };
    assert_eq!(kind, chunk::ERROR);
    assert_eq!(decode_error(&client.bytes(payload_bytes as usize)).unwrap().0, errno::EINVAL);

    for (flags, extents) in [(RequestFlags::empty(), 3), (RequestFlags::REQ_ONE, 1)] {
        client.request_with(flags, Command::BlockStatus, 0, MIB as u32, &[]);
        let ReplyHead::Chunk { kind, payload_bytes, .. } = client.head() else { panic!("simple") };
        assert_eq!(kind, chunk::BLOCK_STATUS);
        let payload = client.bytes(payload_bytes as usize);
        let (context, found) = decode_extents(&payload).unwrap();
        assert_eq!((context, found.len()), (1, extents));
        assert_eq!(found[0].length as usize, 4 * PAGE);
        assert_eq!(found[0].flags, ExtentFlags::HOLE | ExtentFlags::ZERO);
        if let Some(data) = found.get(1) {
            assert_eq!((data.length as usize, data.flags), (PAGE, ExtentFlags::empty()));
        }
    }
}

#[test]
fn many_requests_at_once_are_all_answered_in_pieces_of_any_size() {
    let donor = Running::start(4 * MIB);
    let mut client = Raw::opened(donor.tcp, "e", false);
    let mut bytes = Vec::new();
    for at in 0..200u64 {
        let request = Request {
            flags: RequestFlags::empty(),
            command: Command::Write,
            cookie: at,
            offset: at * 5000,
            length: 5000,
        };
        bytes.extend(request.encode());
        bytes.extend([at as u8 + 1; 5000]);
    }
    for piece in bytes.chunks(7777) {
        client.say(piece);
    }
    for _ in 0..200 {
        assert_eq!(client.simple(), 0);
    }
    let back = client.read(0, 200 * 5000).unwrap();
    assert!(back.chunks(5000).enumerate().all(|(at, piece)| piece.iter().all(|byte| *byte == at as u8 + 1)));
}

#[test]
fn a_write_that_does_not_fit_changes_nothing() {
    let donor = Running::start(8 * PAGE as u64);
    let mut client = Raw::opened(donor.tcp, "a", false);
    let mut other = Raw::opened(donor.tcp, "b", false);
    assert_eq!(client.write(0, &[1; 6 * PAGE]), 0);
    assert_eq!(other.write(0, &[2; 3 * PAGE]), errno::ENOSPC);
    assert_eq!(other.read(0, 3 * PAGE as u32), Ok(vec![0; 3 * PAGE]));
    assert_eq!(other.write(0, &[2; 2 * PAGE]), 0);
    assert_eq!(client.write(3, &[3; 5 * PAGE]), 0, "in place needs no memory");
    assert_eq!(client.write(6 * PAGE as u64, b"x"), errno::ENOSPC);
    assert_eq!(client.read(0, 1), Ok(vec![1]));
    assert_eq!(donor.stop().stored_bytes, 8 * PAGE as u64);
}

#[test]
fn dropped_exports_refuse_those_who_still_have_them_open() {
    let donor = Running::start(MIB);
    let mut client = Raw::opened(donor.tcp, "e", false);
    assert_eq!(client.write(0, &[1; PAGE]), 0);
    spillway_store::nbd::drop_export(&donor.tcp_uri("e").parse().unwrap()).unwrap();
    assert_eq!(client.read(0, 1), Err(errno::ESHUTDOWN));
    assert_eq!(client.write(0, b"x"), errno::ESHUTDOWN);
    assert_eq!(Raw::opened(donor.tcp, "e", false).read(0, 1), Ok(vec![0]));
    assert_eq!(donor.stop().stored_bytes, 0);
}

#[test]
fn requests_beyond_the_limit_are_refused_and_the_connection_goes_on() {
    let donor = Running::start(64 * MIB);
    let mut client = Raw::opened(donor.tcp, "e", false);
    assert_eq!(client.write(5, b"kept"), 0);
    assert_eq!(client.read(0, (32 << 20) + 1), Err(errno::EINVAL));
    assert_eq!(client.write(0, &vec![9; (32 << 20) + 1]), errno::EINVAL);
    assert_eq!(client.read(5, 4), Ok(b"kept".to_vec()));
    assert_eq!(client.write(0, &vec![9; 32 << 20]), 0);
    // Of a structured reply the error is a chunk.
    let mut client = Raw::opened(donor.tcp, "e", true);
    client.request(Command::Read, 0, u32::MAX, &[]);
    let ReplyHead::Chunk { kind, payload_bytes, .. } = client.head() else { panic!("simple") };
    assert_eq!(kind, chunk::ERROR);
    assert_eq!(decode_error(&client.bytes(payload_bytes as usize)).unwrap().0, errno::EINVAL);
}

#[test]
fn zeros_that_must_not_be_a_hole_take_memory() {
    let donor = Running::start(8 * PAGE as u64);
    let mut client = Raw::opened(donor.tcp, "e", true);
    assert_eq!(client.write(100, b"old"), 0);
    let zeroes = |client: &mut Raw, flags, pages: usize| {
        client.request_with(flags, Command::WriteZeroes, 0, (pages * PAGE) as u32, &[]);
        client.simple()
    };
    assert_eq!(zeroes(&mut client, RequestFlags::NO_HOLE, 6), 0);
    assert_eq!(donor.status().memory.used_bytes, 6 * PAGE as u64);
    client.request(Command::BlockStatus, 0, 8 * PAGE as u32, &[]);
    let ReplyHead::Chunk { payload_bytes, .. } = client.head() else { panic!("simple") };
    let (_, extents) = decode_extents(&client.bytes(payload_bytes as usize)).unwrap();
    assert_eq!((extents.len(), extents[0].length as usize), (2, 6 * PAGE));
    assert_eq!(extents[0].flags, ExtentFlags::empty());
    // Others cannot have that memory; what does not fit changes nothing.
    let mut other = Raw::opened(donor.tcp, "other", false);
    assert_eq!(other.write(0, &[1; 3 * PAGE]), errno::ENOSPC);
    assert_eq!(client.write(0, &[1; PAGE]), 0);
    assert_eq!(other.write(0, &[1; 2 * PAGE]), 0);
    assert_eq!(zeroes(&mut client, RequestFlags::NO_HOLE, 8), errno::ENOSPC);
    assert_eq!(zeroes(&mut client, RequestFlags::empty(), 6), 0);
    assert_eq!(donor.status().memory.used_bytes, 2 * PAGE as u64);
}

/// A good client works all the time while bad ones do their worst.
#[test]
fn bad_clients_do_not_disturb_good_ones() {
    let donor = Running::start(16 * MIB);
    let mut good = Raw::opened(donor.tcp, "good", false);
    let mut seed = 1u8;
    let mut check_good = |moment: &str| {
        seed = seed.wrapping_add(1).max(1);
        let data = vec![seed; 100_000];
        assert_eq!(good.write(1234, &data), 0, "{moment}");
        assert!(good.read(1234, 100_000).unwrap() == data, "{moment}");
    };
    // Not NBD at all.
    let mut client = Raw::connect(donor.tcp);
    client.array::<18>();
    let _ = client.0.write_all(&b"GET / HTTP/1.1\r\n".repeat(1000));
    assert!(client.is_hung_up_on());
    check_good("garbage in the handshake");
    // Garbage instead of a request.
    let mut client = Raw::opened(donor.tcp, "bad", false);
    let _ = client.0.write_all(&[0x55; 4096]);
    assert!(client.is_hung_up_on());
    check_good("garbage in the transmission");
    // A write of 4 GiB, of which little comes.
    let mut client = Raw::opened(donor.tcp, "bad", false);
    client.request(Command::Write, 0, u32::MAX, &[1; 70_000]);
    drop(client);
    check_good("an oversized write");
    // A read of 4 GiB is refused, and no more.
    let mut client = Raw::opened(donor.tcp, "bad", false);
    assert!(client.read(0, u32::MAX).is_err());
    check_good("an oversized read");
    // Leaving in the middle of a write, and in the middle of a request.
    let mut client = Raw::opened(donor.tcp, "bad", false);
    client.request(Command::Write, 0, 1 << 20, &[1; 70_000]);
    drop(client);
    let mut client = Raw::opened(donor.tcp, "bad", false);
    client.say(&[0x25, 0x60, 0x95]);
    drop(client);
    check_good("truncated messages");
    // Asking for much and never reading the answers.
    let mut deaf = Raw::opened(donor.tcp, "deaf", false);
    deaf.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let read = Request {
        flags: RequestFlags::empty(),
        command: Command::Read,
        cookie: 0,
        offset: 0,
        length: 16 << 20,
    };
    while deaf.0.write_all(&read.encode().repeat(100)).is_ok() {}
    check_good("a client that does not read");
    // Connections that hang at every stage.
    let hanging: Vec<_> = (0..20)
        .map(|number| match number % 3 {
            0 => Raw::connect(donor.tcp),
            1 => Raw::greeted(donor.tcp),
            _ => {
                let mut client = Raw::opened(donor.tcp, "hang", false);
                client.request(Command::Write, 0, 1 << 20, b"the rest never comes");
                client
            }
        })
        .collect();
    check_good("clients that hang");
    drop((hanging, deaf));
    check_good("after them");
    let summary = donor.stop();
    assert!(summary.failed_connections >= 5, "{summary:?}");
}
