use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};

use spillway_tls::records::{KEYS_BYTES, Keys, WORN_OUT_AFTER};

use super::*;
use crate::nbd::socket::Socket;
use crate::nbd::tls_socket::TlsSocket;

const SOON: Duration = Duration::from_secs(30);

/// To a server that has died, with one connection that was opened before, and lent.
fn pool_with_one(uri: &str, patience: Patience) -> (Arc<Pool>, Lent) {
    lend_one(dead_server(uri, patience))
}

fn dead_server(uri: &str, patience: Patience) -> Pool {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let key = RunKey::derive("token", uri);
    Pool::new(uri.into(), 8, Address::Tcp(nobody), "e".into(), key, patience)
}

fn lend_one(pool: Pool) -> (Arc<Pool>, Lent) {
    let pool = Arc::new(pool);
    pool.state().open = 1;
    let (socket, _) = UnixStream::pair().unwrap();
    let lent = Lent::new(&pool, Connection::over(Socket::Bare(OwnedFd::from(socket))));
    (pool, lent)
}

/// Takes a connection in a thread of its own; says how that ended.
fn taking(pool: &Arc<Pool>) -> Receiver<Result<(), StoreError>> {
    let (tell, told) = channel();
    let waiting = Arc::clone(pool);
    std::thread::spawn(move || {
        let outcome = waiting.take(&Effort::of(waiting.patience.reconnect, None));
        let _ = tell.send(outcome.map(|_| ()));
    });
    told
}

#[test]
fn lanes_that_hold_what_others_wait_for_do_not_wait_in_a_circle() {
    // Each of two threads has sent something to both of two servers, which then died: each holds a
    // connection to the server to which the other wants another one.
    let patience = Patience { timeout: 10 * SOON, reconnect: Duration::from_millis(40) };
    let (one, of_one) = pool_with_one("nbd://one/", patience);
    let (other, of_other) = pool_with_one("nbd://other/", patience);
    let held = [of_one.parked(), of_other.parked()];
    for told in [taking(&one), taking(&other)] {
        let outcome = told.recv_timeout(SOON).expect("it waits for ever");
        assert!(matches!(outcome, Err(StoreError::Gone { .. })), "{outcome:?}");
    }
    drop(held);
    for pool in [one, other] {
        let state = pool.state();
        assert_eq!((state.open, state.parked), (0, 0));
    }
}

#[test]
fn one_of_several_is_let_go_as_soon_as_nobody_listens_there() {
    let patience = Patience { timeout: 10 * SOON, reconnect: 10 * SOON };
    let (pool, _busy) = lend_one(dead_server("nbd://x/", patience).one_of_several(patience));
    let outcome = taking(&pool).recv_timeout(SOON).expect("it waits for one that is dead");
    assert!(matches!(outcome, Err(StoreError::Gone { .. })), "{outcome:?}");
    assert!(pool.given_up().is_some());
}

#[test]
fn idle_connections_of_one_of_several_go_with_one_that_was_lost() {
    let patience = Patience { timeout: SOON, reconnect: SOON };
    for is_one_of_several in [true, false] {
        let pool = dead_server("nbd://x/", patience);
        let pool = if is_one_of_several { pool.one_of_several(patience) } else { pool };
        let (pool, lent) = lend_one(pool);
        lent.give_back();
        pool.note_loss();
        // One that is taken, and not given back, is none any more.
        assert_eq!(pool.is_without_connection(), is_one_of_several);
        assert_eq!(pool.take_idle().is_none(), is_one_of_several);
    }
}

/// Sealed, by keys that were used for so many records.
fn lend_sealed(pool: Pool, records: u64) -> (Arc<Pool>, Lent) {
    let pool = Arc::new(pool);
    pool.state().open = 1;
    let mut keys = [0; KEYS_BYTES];
    for way in [KEYS_BYTES / 2, KEYS_BYTES] {
        keys[way - 8..way].copy_from_slice(&records.to_be_bytes());
    }
    let [socket, relay] = [UnixStream::pair(), UnixStream::pair()].map(|pair| OwnedFd::from(pair.unwrap().0));
    let socket = TlsSocket::new(socket, relay, Keys::decode(&keys).unwrap());
    let lent = Lent::new(&pool, Connection::over(Socket::Tls(Box::new(socket))));
    (pool, lent)
}

#[test]
fn a_connection_whose_keys_are_worn_out_is_not_used_again() {
    for (records, is_kept) in [(WORN_OUT_AFTER - 1, true), (WORN_OUT_AFTER, false)] {
        let (pool, lent) =
            lend_sealed(dead_server("nbds://x/", Patience { timeout: SOON, reconnect: SOON }), records);
        lent.give_back();
        assert_eq!(pool.is_without_connection(), !is_kept, "{records} records");
        assert_eq!(pool.take_idle().is_some(), is_kept, "{records} records");
    }
}

#[test]
fn a_busy_connection_is_waited_for_and_a_parked_one_taken_when_it_comes_back() {
    // Nobody listens any more, so whoever waits can only get the one that there is.
    let reconnect = [Duration::from_millis(50), SOON];
    for (is_parked, reconnect) in [false, true].into_iter().zip(reconnect) {
        let (pool, lent) = pool_with_one("nbd://x/", Patience { timeout: SOON, reconnect });
        let lent = if is_parked { lent.parked() } else { lent };
        let told = taking(&pool);
        assert!(told.recv_timeout(Duration::from_millis(300)).is_err(), "parked: {is_parked}");
        lent.resumed().give_back();
        assert_eq!(told.recv_timeout(SOON), Ok(Ok(())), "parked: {is_parked}");
    }
}

#[test]
fn who_waits_for_a_busy_connection_looks_again_when_it_is_parked() {
    let reconnect = Duration::from_millis(40);
    let (pool, lent) = pool_with_one("nbd://x/", Patience { timeout: 10 * SOON, reconnect });
    let told = taking(&pool);
    assert!(told.recv_timeout(Duration::from_millis(300)).is_err());
    let _held = lent.parked();
    assert!(matches!(told.recv_timeout(SOON), Ok(Err(StoreError::Gone { .. }))));
}
