//! `spillway pool status`: the donors of a pool, what they lend and hold, and how they are; its runs, what
//! they have there, and which repairs are under way.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use spillway_snapshot::snapshot;
use spillway_store::membership::{Member, RunState};
use spillway_store::spec::{EtcdPool, PoolDonor};

use super::reach::Reach;
use super::runs::{self, HeldRow};
use crate::columns::{broken, columns, for_terminal};
use crate::exit::Refusal;
use crate::short::{bytes, printable};
use crate::tier::print;

/// The state of one that does not answer.
const AWAY: &str = "away";
/// How long a donor may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

const EXAMPLE: &str = "\
Examples:
  spillway pool status etcd://10.0.0.9:2379/lab
  spillway pool status 10.0.0.2:10809,10.0.0.3:10809 --json

Every donor is asked by itself: STATE is 'up', 'draining', 'short' where its
machine needs its memory and pages move away, or 'away' where one that is listed
or registered does not answer. LENDS is what it lends, PROMISED what runs were
promised of it, HOLDS what it holds, FREE what can still be promised.

RUN is who runs on a pool in etcd, as HOST:PID: how many copies it wants, what it
has STORED, how much of that has FEWER copies, how much is LEFT to be copied, and
how fast. Of donors that are listed it is what each knows of its runs: by the
donor's own number, 'lost' where the run does not answer.

Exit status: 0; 1 if there is no donor, or etcd does not answer.";

/// Say how the donors of a pool stand, and its runs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct StatusArgs {
    /// The pool: in etcd, or its donors as HOST:PORT,HOST:PORT
    #[arg(value_name = "etcd://HOST:PORT/NAME|DONORS")]
    pool: Pool,
    #[command(flatten)]
    reach: Reach,
    /// What etcd is shown where the pool is etcds://, by TLS [default: what
    /// --tls-certificates says]
    #[arg(long, value_name = "DIR")]
    etcd_certificates: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// A pool as the user names it.
#[derive(Clone, Debug)]
pub enum Pool {
    /// Its donors register in etcd.
    Etcd(EtcdPool),
    /// They are those listed here.
    Listed(Vec<PoolDonor>),
}

impl FromStr for Pool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("pool:").unwrap_or(text);
        let text = text.split_once('?').map_or(text, |(before, _)| before);
        if text.starts_with("etcd:") || text.starts_with("etcds:") {
            return text.parse().map(Self::Etcd).map_err(|error| error.to_string());
        }
        let donors = text.split(',').map(|donor| {
            donor.parse().map_err(|_| format!("'{donor}' is no HOST:PORT; write HOST:PORT,HOST:PORT"))
        });
        donors.collect::<Result<_, _>>().map(Self::Listed)
    }
}

/// Columns that the table of donors takes.
const TABLE_COLUMNS: usize = 74;

/// What was seen of a pool, as `--json` prints it.
#[derive(Serialize)]
pub struct Looked {
    version: u32,
    /// `pool`: what it is beside runs, donors and daemons.
    kind: &'static str,
    pool: String,
    /// Why nothing is known of it.
    failure: Option<String>,
    donors: Vec<Row>,
    /// Those that have registered themselves; none of donors that are listed.
    runs: Option<Vec<RunState>>,
}

impl Looked {
    /// The donors, and below them the runs, where a line has so many columns. Lines that are longer are to be
    /// broken.
    fn text(&self, columns: usize) -> String {
        let below = match &self.runs {
            Some(runs) if runs.is_empty() => String::new(),
            Some(runs) => runs::registered(runs),
            None => runs::held(
                self.donors.iter().map(|row| (row.address.as_str(), row.each_run.as_deref().unwrap_or(&[]))),
            ),
        };
        let space = if below.is_empty() { "" } else { "\n" };
        let donors = if columns < TABLE_COLUMNS { listed(&self.donors) } else { table(&self.donors) };
        format!("{donors}{space}{below}")
    }

    /// All that is known of it, with its name, in lines of so many columns at most.
    pub fn card(&self, columns: usize) -> Vec<String> {
        let known = match &self.failure {
            Some(failure) => format!("  {failure}\n"),
            None if self.donors.is_empty() => "  looking ...\n".to_owned(),
            None => self.text(columns),
        };
        let text = broken(&format!("{}\n{known}", self.pool), columns);
        text.lines().map(|line| printable(line, columns)).collect()
    }

    /// Its name and how it stands, in one line of so many columns at most; and whether all is well.
    pub fn summary(&self, columns: usize) -> (String, bool) {
        let up = self.donors.iter().filter(|donor| donor.state != AWAY).count();
        let sum =
            |size: fn(&Row) -> Option<u64>| bytes(self.donors.iter().filter_map(size).sum::<u64>() as f64);
        let told = match &self.failure {
            Some(failure) => failure.clone(),
            None if self.donors.is_empty() => "looking ...".to_owned(),
            None => format!(
                "{up} of {} donors up, lend {}, hold {}, free {}",
                self.donors.len(),
                sum(|row| row.offered_bytes),
                sum(|row| row.held_bytes),
                sum(|row| row.free_bytes),
            ),
        };
        let name = printable(&self.pool, columns.saturating_sub(told.len() + 2).max(12));
        (printable(&format!("{name}: {told}"), columns), self.failure.is_none() && up == self.donors.len())
    }

