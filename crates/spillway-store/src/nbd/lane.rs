//! One thread's way to the server: batches, what is posted, and what becomes of requests whose connection is
//! lost or silent.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_nbd::errno;
use spillway_nbd::handshake::ExportFlags;

use super::connection::seconds;
use super::effort::Effort;
use super::exchange::{Exchange, INPUT_BYTES, Interruption, Pages, Run, Sent, Silence, plan};
use super::pool::{ATTEMPT, FIRST_PAUSE, LONGEST_PAUSE, Lent, Pool, TELL_AFTER, sleep};
use crate::posted::{Kept, are_of};
use crate::{Lane, Patience, ReadRequest, StoreError, WriteRequest};

/// Most pages in one TRIM.
const MAX_TRIM_PAGES: usize = 1 << 18;

/// The way of one thread to the server, over whatever connection is free.
pub(super) struct NbdLane {
    pool: Arc<Pool>,
    posted: Option<Posted>,
    /// Writes that were posted.
    writes: Option<Batch>,
    /// Each request of the last call was answered by the one connection that it was sent by.
    has_answered: bool,
    /// What could not be posted as a whole may have been sent in part.
    is_partly_sent: bool,
    input: Box<[u8]>,
}

/// A batch in the order in which it travels.
struct Batch {
    order: Vec<usize>,
    runs: Vec<Run>,
    /// The connection that it is to go over, and what that has been told of it.
    start: Option<(Lent, Option<Sent>)>,
}

/// Reads that were posted.
enum Posted {
    /// Their requests are sent, and their replies come by the connection next.
    UnderWay(Vec<u32>, Batch),
    /// All of them are fetched.
    Kept(Kept),
}

