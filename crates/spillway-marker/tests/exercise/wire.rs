//! What the daemon must stand from a marker, which lives in a program that may write over it, and a marker
//! from who is in the daemon's place: what is understood is said again by the same packet, and holds no more
//! than a packet can. Shared by the property test (`wire.rs`) and the fuzz target
//! (`fuzz/fuzz_targets/marker.rs`).

use spillway_marker::wire::{
    Hello, MAGIC, MOST_BYTES, MOST_ORDERS, MOST_REPORTS, Outcome, decode_orders, decode_reports,
    encode_orders, encode_reports,
};

/// Feeds `data` to every reader: as it is, and as words that are almost sound.
pub fn exercise(data: &[u8]) {
    packet(&data[..data.len().min(MOST_BYTES)]);
    let words = |of: &[u64]| of.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    packet(&[&MAGIC.to_ne_bytes(), data].concat());
    // Each two bytes are the end of a word, behind a high half that some of them have.
    let near: Vec<u64> = data
        .as_chunks::<2>()
        .0
        .iter()
        .map(|&[low, high]| u64::from(low) | u64::from(high & 0x1f) << 8 | u64::from(high >> 7) << 32)
        .collect();
    packet(&words(&near[..near.len().min(MOST_ORDERS)]));
    let hello = [MAGIC].into_iter().chain(near).take(5);
    packet(&words(&hello.collect::<Vec<_>>()));
}

fn packet(packet: &[u8]) {
    if let Some(hello) = Hello::decode(packet) {
        assert!(hello.frames.start <= hello.frames.end, "{hello:?}");
        assert_eq!(hello.encode(), packet);
    }
    if let Some(orders) = decode_orders(packet) {
        assert_eq!(encode_orders(&orders), packet);
        assert!(packet.len() > MOST_BYTES || orders.len() <= MOST_ORDERS);
    }
    if let Some(reports) = decode_reports(packet) {
        assert_eq!(encode_reports(reports.iter()), packet);
        assert!(packet.len() > MOST_REPORTS * 24 || reports.len() <= MOST_REPORTS);
        for report in reports {
            if let Outcome::Refused(reason) = report.outcome {
                assert!((1..4096).contains(&reason.raw_os_error()), "{report:?}");
            }
        }
    }
}
