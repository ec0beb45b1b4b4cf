//! What a donor's exports are promised, and when they go.

use super::*;

const ME: Peer = Peer::User(1);

fn registry_with(grace: Duration, per_run: Option<Size>) -> Arc<Registry> {
    let (limits, keep_free) = (Limits::of(64), Size::from_bytes(100 * 4096));
    let terms = Terms { grace, per_run, per_client: None, limits, keep_free };
    let pool = Arc::new(FramePool::new(16).unwrap());
    Registry::new(pool, 16 * 4096, terms, Arc::<Journal>::default())
}

fn registry(grace: Duration) -> Arc<Registry> {
    registry_with(grace, None)
}

fn run(token: &str, pages: u64) -> Visitor {
    Visitor::Run { token: token.into(), asked_bytes: pages * 4096 }
}

fn lane(token: &str) -> Visitor {
    Visitor::Lane(token.into())
}

fn put(attachment: &Attachment, byte: u8) {
    attachment.export.write(0, &[byte; 4096]).unwrap();
}

fn first_byte(attachment: &Attachment) -> u8 {
    let mut byte = [0xee];
    attachment.export.read(0, &mut byte).unwrap();
    byte[0]
}

#[test]
fn named_exports_persist_until_dropped() {
    let registry = registry(Duration::ZERO);
    put(&registry.open("", &Visitor::Anyone, ME).unwrap(), 1);
    registry.drop_expired(Instant::now());
    let again = registry.open("", &Visitor::Anyone, ME).unwrap();
    assert_eq!(first_byte(&again), 1);
    assert_eq!(registry.names(ME), [""]);
    assert!(registry.drop_named("", ME) && !registry.drop_named("", ME));
    assert_eq!(registry.pool().taken(), 0);
    let fresh = registry.open("", &Visitor::Anyone, ME).unwrap();
    drop(again); // must not count as the fresh one's leaving
    assert_eq!(first_byte(&fresh), 0);
    assert_eq!(lock(&registry.entries).named[&Named::of("", ME)].connections, 1);
}

#[test]
fn private_exports_are_apart_and_go_after_the_grace_time() {
    let registry = registry(Duration::from_secs(30));
    let first = registry.open("e", &run("one", 4), ME).unwrap();
    let second = registry.open("e", &run("two", 4), ME).unwrap();
    put(&first, 1);
    put(&second, 2);
    assert_eq!((first_byte(&first), first_byte(&second)), (1, 2));
    assert!(registry.names(ME).is_empty());
    assert_eq!(first_byte(&registry.open("e", &lane("one"), ME).unwrap()), 1);

    drop(first);
    let now = Instant::now();
    registry.drop_expired(now + Duration::from_secs(29));
    assert!(registry.has_private("one", "e"));
    registry.drop_expired(now + Duration::from_secs(31));
    assert!(!registry.has_private("one", "e") && registry.has_private("two", "e"));
    assert_eq!(registry.pool().taken(), 1);
    assert_eq!(registry.open("e", &lane("one"), ME).unwrap_err(), OpenError::Lost);
    let counts = registry.journal.counts();
    assert_eq!((counts.granted_runs, counts.lost_runs, counts.expired_runs), (2, 1, 1));
}

#[test]
fn a_run_that_ends_gives_everything_back_at_once() {
    let registry = registry(Duration::from_secs(1000));
    for _ in 0..3 {
        let first = registry.open("e", &run("one", 16), ME).unwrap();
        let further = registry.open("e", &lane("one"), ME).unwrap();
        put(&further, 1);
        assert!(first.begins_run() && !further.begins_run());
        first.end_run();
        assert_eq!((registry.pool().taken(), registry.pool().standing().unpromised), (0, 16));
        assert_eq!(registry.open("e", &lane("one"), ME).unwrap_err(), OpenError::Lost);
        // A connection that is still open can neither hurt nor end the next run of that name.
        let next = registry.open("e", &run("one", 16), ME).unwrap();
        further.end_run();
        drop((first, further));
        put(&next, 2);
        next.end_run();
    }
    assert_eq!(registry.journal.counts().ended_runs, 6);
    assert_eq!(registry.journal.counts().lost_runs, 0);
}