impl NbdLane {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        let input = vec![0; INPUT_BYTES].into_boxed_slice();
        Self { pool, posted: None, writes: None, has_answered: true, is_partly_sent: false, input }
    }

    fn max_run_pages(&self) -> usize {
        self.pool.features().map_or(1, |features| features.max_run_pages)
    }

    fn has(&self, flag: ExportFlags) -> bool {
        self.pool.features().is_some_and(|features| features.flags.contains(flag))
    }

    /// Gets every run its answer, over as many connections as it takes. Requests can be made twice without
    /// harm.
    fn exchange(
        &mut self,
        pages: &mut Pages<'_, '_>,
        Batch { order, runs, start }: &mut Batch,
    ) -> Result<(), StoreError> {
        let Self { pool, input, has_answered: is_answered, .. } = self;
        // Until it is so.
        let was_answered = std::mem::replace(is_answered, false);
        let mut is_sent_once = true;
        if let Some(error) = pool.given_up() {
            // Nothing was sent, but what is posted.
            *is_answered = was_answered && start.is_none();
            return Err(error.clone());
        }
        let Patience { timeout, reconnect } = pool.patience;
        let is_read = matches!(pages, Pages::Read(_));
        let mut effort = Effort::of(reconnect, None);
        let mut patience = Silences::new(timeout);
        let mut start = start.take();
        let mut pause = pool.first_pause();
        loop {
            let open = open_runs(runs);
            let (mut connection, sent) = match start.take() {
                Some((connection, sent)) => (connection.resumed(), sent),
                None => {
                    let taken = Pool::take(pool, &effort);
                    if taken.is_err() {
                        *is_answered = was_answered && is_sent_once;
                    }
                    (taken?, None)
                }
            };
            let epoch = sent.as_ref().map_or_else(|| pool.next_epoch(), |sent| sent.epoch);
            let exchange = Exchange::new(&mut connection, pages, order, runs, epoch, input);
            let exchange = match sent {
                Some(sent) => exchange.resume(sent),
                None => exchange,
            };
            let ended = exchange.finish(patience.left(), patience.look(), &mut |silent| {
                start = patience.hear_silence(pool, silent, is_read).map(|other| (other, None));
                if start.is_some() { Silence::Leave } else { Silence::Wait }
            });
            let has_answered = open_runs(runs) < open;
            if has_answered {
                patience = Silences::new(timeout);
            }
            match ended {
                Ok(()) => {
                    connection.give_back();
                    pool.tell_answer();
                    *is_answered = was_answered && is_sent_once;
                    return Ok(());
                }
                Err(Interruption::Left) => connection.abandon(),
                Err(Interruption::Silent) => {
                    if is_read {
                        connection.abandon()
                    } else {
                        connection.abandon_writes()
                    }
                    let waited = seconds(timeout);
                    return Err(pool.fail(format!("the server has not answered for {waited} s")));
                }
                Err(Interruption::Lost(reason)) => {
                    drop(connection);
                    pool.note_loss();
                    // A server that answers something before it hangs up gets the full time again.
                    if has_answered || effort.lost.is_none() {
                        (effort, pause) = (Effort::of(reconnect, Some(reason)), pool.first_pause());
                    }
                    if effort.give_up_at <= Instant::now() {
                        return Err(pool.fail(effort.lost.unwrap_or_default()));
                    }
                    sleep(pause);
                    pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                }
            }
            is_sent_once = false;
        }
    }

    fn outcome(&self, answer: u32) -> Result<(), StoreError> {
        let store = || self.pool.uri.clone();
        match answer {
            0 => Ok(()),
            errno::ENOSPC => Err(StoreError::Full { store: store() }),
            errno::ESHUTDOWN => Err(self.pool.gone("the server is shutting down, or the export was dropped")),
            other => Err(StoreError::Io {
                store: store(),
                reason: format!("the server answered {}", errno::name(other)),
            }),
        }
    }

    /// Sends a batch and receives its answers: an outcome for each index.
    fn transact(&mut self, pages: &mut Pages<'_, '_>, max_pages: usize) -> Vec<Result<(), StoreError>> {
        self.settle_posted();
        let (order, runs) = plan(pages, max_pages, self.pool.limit_slots());
        self.finish(pages, Batch { order, runs, start: None })
    }

    /// The same for a batch of which a part may be sent already.
    fn finish(&mut self, pages: &mut Pages<'_, '_>, mut batch: Batch) -> Vec<Result<(), StoreError>> {
        self.has_answered = !std::mem::take(&mut self.is_partly_sent);
        let mut outcomes = vec![Ok(()); batch.order.len()];
        let mut ended = self.exchange(pages, &mut batch);
        // A full server refuses a request as a whole, though some of its pages may have a place already.
        let is_full = |run: &Run| run.answer == Some(errno::ENOSPC) && run.count > 1;
        if ended.is_ok() && batch.runs.iter().any(is_full) {
            let (full, rest): (Vec<_>, Vec<_>) = batch.runs.into_iter().partition(is_full);
            batch.runs = full.iter().flat_map(Run::singly).collect();
            ended = self.exchange(pages, &mut batch);
            batch.runs.extend(rest);
        }
        let Batch { order, runs, .. } = batch;
        for run in &runs {
            let outcome = match (run.answer, &ended) {
                (Some(answer), _) => self.outcome(answer),
                (None, Err(error)) => Err(error.clone()),
                (None, Ok(())) => self.outcome(errno::EIO),
            };
            for index in &order[run.first..run.first + run.count] {
                outcomes[*index] = outcome.clone();
            }
        }
        outcomes
    }
}

/// Requests that go out before somebody waits for their answers.
impl NbdLane {
    /// Sends requests as far as the socket takes them now.
    fn post(&mut self, mut pages: Pages<'_, '_>) -> Option<Batch> {
        if self.pool.given_up().is_some() {
            return None;
        }
        let mut connection = Pool::take_idle(&self.pool)?;
        let (order, mut runs) = plan(&pages, self.max_run_pages(), self.pool.limit_slots());
        let epoch = self.pool.next_epoch();
        let exchange = Exchange::new(&mut connection, &mut pages, &order, &mut runs, epoch, &mut self.input);
        // Where that fails, who reads or writes takes another connection.
        let sent = exchange.post();
        self.is_partly_sent |= sent.is_err();
        let sent = sent.ok()?;
        Some(Batch { order, runs, start: Some((connection.parked(), Some(sent))) })
    }

    /// Frees the connection for something else: what was posted is fetched, and kept until somebody asks for
    /// it.
    fn settle_posted(&mut self) {
        self.posted = match self.posted.take() {
            Some(Posted::UnderWay(slots, posted)) => {
                Some(Posted::Kept(Kept::fetch(slots, |batch| self.finish_read(batch, posted))))
            }
            other => other,
        };
    }

