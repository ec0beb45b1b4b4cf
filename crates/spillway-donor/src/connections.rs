//! The connections that a donor has, by client: who is let in, and who goes where there are too many.
//!
//! No client may have more than its share. Where there are as many connections as there may be, one that
//! dawdles in its handshake makes room for a newcomer; else one that rests, of the client that has most, if
//! that is more than the newcomer has. A connection that began a run, and a ring, stay: their clients could
//! not make them again.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use crate::journal::{Counts, Event, Journal};
use crate::limits::Limits;
use crate::lock;
use crate::peer::Peer;
use crate::stream::StreamError;
use crate::transmission::Activity;

/// Who has said nothing for so long is told of as a client.
const SILENT: Duration = Duration::from_secs(1);

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has not chosen its export.
    Handshake,
    /// It has, and its client could make it again.
    Open,
    /// It has, and its client could not.
    Lasting,
}

/// What a connection is for, as far as it has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// It has to show a certificate before it can aim at anything.
    Stranger,
    /// It has said nothing of it.
    Unknown,
    /// It asks how the donor stands, as who looks after a pool does every few seconds: it is no client.
    Look,
    /// It is a client's, who was told of.
    Client,
}

#[derive(Debug)]
struct Connection {
    socket: Arc<OwnedFd>,
    peer: Peer,
    stage: Stage,
    aim: Aim,
    since: Instant,
    activity: Arc<Activity>,
    /// Requests that it had made at the last look, and since when it has made no more.
    seen_requests: u64,
    rests_since: Instant,
}

/// What is known of a client that is connected.
#[derive(Clone, Copy, Debug, Default)]
struct Client {
    /// How many connections there are now.
    open: usize,
    /// Connections since it came, without those that only looked.
    all: u64,
    /// Those of them that ended by its fault.
    failed: u64,
    /// Somebody was told that it came.
    is_told: bool,
}

#[derive(Debug, Default)]
struct Inner {
    connections: HashMap<u64, Connection>,
    clients: HashMap<Peer, Client>,
    /// What connections did that have ended.
    requests: u64,
    written_bytes: u64,
    read_bytes: u64,
}

/// All connections of a donor.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    journal: Arc<Journal>,
    inner: Mutex<Inner>,
    /// Signalled when a connection ends.
    ended: Condvar,
}

impl Connections {
    /// A table without any connection yet.
    #[must_use]
    pub fn new(limits: Limits, journal: Arc<Journal>) -> Self {
        Self { limits, journal, inner: Mutex::default(), ended: Condvar::new() }
    }

    /// Enters a connection: its number, and where it counts what it does. `None` where it is turned away.
    /// It has not come as a client yet: [`Connections::come`] says that it has.
    pub fn admit(
        &self,
        socket: &Arc<OwnedFd>,
        peer: Peer,
        is_to_show: bool,
        now: Instant,
    ) -> Option<(u64, Arc<Activity>)> {
        let mut events = Vec::new();
        let aim = if is_to_show { Aim::Stranger } else { Aim::Unknown };
        let admitted = self.admit_quietly(socket, peer, aim, now, &mut events);
        for event in &events {
            self.journal.tell(event);
        }
        admitted
    }

