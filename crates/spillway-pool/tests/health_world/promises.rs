//! What a user is promised of donors that are ill, of hedges and of the pace of repair, checked by what the
//! world knows itself: when each donor was how, when somebody read, and which bytes were copied when.

use super::*;
use spillway_pool::EXTENT_BYTES;
use spillway_pool::health::LEAST_SILENCE_US;
use spillway_pool::rebuild::CHUNK_SLOTS;
use watchers::{NEW_LIFE_PAUSE_US, PERIOD_US};
use workers::{SURVEY_PERIOD_US, WORKERS};

/// Who has answered alike for so long is known.
const KNOWN_US: u64 = 5 * SECOND;
/// There is one hedge for so many reads, and so many before any read is made up for.
const READS_A_HEDGE: u64 = 20;
const MOST_HEDGES: u64 = 20;
/// Somebody who has read within that time is waiting still; and rests are no longer than this.
const WANTED_US: u64 = 20 * MS;
const MOST_YIELD_US: u64 = SECOND;
const CHUNK_BYTES: u64 = EXTENT_BYTES / 512 * CHUNK_SLOTS as u64;
/// No read is waited for longer before another copy is asked.
const MOST_SILENCE_US: u64 = 50 * MS;

/// What a donor was like, and since when.
#[derive(Clone, Copy, Default)]
struct OfDonor {
    was_well: bool,
    was_down: bool,
    /// The supervisor cannot have an answer since then.
    away_since_us: Option<u64>,
    /// It can since then, with the answers in time; and whether the donor knew the run then.
    there_since_us: u64,
    is_empty: bool,
    /// Nothing has changed since then, and no answer was unusual.
    steady_since_us: u64,
    /// When something last happened for which it may be taken for dead.
    excused_us: u64,
    suspect_since_us: Option<u64>,
    late_since_us: Option<u64>,
    /// Reads that it has answered since anything changed, or was silent to; and the silence that was usual
    /// then.
    heard: u64,
    usual_silence_us: u64,
}

#[derive(Default)]
pub(super) struct Promises {
    donors: [OfDonor; DONORS],
    last_read_us: Option<u64>,
    /// Reads that are to be made for hedges.
    debt: u64,
    /// Time that the bytes copied so far take at the rate, beyond what has passed.
    owed_us: u64,
    last_chunk_us: u64,
    /// Chunks that were copied, or not, a while ago: when that ended, and how long it took.
    recent_chunks: Vec<(u64, u64)>,
    /// By worker: until when it rests while somebody reads.
    rests_until_us: [u64; WORKERS],
}

impl Promises {
    /// A donor has answered a read, or was silent for longer than is usual for it.
    pub(super) fn note_heard(&mut self, donor: usize) {
        self.donors[donor].heard += 1;
    }
}

impl World {
    // ---- What happens.

    pub(super) fn note_change(&mut self, donor: usize) {
        let words = self.words();
        let usual_silence_us = self.table(&words).hedge_after_us(donor);
        let (of, now_us) = (&mut self.promises.donors[donor], self.now_us);
        (of.steady_since_us, of.heard, of.usual_silence_us) = (now_us, 0, usual_silence_us);
        let is_there = self.donors[donor].is_there();
        of.is_empty = self.donors[donor].life.is_none();
        if is_there {
            (of.away_since_us, of.there_since_us, of.excused_us) = (None, now_us, now_us);
        } else {
            of.away_since_us = of.away_since_us.or(Some(now_us));
        }
    }

    /// An answer takes so long, where it takes at most `most_us` as a rule.
    pub(super) fn note_took(&mut self, donor: usize, took_us: u64, most_us: u64) {
        let (of, now_us) = (&mut self.promises.donors[donor], self.now_us);
        let is_too_long = took_us >= self.shape.timeout_us * 9 / 10;
        if is_too_long {
            (of.excused_us, of.there_since_us) = (now_us + took_us, now_us + took_us);
        }
        if is_too_long || (took_us > most_us && took_us >= LEAST_SILENCE_US) {
            of.steady_since_us = now_us + took_us;
        }
    }

    pub(super) fn note_read(&mut self) {
        self.promises.last_read_us = Some(self.now_us);
        self.promises.debt = self.promises.debt.saturating_sub(1);
    }

    pub(super) fn may_hedge(&self) -> bool {
        self.promises.debt + READS_A_HEDGE <= MOST_HEDGES * READS_A_HEDGE
    }

    pub(super) fn note_hedge(&mut self) -> Result<(), String> {
        if !self.may_hedge() {
            return Err(format!("{} of {} reads are hedged", self.counts.hedged, self.counts.reads));
        }
        self.promises.debt += READS_A_HEDGE;
        Ok(())
    }

    // ---- The pace.

    fn is_somebody_reading(&self) -> bool {
        self.promises.last_read_us.is_some_and(|read_us| self.now_us < read_us + WANTED_US)
    }