#[test]
fn memory_is_promised_once() {
    let registry = registry(Duration::from_secs(30));
    let first = registry.open("", &run("one", 12), ME).unwrap();
    let refusal = registry.open("", &run("two", 12), ME).unwrap_err();
    assert!(matches!(&refusal, OpenError::NoRoom { free, .. } if free.bytes() == 4 * 4096));
    assert_eq!(
        refusal.to_string(),
        "16.0 KiB of its 64.0 KiB are left to promise, and 48.0 KiB were asked for: ask for no more with \
         ?size=SIZE, or wait until another run ends"
    );
    // One that says nothing gets what there is; then there is nothing.
    let second = registry.open("", &run("two", 0), ME).unwrap();
    assert_eq!((first.export.size_bytes(), second.export.size_bytes()), (12 * 4096, 4 * 4096));
    let named = registry.open("", &Visitor::Anyone, ME).unwrap();
    assert_eq!(named.export.write(0, b"x"), Err(crate::export::ExportError::Full));
    assert!(registry.open("", &run("three", 0), ME).is_err());
    drop(first);
    let text = registry.open("", &run("three", 0), ME).unwrap_err().to_string();
    assert!(text.contains("48.0 KiB come free within 30 s"), "{text}");
}

#[test]
fn one_run_gets_no_more_than_its_owner_says() {
    let registry = registry_with(Duration::ZERO, Some(Size::from_bytes(4 * 4096)));
    let first = registry.open("", &run("one", 0), ME).unwrap();
    assert_eq!(first.export.size_bytes(), 4 * 4096);
    let text = registry.open("", &run("two", 5), ME).unwrap_err().to_string();
    assert!(text.contains("promises a run 16.0 KiB at most"), "{text}");
}

#[test]
fn one_client_holds_no_more_than_its_share_by_promises_and_named_exports() {
    let terms = Terms {
        grace: Duration::ZERO,
        per_run: None,
        per_client: Some(Size::from_bytes(6 * 4096)),
        limits: Limits::of(64),
        keep_free: Size::default(),
    };
    let pool = Arc::new(FramePool::new(16).unwrap());
    let registry = Registry::new(pool, 16 * 4096, terms, Arc::<Journal>::default());
    let first = registry.open("", &run("one", 4), ME).unwrap();
    let text = registry.open("", &run("two", 4), ME).unwrap_err().to_string();
    assert!(text.starts_with("8.0 KiB of the 24.0 KiB that one client may have"), "{text}");
    let named = registry.open("disk", &Visitor::Anyone, ME).unwrap();
    named.export.write(0, &[1; 2 * 4096]).unwrap();
    assert_eq!(named.export.has_room(2 * 4096, 4096), Err(crate::export::ExportError::Full));
    assert_eq!(named.export.write(2 * 4096, &[1]), Err(crate::export::ExportError::Full));
    assert!(registry.open("", &run("two", 0), ME).is_err());
    // Others have theirs.
    let other = registry.open("", &run("other", 6), Peer::User(2)).unwrap();
    // What is trimmed, and what a run had, may be had again: exactly once.
    named.export.discard(0, 4096).unwrap();
    named.export.write(8 * 4096, &[1]).unwrap();
    assert_eq!(named.export.write(0, &[1]), Err(crate::export::ExportError::Full));
    first.end_run();
    first.end_run();
    drop(first);
    let second = registry.open("", &run("two", 0), ME).unwrap();
    assert_eq!(second.export.size_bytes(), 4 * 4096);
    assert!(registry.drop_named("disk", ME));
    drop((named, other));
    assert_eq!(registry.open("", &run("three", 0), ME).unwrap().export.size_bytes(), 2 * 4096);
}

#[test]
fn a_named_export_belongs_to_the_name_in_a_certificate() {
    let registry = registry(Duration::ZERO);
    let [one, other] = ["one", "other"].map(|name| Peer::Certificate(ClientName::new(name).unwrap()));
    let open = |peer| registry.open("disk", &Visitor::Anyone, peer).unwrap();
    put(&open(one), 1);
    assert_eq!(first_byte(&open(other)), 0, "another's is another");
    put(&open(other), 2);
    put(&open(ME), 3);
    let address = Peer::Address([10, 0, 0, 1].into());
    assert_eq!((first_byte(&open(one)), first_byte(&open(other)), first_byte(&open(address))), (1, 2, 3));
    let names = |peer| registry.names(peer).len();
    assert_eq!((names(one), names(other), names(ME), names(address)), (1, 1, 1, 1));
    assert!(registry.drop_named("disk", one) && !registry.drop_named("disk", one));
    assert_eq!((names(one), first_byte(&open(other)), first_byte(&open(ME))), (0, 2, 3));
    let stranger = Peer::Certificate(ClientName::new("stranger").unwrap());
    assert!(!registry.drop_named("disk", stranger) && registry.names(stranger).is_empty());
}