    fn admit_quietly(
        &self,
        socket: &Arc<OwnedFd>,
        peer: Peer,
        aim: Aim,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Option<(u64, Arc<Activity>)> {
        let mut inner = lock(&self.inner);
        let refused = |peer, reason: String| Event::ConnectionRefused { peer, reason };
        // Its own that dawdle count against a client first.
        while inner.open(peer) >= self.limits.connections_per_client {
            let Some(oldest) = inner.oldest_handshake(Some(peer)) else {
                let most = self.limits.connections_per_client;
                events
                    .push(refused(peer, format!("it has {most} connections, the most one client can have")));
                return None;
            };
            inner.end_for_another(oldest);
            events.push(refused(peer, "its handshake took long, and a newcomer needed the place".to_owned()));
        }
        if inner.connections.len() >= self.limits.connections {
            let (leaver, reason) = match inner.oldest_handshake(None) {
                Some(oldest) => (oldest, "its handshake took long, and a newcomer needed the place"),
                None => {
                    let Some(resting) = inner.longest_resting(peer, self.limits.idle, now) else {
                        let most = self.limits.connections;
                        events
                            .push(refused(peer, format!("there are {most} connections (--max-connections)")));
                        return None;
                    };
                    (resting, "it rested, its client has most, and a newcomer needed the place")
                }
            };
            if let Some(of) = inner.end_for_another(leaver) {
                events.push(refused(of, reason.to_owned()));
            }
        }
        let (id, activity) = (self.journal.count_connection(), Arc::new(Activity::default()));
        inner.connections.insert(
            id,
            Connection {
                socket: Arc::clone(socket),
                peer,
                stage: Stage::Handshake,
                aim,
                since: now,
                activity: Arc::clone(&activity),
                seen_requests: 0,
                rests_since: now,
            },
        );
        let client = inner.clients.entry(peer).or_default();
        client.open += 1;
        client.all += 1;
        Some((id, activity))
    }

    /// A connection is a client's: it asks for what a client asks for.
    pub fn come(&self, id: u64) {
        let came = lock(&self.inner).come(id);
        came.iter().for_each(|event| self.journal.tell(event));
    }

    /// A connection asks how the donor stands. If it asks for nothing else nobody is told of it.
    pub fn look(&self, id: u64) {
        if let Some(connection) = lock(&self.inner).connections.get_mut(&id)
            && connection.aim == Aim::Unknown
        {
            connection.aim = Aim::Look;
        }
    }

    /// A connection has chosen its export.
    pub fn advance(&self, id: u64, stage: Stage) {
        if let Some(connection) = lock(&self.inner).connections.get_mut(&id) {
            connection.stage = stage;
        }
    }

    /// A connection's client has shown who it is: from now on the connection counts as that one's. `false`
    /// where it has as many as one may have; then the connection is to end.
    pub fn identify(&self, id: u64, peer: Peer) -> bool {
        let mut inner = lock(&self.inner);
        let most = self.limits.connections_per_client;
        let event = if inner.open(peer) >= most {
            let reason = format!("it has {most} connections, the most one client can have");
            Some(Event::ConnectionRefused { peer, reason })
        } else {
            inner.rename(id, peer);
            None
        };
        drop(inner);
        let is_refused = matches!(event, Some(Event::ConnectionRefused { .. }));
        event.iter().for_each(|event| self.journal.tell(event));
        !is_refused
    }

    /// A connection has ended.
    pub fn leave(&self, id: u64, outcome: Result<(), StreamError>) {
        let mut inner = lock(&self.inner);
        // Whoever comes and says nothing is told of too.
        let is_unknown = inner.connections.get(&id).is_some_and(|connection| connection.aim == Aim::Unknown);
        let came = if is_unknown { inner.come(id) } else { None };
        // One that had to go for another was told of then.
        if let Some((peer, client)) = inner.remove(id, outcome.is_err()) {
            drop(inner);
            came.iter().for_each(|event| self.journal.tell(event));
            if let Err(error) = outcome {
                self.journal.tell(&Event::ConnectionFailed { peer, reason: error.to_string() });
            }
            if client.open == 0 && client.is_told {
                let Client { all, failed, .. } = client;
                self.journal.tell(&Event::ClientLeft { peer, connections: all, failed });
            }
        }
        self.ended.notify_all();
    }

    /// Called now and then: notes who rests, and tells of who is silent.
    pub fn look_after(&self, now: Instant) {
        let mut inner = lock(&self.inner);
        let mut silent = Vec::new();
        for (id, connection) in &mut inner.connections {
            let requests = connection.activity.requests.load(Ordering::Relaxed);
            if requests != connection.seen_requests {
                (connection.seen_requests, connection.rests_since) = (requests, now);
            }
            if connection.aim == Aim::Unknown && now.saturating_duration_since(connection.since) >= SILENT {
                silent.push(*id);
            }
        }
        let came: Vec<Event> = silent.into_iter().filter_map(|id| inner.come(id)).collect();
        drop(inner);
        came.iter().for_each(|event| self.journal.tell(event));
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.inner).connections.len()
    }

    /// How many connections each client has.
    #[must_use]
    pub fn by_client(&self) -> Vec<(Peer, usize)> {
        let mut clients: Vec<_> =
            lock(&self.inner).clients.iter().map(|(peer, client)| (*peer, client.open)).collect();
        clients.sort_unstable();
        clients
    }

    /// Adds what all connections did, of those that are open and those that have ended.
    #[must_use]
    pub fn add_to(&self, counts: Counts) -> Counts {
        let inner = lock(&self.inner);
        let mut counts = Counts {
            requests: inner.requests,
            written_bytes: inner.written_bytes,
            read_bytes: inner.read_bytes,
            ..counts
        };
        for connection in inner.connections.values() {
            counts.requests += connection.activity.requests.load(Ordering::Relaxed);
            counts.written_bytes += connection.activity.written_bytes.load(Ordering::Relaxed);
            counts.read_bytes += connection.activity.read_bytes.load(Ordering::Relaxed);
        }
        counts
    }