    /// Nobody has read for so long that no rest can be left of that, and what was copied is paid for.
    fn is_all_quiet(&self) -> bool {
        let least_us = CHUNK_BYTES * SECOND / self.shape.bytes_per_s;
        let paid_us = self.promises.last_chunk_us + (WORKERS as u64 + 1) * least_us;
        // That somebody reads is seen when the table is looked over, or a chunk is copied.
        let slowest_us = self.promises.recent_chunks.iter().map(|(_, took_us)| *took_us).max();
        let seen_us = SURVEY_PERIOD_US + slowest_us.unwrap_or_default();
        let quiet_us =
            self.promises.last_read_us.map_or(0, |read_us| read_us + seen_us + WANTED_US + MOST_YIELD_US);
        self.now_us > paid_us.max(quiet_us)
    }

    pub(super) fn is_begin_in_order(&mut self, worker: usize, may_begin: bool) -> Result<(), String> {
        if may_begin && worker > 0 && self.is_somebody_reading() {
            return Err(format!("worker {worker} begins a copy while somebody reads"));
        }
        if !may_begin && (worker == 0 || self.is_all_quiet()) {
            return Err(format!("worker {worker} begins no copy"));
        }
        Ok(())
    }

    pub(super) fn is_rest_in_order(&mut self, worker: usize, rest_us: u64) -> Result<(), String> {
        self.counts.yielded += u64::from(rest_us > 0 && self.is_somebody_reading());
        if rest_us > 0 && self.is_all_quiet() {
            return Err(format!("worker {worker} rests for {rest_us} us, for nobody"));
        }
        let is_to_rest = self.is_somebody_reading() && self.now_us < self.promises.rests_until_us[worker];
        if rest_us == 0 && is_to_rest {
            return Err(format!("worker {worker} copies on while somebody reads"));
        }
        Ok(())
    }

    /// Copying a chunk is over, whatever came of it.
    pub(super) fn note_tried(&mut self, took_us: u64) {
        let now_us = self.now_us;
        self.promises.recent_chunks.retain(|(end_us, _)| now_us < end_us + KNOWN_US);
        self.promises.recent_chunks.push((now_us, took_us));
    }

    pub(super) fn note_chunk(&mut self, worker: usize, bytes: u64, took_us: u64) -> Result<(), String> {
        let (rate, now_us, promises) = (self.shape.bytes_per_s, self.now_us, &mut self.promises);
        promises.owed_us = promises.owed_us.saturating_sub(now_us - promises.last_chunk_us);
        promises.owed_us += bytes * SECOND / rate;
        promises.last_chunk_us = now_us;
        promises.rests_until_us[worker] = now_us + (3 * took_us).min(MOST_YIELD_US);
        // Chunks that are under way when the time that is looked at begins, and when it ends.
        let most_us = 2 * WORKERS as u64 * CHUNK_BYTES * SECOND / rate;
        if promises.owed_us > most_us {
            return Err(format!("more than {rate} bytes/s are copied: {} us too soon", promises.owed_us));
        }
        Ok(())
    }

    // ---- The donors.

    /// Looks whether everything is as promised now.
    pub(super) fn keep_promises(&mut self) -> Result<(), String> {
        let words = self.words();
        let table = Table::known(&words);
        for donor in 0..DONORS {
            self.note_condition(&table, donor);
            self.is_known_in_time(&table, donor)?;
            self.is_silence_as_usual(&table, donor)?;
            self.is_late_who_is_slow(&table, donor)?;
            let of = &mut self.promises.donors[donor];
            let condition = table.donor(donor).condition;
            (of.was_well, of.was_down) = (condition == Condition::Up, condition == Condition::Down);
        }
        Ok(())
    }

    fn note_condition(&mut self, table: &Table<'_>, donor: usize) {
        let (of, now_us) = (&mut self.promises.donors[donor], self.now_us);
        let word = table.donor(donor);
        if of.away_since_us.is_some() || self.donors[donor].life != Some(word.life) {
            of.excused_us = of.excused_us.max(now_us);
        }
        of.suspect_since_us = match word.condition {
            Condition::Suspect => of.suspect_since_us.or(Some(now_us)),
            Condition::Up | Condition::Down => None,
        };
        of.late_since_us = table.is_late(donor).then(|| of.late_since_us.unwrap_or(now_us));
        self.counts.suspected += u64::from(of.suspect_since_us == Some(now_us) && of.was_well);
    }