#[test]
fn a_donor_that_ends_takes_lanes_of_its_runs_and_nobody_else() {
    let registry = registry(Duration::from_secs(30));
    let _first = registry.open("", &run("one", 4), ME).unwrap();
    registry.begin_to_end();
    assert!(registry.open("", &lane("one"), ME).is_ok());
    for visitor in [Visitor::Anyone, run("two", 1), lane("two")] {
        assert_eq!(registry.open("", &visitor, ME).unwrap_err(), OpenError::Ending);
    }
}

#[test]
fn a_donor_that_is_drained_serves_its_runs_and_lets_in_nobody_new_until_it_stays() {
    let registry = registry(Duration::from_secs(30));
    let first = registry.open("", &run("one", 4), ME).unwrap();
    registry.drain(true, ME);
    put(&first, 7);
    assert!(registry.open("", &lane("one"), ME).is_ok());
    for visitor in [Visitor::Anyone, run("two", 1)] {
        assert_eq!(registry.open("", &visitor, ME).unwrap_err(), OpenError::Draining);
    }
    let standing = registry.standing();
    assert!(standing.is_draining);
    assert_eq!((standing.runs, standing.run_bytes, standing.promised_bytes), (1, 4096, 4 * 4096));
    first.end_run();
    assert_eq!((registry.standing().runs, registry.standing().held_bytes), (0, 0));
    registry.drain(false, ME);
    assert!(registry.open("", &run("two", 1), ME).is_ok() && !registry.standing().is_draining);
}

/// Of a hundred pages that are to stay free.
#[test]
fn what_may_be_promised_follows_what_the_machine_has() {
    let registry = registry(Duration::from_secs(30));
    let offer = || {
        let Offer { free_bytes, offered_bytes } = registry.offer();
        (free_bytes / 4096, offered_bytes / 4096)
    };
    let mut now_ms = 0;
    let mut see = |pages: u64| {
        now_ms += 1_000_000;
        registry.note_available(Sample { now_ms, available_bytes: pages * 4096, stalled_share: 0.0 });
    };
    // Where nothing is known of the machine, all of it; with plenty too.
    assert_eq!(offer(), (16, 16));
    see(1000);
    let first = registry.open("", &run("one", 4), ME).unwrap();
    assert_eq!(offer(), (12, 16));
    // Ten to spare, of which the run may take its four any time.
    see(110);
    assert_eq!(offer(), (6, 10));
    let text = registry.open("", &run("two", 7), ME).unwrap_err().to_string();
    assert!(text.contains("24.0 KiB of its 40.0 KiB are left to promise"), "{text}");
    // What it has taken is no longer available, and nobody else's.
    put(&first, 7);
    see(109);
    assert_eq!(offer(), (6, 10));
    see(99);
    assert_eq!((registry.is_short(), offer()), (true, (0, 4)));
    assert!(registry.standing().is_short && registry.standing().is_to_be_left());
    let short = registry.open("", &run("two", 1), ME).unwrap_err();
    assert_eq!(short, OpenError::Short { keep_free: registry.keep_free() });
    // Who is there goes on.
    assert!(registry.open("", &lane("one"), ME).is_ok());
    put(&first, 8);
    see(1000);
    assert_eq!((registry.is_short(), offer(), first_byte(&first)), (false, (12, 16), 8));
    assert_eq!(registry.open("", &run("two", 0), ME).unwrap().export.size_bytes(), 12 * 4096);
}

#[test]
fn the_number_of_exports_is_limited_for_each_client_and_for_all() {
    let registry = registry(Duration::ZERO);
    let Limits { exports, exports_per_client, .. } = registry.terms.limits;
    let mut open = Vec::new();
    for client in 0..exports / exports_per_client {
        let peer = Peer::User(client as u32);
        for number in 0..exports_per_client {
            open.push(registry.open(&format!("{client}/{number}"), &Visitor::Anyone, peer).unwrap());
        }
        let refusal = registry.open("more", &Visitor::Anyone, peer).unwrap_err();
        assert_eq!(refusal, OpenError::TooManyOfClient(exports_per_client));
    }
    let newcomer = Peer::User(9999);
    assert_eq!(registry.open("more", &Visitor::Anyone, newcomer).unwrap_err(), OpenError::TooMany(exports));
    // Empty ones that nobody uses make room.
    drop(open);
    registry.open("more", &Visitor::Anyone, newcomer).unwrap();
}