    /// Ends all connections and waits, for a bounded time, until their threads have ended.
    pub fn end_all(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut inner = lock(&self.inner);
        for connection in inner.connections.values() {
            let _ = shutdown(&*connection.socket, Shutdown::Both);
        }
        while !inner.connections.is_empty() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
            inner = self.ended.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Inner {
    fn open(&self, peer: Peer) -> usize {
        self.clients.get(&peer).map_or(0, |client| client.open)
    }

    fn oldest_handshake(&self, of: Option<Peer>) -> Option<u64> {
        self.connections
            .iter()
            .filter(|(_, connection)| connection.stage == Stage::Handshake)
            .filter(|(_, connection)| of.is_none_or(|peer| connection.peer == peer))
            .min_by_key(|(_, connection)| connection.since)
            .map(|(id, _)| *id)
    }

    /// Of the client that has most connections, more than the newcomer's, the one that has rested longest.
    fn longest_resting(&self, newcomer: Peer, idle: Duration, now: Instant) -> Option<u64> {
        let most_of_newcomer = self.open(newcomer);
        self.connections
            .iter()
            .filter(|(_, connection)| connection.stage == Stage::Open)
            .filter(|(_, connection)| now.saturating_duration_since(connection.rests_since) >= idle)
            .map(|(id, connection)| (id, self.open(connection.peer), connection.rests_since))
            .filter(|(_, open, _)| *open > most_of_newcomer)
            .min_by_key(|(_, open, since)| (std::cmp::Reverse(*open), *since))
            .map(|(id, ..)| *id)
    }

    /// Its thread sees the end of the stream, and ends.
    fn end_for_another(&mut self, id: u64) -> Option<Peer> {
        let socket = Arc::clone(&self.connections.get(&id)?.socket);
        let (peer, _) = self.remove(id, false)?;
        let _ = shutdown(&*socket, Shutdown::Both);
        Some(peer)
    }

    /// Notes that a connection is a client's; what is to be told, where nobody was told of that client.
    fn come(&mut self, id: u64) -> Option<Event> {
        let connection = self.connections.get_mut(&id)?;
        connection.aim = Aim::Client;
        let (peer, client) = (connection.peer, self.clients.get_mut(&connection.peer)?);
        (!std::mem::replace(&mut client.is_told, true)).then_some(Event::ClientCame(peer))
    }

    /// Counts a connection as another client's.
    fn rename(&mut self, id: u64, peer: Peer) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let before = std::mem::replace(&mut connection.peer, peer);
        connection.aim = Aim::Unknown;
        if let Some(client) = self.clients.get_mut(&before) {
            client.open -= 1;
            client.all -= 1;
            if client.open == 0 {
                self.clients.remove(&before);
            }
        }
        let client = self.clients.entry(peer).or_default();
        client.open += 1;
        client.all += 1;
    }

    /// Takes a connection out; its client, and what is known of it now.
    fn remove(&mut self, id: u64, has_failed: bool) -> Option<(Peer, Client)> {
        let Connection { peer, activity, aim, .. } = self.connections.remove(&id)?;
        self.requests += activity.requests.load(Ordering::Relaxed);
        self.written_bytes += activity.written_bytes.load(Ordering::Relaxed);
        self.read_bytes += activity.read_bytes.load(Ordering::Relaxed);
        let client = self.clients.get_mut(&peer)?;
        client.open -= 1;
        client.all -= u64::from(aim == Aim::Look);
        client.failed += u64::from(has_failed);
        let client = *client;
        if client.open == 0 {
            self.clients.remove(&peer);
        }
        Some((peer, client))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use spillway_events::Format;
    use spillway_events::testing::told;

    use super::*;

    struct Scene {
        connections: Connections,
        now: Instant,
        /// The ends that the clients hold.
        ends: Vec<UnixStream>,
    }

    impl Scene {
        fn new(connections: usize, per_client: usize) -> Self {
            let limits = Limits { connections_per_client: per_client, ..Limits::of(connections) };
            let journal = Arc::<Journal>::default();
            let connections = Connections::new(limits, journal);
            Self { connections, now: Instant::now(), ends: Vec::new() }
        }

        /// A connection of user 1 that has said nothing yet.
        fn enter(&mut self, is_to_show: bool) -> u64 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            self.ends.push(theirs);
            let socket = Arc::new(OwnedFd::from(ours));
            self.connections.admit(&socket, Peer::User(1), is_to_show, self.now).unwrap().0
        }

        /// A connection of a client that comes to this stage; whether it is let in.
        fn come(&mut self, user: u32, stage: Stage) -> bool {
            let (ours, theirs) = UnixStream::pair().unwrap();
            self.ends.push(theirs);
            let socket = Arc::new(OwnedFd::from(ours));
            let admitted = self.connections.admit(&socket, Peer::User(user), false, self.now);
            if let Some((id, _)) = &admitted {
                self.connections.come(*id);
                self.connections.advance(*id, stage);
            }
            admitted.is_some()
        }

        fn has(&self, id: u64) -> bool {
            lock(&self.connections.inner).connections.contains_key(&id)
        }
    }

    #[test]
    fn one_client_cannot_have_all_connections() {
        let mut scene = Scene::new(8, 4);
        assert!((0..4).all(|_| scene.come(1, Stage::Open)));
        assert!(!scene.come(1, Stage::Open));
        assert!((0..4).all(|_| scene.come(2, Stage::Open)));
        assert_eq!(scene.connections.by_client(), [(Peer::User(1), 4), (Peer::User(2), 4)]);
    }

    #[test]
    fn a_connection_that_rests_makes_room_for_a_client_that_has_fewer() {
        let mut scene = Scene::new(6, 5);
        assert!((0..5).all(|_| scene.come(1, Stage::Open)) && scene.come(2, Stage::Open));
        assert!(!scene.come(3, Stage::Open), "none rests yet");
        scene.now += Duration::from_secs(10);
        // The first works; the second has rested as long as the others, and is not the newcomer's own.
        lock(&scene.connections.inner).connections[&0].activity.count(1, 0);
        scene.connections.look_after(scene.now);
        assert!(scene.come(3, Stage::Open));
        assert!(scene.has(0) && scene.has(5) && scene.connections.count() == 6);
        assert!(scene.come(3, Stage::Open));
        assert_eq!(
            scene.connections.by_client().iter().map(|(_, open)| *open).collect::<Vec<_>>(),
            [3, 1, 2]
        );
    }

    #[test]
    fn what_cannot_be_made_again_stays_and_handshakes_go_first() {
        let mut scene = Scene::new(3, 3);
        assert!(scene.come(1, Stage::Lasting) && scene.come(1, Stage::Lasting));
        assert!(scene.come(1, Stage::Handshake));
        scene.now += Duration::from_secs(10);
        assert!(scene.come(2, Stage::Lasting) && !scene.has(2));
        assert!(!scene.come(3, Stage::Open));
    }

    #[test]
    fn who_only_looks_is_no_client_and_who_says_nothing_becomes_one() {
        let mut scene = Scene::new(8, 8);
        let text = told(Format::Text, || {
            for _ in 0..2 {
                let look = scene.enter(false);
                scene.connections.look(look);
                scene.now += SILENT;
                scene.connections.look_after(scene.now);
                scene.connections.leave(look, Ok(()));
            }
            let silent = scene.enter(false);
            scene.connections.look_after(scene.now);
            scene.connections.look_after(scene.now + SILENT);
            let look = scene.enter(false);
            scene.connections.look(look);
            scene.connections.leave(look, Ok(()));
            scene.connections.leave(silent, Ok(()));
            // It asks, and then for more; one that was a client's stays so.
            let client = scene.enter(false);
            scene.connections.look(client);
            scene.connections.come(client);
            scene.connections.look(client);
            scene.connections.leave(client, Ok(()));
            // Gone at once, without a word; one that never showed a certificate is nobody.
            for is_to_show in [false, true] {
                let passer_by = scene.enter(is_to_show);
                scene.connections.look_after(scene.now);
                scene.connections.leave(passer_by, Ok(()));
            }
        });
        let came_and_left = "spillway donor: user 1 has come\n\
                             spillway donor: user 1 has left, after 1 connections, of which 0 failed\n";
        assert_eq!(text.unwrap(), came_and_left.repeat(3));
    }

    #[test]
    fn clients_are_known_while_they_are_connected_and_what_they_did_is_kept() {
        let mut scene = Scene::new(4, 4);
        assert!(scene.come(1, Stage::Open) && scene.come(1, Stage::Open));
        lock(&scene.connections.inner).connections[&0].activity.count(4096, 0);
        scene.connections.leave(0, Err(StreamError::Stalled));
        scene.connections.leave(1, Ok(()));
        assert!(scene.connections.by_client().is_empty());
        let counts = scene.connections.add_to(scene.connections.journal.counts());
        assert_eq!((counts.requests, counts.written_bytes, counts.failed_connections), (1, 4096, 1));
    }
}