    fn finish_read(&mut self, batch: &mut [ReadRequest<'_>], posted: Batch) {
        let outcomes = self.finish(&mut Pages::Read(batch), posted);
        for (request, outcome) in batch.iter_mut().zip(outcomes) {
            request.outcome = outcome;
        }
    }
}

impl Lane for NbdLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        let max_pages = self.max_run_pages();
        let outcomes = self.transact(&mut Pages::Write(batch), max_pages);
        for (request, outcome) in batch.iter_mut().zip(outcomes) {
            request.outcome = outcome;
        }
    }

    fn post_writes(&mut self, batch: &[WriteRequest<'_>]) {
        self.settle_posted();
        self.writes = self.post(Pages::Write(batch));
    }

    fn complete_writes(&mut self, batch: &mut [WriteRequest<'_>]) {
        let Some(posted) = self.writes.take() else { return self.write(batch) };
        let outcomes = self.finish(&mut Pages::Write(batch), posted);
        for (request, outcome) in batch.iter_mut().zip(outcomes) {
            request.outcome = outcome;
        }
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        let max_pages = self.max_run_pages();
        let outcomes = self.transact(&mut Pages::Read(batch), max_pages);
        for (request, outcome) in batch.iter_mut().zip(outcomes) {
            request.outcome = outcome;
        }
    }

    fn read_again(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.settle_posted();
        let patience = self.pool.patience.timeout.min(ATTEMPT);
        let other = Pool::probe(&self.pool, Duration::ZERO, Instant::now() + patience);
        let (order, runs) = plan(&Pages::Read(batch), self.max_run_pages(), self.pool.limit_slots());
        self.finish_read(batch, Batch { order, runs, start: other.map(|other| (other, None)) });
    }

    fn can_post(&self) -> bool {
        true
    }

    fn post_reads(&mut self, slots: &[u32]) {
        self.settle_posted();
        self.posted = self.post(Pages::Post(slots)).map(|batch| Posted::UnderWay(slots.to_vec(), batch));
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        match self.posted.take() {
            Some(Posted::UnderWay(slots, posted)) if are_of(&slots, batch) => {
                return self.finish_read(batch, posted);
            }
            Some(Posted::Kept(kept)) if kept.hand_over(batch) => return,
            other => self.posted = other,
        }
        self.read(batch);
        self.posted = None;
    }

    fn posted(&self) -> Option<BorrowedFd<'_>> {
        match &self.posted {
            Some(Posted::UnderWay(_, Batch { start: Some((connection, _)), .. })) => Some(connection.as_fd()),
            _ => None,
        }
    }

    fn leave_posted(&mut self) {
        // Another request by this connection could be given the answer to this one.
        if let Some(Posted::UnderWay(_, Batch { start: Some((connection, _)), .. })) = self.posted.take() {
            connection.abandon();
        }
    }

    fn discard(&mut self, slots: &[u32]) {
        self.has_answered = true;
        if self.has(ExportFlags::SEND_TRIM) {
            // Failure is not an error: the slots can be reused.
            let _ = self.transact(&mut Pages::Discard(slots), MAX_TRIM_PAGES);
        }
    }

    fn has_answered(&self) -> bool {
        self.has_answered
    }
}

fn open_runs(runs: &[Run]) -> usize {
    runs.iter().filter(|run| run.answer.is_none()).count()
}

/// How long a server has been silent to a batch, over all connections that it was tried on.
struct Silences {
    timeout: Duration,
    before: Duration,
    left_connections: u32,
}

impl Silences {
    fn new(timeout: Duration) -> Self {
        Self { timeout, before: Duration::ZERO, left_connections: 0 }
    }

    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.before)
    }

    fn look(&self) -> Duration {
        TELL_AFTER.min(self.timeout)
    }

    /// The connection has been silent for so long: says so, and returns another to ask again by, if that one
    /// may be left. A read may: it can be made twice at any time. A write may not, for what was sent could
    /// come true after a later one. Each connection gets twice as long as the one before, or a server that is
    /// slow would never answer.
    fn hear_silence(&mut self, pool: &Arc<Pool>, silent: Duration, is_read: bool) -> Option<Lent> {
        let waited = self.before + silent;
        let left = self.timeout.saturating_sub(waited);
        pool.tell_waiting(&format!("the server has not answered for {} s", seconds(waited)), waited, left);
        if !is_read || left.is_zero() || silent < TELL_AFTER * (1 << self.left_connections.min(16)) {
            return None;
        }
        let other = Pool::probe(pool, waited, Instant::now() + left)?;
        self.before = waited;
        self.left_connections += 1;
        Some(other)
    }
}