    /// Whether anything is known of it.
    pub fn is_known(&self) -> bool {
        self.failure.is_none()
    }
}

impl Pool {
    fn name(&self) -> String {
        match self {
            Self::Etcd(etcd) => etcd.to_string(),
            Self::Listed(donors) => donors.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        }
    }

    /// What is known of it before anybody was asked.
    pub fn unlooked(&self) -> Looked {
        let (donors, runs, failure) = (Vec::new(), None, None);
        Looked { version: snapshot::VERSION, kind: "pool", pool: self.name(), failure, donors, runs }
    }

    /// Asks all donors at the same time; etcd with certificates of its own where it has some.
    pub fn look(&self, reach: &Reach, etcd_certificates: Option<&Path>) -> Looked {
        let (members, runs) = match members(self, etcd_certificates.or(reach.certificates())) {
            Ok(found) => found,
            Err(failure) => return Looked { failure: Some(failure), ..self.unlooked() },
        };
        let donors = std::thread::scope(|scope| {
            let asked: Vec<_> = members.iter().map(|member| scope.spawn(|| row(member, reach))).collect();
            asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        Looked { donors, runs, ..self.unlooked() }
    }
}

/// One donor of the pool, as it is printed.
#[derive(Serialize)]
pub struct Row {
    address: String,
    /// Not known of one that is listed.
    domain: Option<String>,
    version: Option<String>,
    /// By which key runs know it; not known of one that is listed, nor registered by one without TLS.
    key: Option<String>,
    state: &'static str,
    /// Why it is away.
    reason: Option<String>,
    offered_bytes: Option<u64>,
    promised_bytes: Option<u64>,
    held_bytes: Option<u64>,
    free_bytes: Option<u64>,
    runs: Option<u64>,
    /// What it has for each run. A donor of an earlier version does not say.
    each_run: Option<Vec<HeldRow>>,
}

/// Asks all donors at the same time, and prints what they say.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Refusal> {
    let looked = args.pool.look(&args.reach, args.etcd_certificates.as_deref());
    if let Some(failure) = looked.failure {
        return Err((1, failure));
    }
    if args.json {
        let text = serde_json::to_string_pretty(&looked);
        return print(&format!("{}\n", text.map_err(|error| (1, error.to_string()))?));
    }
    print(&for_terminal(&looked.text(columns())))
}

/// A pool's donors as they are registered or listed; and the runs that are registered, where that is done.
type Found = (Vec<Member>, Option<Vec<RunState>>);

/// What is known of a pool before any donor is asked; or why nothing is.
fn members(pool: &Pool, certificates: Option<&Path>) -> Result<Found, String> {
    match pool {
        Pool::Etcd(etcd) => {
            let etcd = &etcd.clone().shown(certificates).ok_or_else(|| {
                format!("{etcd} speaks TLS: add --tls-certificates DIR, or --etcd-certificates DIR")
            })?;
            let away = |reason: String| {
                format!("{etcd}: {reason}; see that etcd runs there, or list the donors: HOST:PORT,...")
            };
            let mut directory = spillway_etcd::open(etcd).map_err(|reason| format!("{etcd}: {reason}"))?;
            let mut members = directory.look().map_err(away)?;
            let mut runs = directory.runs().map_err(away)?;
            runs.sort_by(|one, other| (&one.host, one.pid).cmp(&(&other.host, other.pid)));
            members.sort_by(|one, other| one.address.cmp(&other.address));
            if members.is_empty() {
                let start = "spillway donor --memory SIZE --listen ADDR:PORT --pool";
                return Err(format!("{etcd} has no donor; start one: {start} {etcd}"));
            }
            Ok((members, Some(runs)))
        }
        Pool::Listed(donors) => {
            let member = |donor: &PoolDonor| Member { address: donor.to_string(), ..Member::default() };
            Ok((donors.iter().map(member).collect(), None))
        }
    }
}

fn row(member: &Member, reach: &Reach) -> Row {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let donor = member.address.parse::<PoolDonor>().map_err(|error| error.to_string());
    let standing = donor.and_then(|donor| reach.door(&donor)).and_then(|door| {
        let standing = spillway_store::nbd::standing(&door, PATIENCE).map_err(|error| error.to_string())?;
        Ok((standing, spillway_store::nbd::runs(&door, PATIENCE).ok()))
    });
    let away = Row {
        address: member.address.clone(),
        domain: text(&member.domain),
        version: text(&member.version),
        key: text(&member.key),
        state: AWAY,
        reason: None,
        offered_bytes: text(&member.version).map(|_| member.offered_bytes),
        promised_bytes: None,
        held_bytes: None,
        free_bytes: None,
        runs: None,
        each_run: None,
    };
    match standing {
        Ok((standing, each_run)) => Row {
            version: Some(standing.version),
            state: match (standing.is_draining, standing.is_short) {
                (true, _) => "draining",
                (false, true) => "short",
                (false, false) => "up",
            },
            offered_bytes: Some(standing.offered_bytes),
            promised_bytes: Some(standing.promised_bytes),
            held_bytes: Some(standing.held_bytes),
            free_bytes: Some(standing.free_bytes),
            runs: Some(standing.runs),
            each_run: each_run.map(|runs| runs.into_iter().map(HeldRow::from).collect()),
            ..away
        },
        Err(reason) => Row { reason: Some(reason), ..away },
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = line(["DONOR", "STATE", "DOMAIN", "LENDS", "PROMISED", "HOLDS", "FREE", "RUNS"]);
    let size = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), |size| bytes(size as f64));
    let word =
        |word: &Option<String>| word.as_ref().map_or_else(|| "-".to_owned(), |word| printable(word, 15));
    for row in rows {
        text += &line([
            &row.address,
            row.state,
            &word(&row.domain),
            &size(row.offered_bytes),
            &size(row.promised_bytes),
            &size(row.held_bytes),
            &size(row.free_bytes),
            &row.runs.map_or_else(|| "-".to_owned(), |runs| runs.to_string()),
        ]);
        if let Some(reason) = &row.reason {
            let _ = writeln!(text, "  {reason}");
        }
    }
    text
}