    /// Who is silent for long is called dead, and nobody else; who is there is used soon.
    fn is_known_in_time(&self, table: &Table<'_>, donor: usize) -> Result<(), String> {
        let (of, now_us) = (&self.promises.donors[donor], self.now_us);
        let condition = table.donor(donor).condition;
        let timeout_us = self.shape.timeout_us;
        // It is asked, and once more what has become of it; an answer may have been under way.
        let most_us = 2 * PERIOD_US + 2 * timeout_us;
        if let Some(since_us) = of.away_since_us
            && now_us > since_us + most_us
            && condition != Condition::Down
        {
            return Err(format!("donor {donor} is away since {since_us} us, and is not called dead"));
        }
        let is_excused = now_us <= of.excused_us + most_us;
        if condition == Condition::Down && !of.was_down && !is_excused {
            return Err(format!("donor {donor} is called dead, and has answered in time"));
        }
        let is_known = now_us > of.steady_since_us + KNOWN_US && self.donors[donor].is_there_for_all();
        if condition != Condition::Up && of.was_well && is_known && !is_excused {
            let silence_us = table.silence_us(donor);
            return Err(format!(
                "donor {donor} answers as ever, and is {condition:?}: {:?}, {silence_us}",
                self.donors[donor].usual_us()
            ));
        }
        let is_there = of.away_since_us.is_none();
        let pauses_us = if of.is_empty { 3 * (NEW_LIFE_PAUSE_US + PERIOD_US) } else { 0 };
        let back_us = of.there_since_us + 4 * PERIOD_US + 3 * timeout_us + pauses_us;
        if is_there && now_us > back_us && condition == Condition::Down {
            return Err(format!("donor {donor} is there since {} us, and is not used", of.there_since_us));
        }
        let suspect_us =
            of.suspect_since_us.filter(|_| is_there).map(|since_us| since_us.max(of.there_since_us));
        if suspect_us.is_some_and(|since_us| now_us > since_us + 2 * PERIOD_US + 2 * timeout_us) {
            return Err(format!("donor {donor} answers, and is suspected still"));
        }
        Ok(())
    }

    /// A donor is waited for as long as its answers say, within bounds.
    fn is_silence_as_usual(&self, table: &Table<'_>, donor: usize) -> Result<(), String> {
        let (of, now_us) = (&self.promises.donors[donor], self.now_us);
        let silence_us = self.watchers[donor].silence_us();
        let (least_us, most_us) = self.donors[donor].usual_us();
        let is_steady = now_us > of.steady_since_us + 2 * KNOWN_US && of.away_since_us.is_none();
        let is_quick = is_steady && most_us < 2 * MS;
        if silence_us > self.shape.timeout_us || (is_quick && silence_us > LEAST_SILENCE_US) {
            return Err(format!("donor {donor}, quick: {is_quick}, may be silent for {silence_us} us"));
        }
        let hedge_us = table.hedge_after_us(donor);
        // What it was before is forgotten with time; of long silences only that they were long is known.
        // A message or two may be lost besides.
        let before_us = match of.usual_silence_us {
            before_us if before_us < 30 * MS => 3 * before_us / 2 + 8 * MS,
            _ => 160 * MS,
        };
        let left_us = before_us as f64 * (-(of.heard as f64) / 2_000.0).exp();
        let most_hedge_us = 14 * least_us + 2 * MS + left_us as u64;
        let is_heard = of.heard > 0 && self.donors[donor].is_there_for_all();
        if is_heard && hedge_us > most_hedge_us.min(MOST_SILENCE_US) {
            let heard = of.heard;
            return Err(format!(
                "donor {donor} is hedged after {hedge_us} us, and takes {least_us} us, {heard} times"
            ));
        }
        if of.heard > 200 && hedge_us < least_us.min(MOST_SILENCE_US) {
            return Err(format!("donor {donor} takes {least_us} us, and is hedged after {hedge_us} us"));
        }
        Ok(())
    }

    /// Reads go first to those that are quick, as far as it is known who is.
    fn is_late_who_is_slow(&self, table: &Table<'_>, donor: usize) -> Result<(), String> {
        let now_us = self.now_us;
        let is_steady = |donor: usize| {
            let of = &self.promises.donors[donor];
            let is_known = now_us > of.steady_since_us + KNOWN_US && now_us > of.excused_us + KNOWN_US;
            is_known && self.donors[donor].is_there_for_all() && table.donor(donor).condition == Condition::Up
        };
        if !(0..DONORS).all(is_steady) {
            return Ok(());
        }
        let others =
            || (0..DONORS).filter(|&other| other != donor).map(|other| self.donors[other].usual_us());
        let (least_us, most_us) = self.donors[donor].usual_us();
        let quickest_us = others().map(|(least_us, _)| least_us).min().unwrap_or_default();
        let quick_us = others().map(|(_, most_us)| most_us).min().unwrap_or_default();
        let patience_us = 6 * (PERIOD_US + 4 * most_us);
        let late_us = self.promises.donors[donor].late_since_us.map_or(0, |since_us| now_us - since_us);
        if most_us <= 4 * quickest_us + 2 * MS && late_us > patience_us {
            return Err(format!("donor {donor} is as quick as others, and late for {late_us} us"));
        }
        if least_us > 10 * quick_us + 2 * MS && late_us == 0 && !table.is_late(donor) {
            return Err(format!("donor {donor} takes {least_us} us, another {quick_us} us, and is not late"));
        }
        Ok(())
    }

    /// Where nothing happens few reads are hedged.
    pub(super) fn are_hedges_few(&self) -> Result<(), String> {
        let Counts { reads, hedged, .. } = self.counts;
        // Who takes longer than any donor is waited for is always hedged.
        let are_quick = self.donors.iter().all(|donor| donor.usual_us().1 < MOST_SILENCE_US / 2);
        match are_quick && self.shape.is_calm && hedged > reads * 3 / 100 + 2 * MOST_HEDGES {
            true => Err(format!("{hedged} of {reads} reads are hedged, though nothing has happened")),
            false => Ok(()),
        }
    }
}