/// The same where the terminal is too narrow for a table.
fn listed(rows: &[Row]) -> String {
    let size = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), |size| bytes(size as f64));
    let mut text = String::new();
    for row in rows {
        let domain = row.domain.as_ref().map_or_else(String::new, |domain| format!(", domain {domain}"));
        let _ = writeln!(text, "{} {}{domain}", row.address, row.state);
        let runs = row.runs.map_or_else(|| "-".to_owned(), |runs| runs.to_string());
        let [lends, promised] = [row.offered_bytes, row.promised_bytes].map(size);
        let [holds, free] = [row.held_bytes, row.free_bytes].map(size);
        let _ =
            writeln!(text, "  lends {lends}, promised {promised}, holds {holds}, free {free}; runs {runs}");
        row.reason.iter().for_each(|reason| text += &format!("  {reason}\n"));
    }
    text
}

fn line(words: [&str; 8]) -> String {
    let [donor, state, domain, lends, promised, holds, free, runs] = words;
    let numbers = format!("{lends:>5} {promised:>8} {holds:>5} {free:>5} {runs:>4}");
    format!("{donor:<21} {state:<8} {domain:<15} {numbers}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_fits_the_terminal_and_says_in_a_line_how_it_is() {
        let row = |state, reason: Option<&str>| Row {
            address: "192.168.100.100:10809".to_owned(),
            domain: Some("rack-with-a-long-name".to_owned()),
            version: None,
            key: None,
            state,
            reason: reason.map(str::to_owned),
            offered_bytes: Some(64 << 20),
            promised_bytes: Some(48 << 20),
            held_bytes: Some(16 << 20),
            free_bytes: Some(16 << 20),
            runs: Some(1),
            each_run: None,
        };
        let pool: Pool = "192.168.100.100:10809,192.168.100.101:10809".parse().unwrap();
        let looked = |donors| Looked { donors, ..pool.unlooked() };
        let well = looked(vec![row("up", None), row("draining", None)]);
        let away = looked(vec![row("up", None), row(AWAY, Some("no answer in 2 s"))]);
        let unknown = Looked { failure: Some("it does not answer: ".repeat(9)), ..pool.unlooked() };
        for (looked, is_well, told) in [
            (&well, true, "2 of 2 donors up"),
            (&away, false, "1 of 2 donors up"),
            (&unknown, false, "it does not"),
            (&pool.unlooked(), true, "looking ..."),
        ] {
            for columns in [40, 60, 80, 120] {
                let (line, all_is_well) = looked.summary(columns);
                assert_eq!((line.contains(told), all_is_well), (true, is_well), "{columns}: {line}");
                let card = looked.card(columns);
                let fits = |line: &String| line.chars().count() <= columns;
                assert!(fits(&line) && card.iter().all(fits), "{columns}: {line} {card:?}");
                assert!(card.len() > 1 && card[0].starts_with("192.168.100.100"), "{card:?}");
            }
        }
        assert!(well.summary(80).0.ends_with("2 of 2 donors up, lend 128M, hold 32M, free 32M"));
        assert!(away.card(40).join(" ").contains("no answer in 2 s"), "{:?}", away.card(40));
    }

    #[test]
    fn pools_are_named_as_in_a_store_or_shorter() {
        for text in ["etcd://a:1/lab", "pool:etcd://a:1/lab?copies=3"] {
            assert!(matches!(text.parse::<Pool>(), Ok(Pool::Etcd(pool)) if pool.name == "lab"), "{text}");
        }
        for text in ["a:1,b:2", "pool:a:1,b:2?copies=2"] {
            assert!(matches!(text.parse::<Pool>(), Ok(Pool::Listed(donors)) if donors.len() == 2), "{text}");
        }
        for (text, reason) in
            [("etcd://a:1", "name is missing"), ("a:1,", "no HOST:PORT"), ("", "no HOST:PORT")]
        {
            let error = text.parse::<Pool>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
