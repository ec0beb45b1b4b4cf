//! `spillway donor`: lends this machine's idle memory.

mod certificates;
mod registering;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use spillway_core::plain_text::plain_lines;
use spillway_core::size::Size;
use spillway_donor::limits::Limits;
use spillway_donor::{Config, Donor, DonorError, Summary};
use spillway_events::catalogue::donor_command as told;
use spillway_snapshot::directory::Of;
use spillway_snapshot::reader::{self, ReadError};
use spillway_snapshot::snapshot::Body;
use spillway_store::StoreSpec;
use spillway_store::spec::EtcdPool;
use spillway_tls::ServerSide;

use self::registering::Wishes;
use crate::columns::for_terminal;
use crate::log::LogArgs;
use crate::watch::donor_snapshot::{DonorSubject, donor_of};
use crate::watch::endpoint::{Endpoint, Place};
use crate::watch::teller::{Teller, Telling};

const EXAMPLE: &str = "\
Examples:
  spillway donor certificates certificates --host 10.0.0.2
  spillway donor --memory 4G --listen 0.0.0.0:10809 --tls-certificates certificates
  spillway donor --memory 4G --shm idle
  spillway donor --memory 4G --listen 0.0.0.0:10809 --tls-certificates certificates --pool etcd://10.0.0.9/lab
  spillway donor status
  spillway donor drop nbd://localhost:10809/disk

Then, elsewhere:
  spillway run --local 512M \
      --store 'nbds://10.0.0.2/?size=2G&tls-certificates=certificates' -- PROGRAM
  nbdcopy disk.img 'nbds://10.0.0.2/disk?tls-certificates=certificates'

A run is promised its memory before it starts: size of it, or without size
what there is (--per-run at most). What is not promised is anybody's who names
an export. Beside --memory it takes 0.5% of it for tables, and 0.3M for each
connection at work.

Events are written to stderr, a line each. On SIGTERM or SIGINT it lets in
nobody new and waits for its connections (--drain); a second signal ends it at
once. SIGHUP changes nothing.

Runs seal their pages, so neither the donor nor who listens can read or swap
them. With --tls-certificates only clients with a certificate of that CA come
in, and nothing travels as it is. Without, an address that other machines reach
needs --plain: whoever can connect can then use the memory, and read and drop
named exports.";

/// Lend this machine's idle memory to others.
///
/// Speaks the NBD protocol, and shared-memory rings on the same machine. Memory is taken when it is written
/// and given back when it is trimmed, and when the run that wrote it ends.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLE,
    override_usage = "spillway donor [OPTIONS] --memory <SIZE> --listen|--unix|--shm <WHERE>\n       \
                      spillway donor status [--json]\n       \
                      spillway donor drop <URI>\n       \
                      spillway donor certificates <DIR> --host <NAME>",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    group = ArgGroup::new("where").args(["listen", "unix", "shm"]).multiple(true).required(true)
)]
pub struct DonorArgs {
    #[command(subcommand)]
    command: Option<DonorCommand>,
    /// Most memory to lend, such as 4G
    #[arg(long, value_name = "SIZE", required = true)]
    memory: Option<Size>,
    /// Most memory promised to one run, and what one gets that asks for none in particular [default: all]
    #[arg(long, value_name = "SIZE")]
    per_run: Option<Size>,
    /// Most memory one client may have, promised to its runs and in exports: whoever shows certificates of
    /// one name, comes from one address, or is one user [default: all]
    #[arg(long, value_name = "SIZE")]
    per_client: Option<Size>,
    /// Listen for NBD by TCP there; port 0 chooses one and prints it
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    listen: Vec<SocketAddr>,
    /// Take by TCP only clients that speak TLS and show a certificate of the CA in this directory:
    /// ca-cert.pem, server-cert.pem and server-key.pem
    #[arg(long, value_name = "DIR", conflicts_with = "plain")]
    tls_certificates: Option<PathBuf>,
    /// Listen without TLS on addresses that other machines reach
    #[arg(long)]
    plain: bool,
    /// Listen for NBD on a Unix socket
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Offer shared-memory rings by this name to programs on this machine
    #[arg(long, value_name = "NAME", value_parser = parse_shm_name)]
    shm: Option<String>,
    /// How long to keep what a run has stored when its last connection is lost before it has ended
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    grace: Duration,
    /// Most connections at once
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = parse_connections)]
    max_connections: usize,
    /// Most connections of one address or user at once [default: half of all]
    #[arg(long, value_name = "N", value_parser = parse_connections)]
    max_connections_per_client: Option<usize>,
    /// How long to wait for connections to end on SIGTERM or SIGINT
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    drain: Duration,
    /// Lend more than the machine has available now, or its control group allows
    #[arg(long)]
    force: bool,
    /// Memory to keep free for others of this machine: with less available the donor lends less, and has what
    /// it holds for pools moved away. What it lends then may be more than there is now: it lends that once
    /// memory idles [default: a 32nd of the machine's, or its control group's]
    #[arg(long, value_name = "SIZE")]
    keep_free: Option<Size>,
    /// Register in this pool of etcd's, for as long as the donor lives; takes --listen
    #[arg(long, value_name = "etcd://HOST:PORT/NAME", requires = "listen")]
    pool: Option<EtcdPool>,
    /// What etcd is shown where --pool is etcds://, by TLS: a directory with ca-cert.pem, client-cert.pem and
    /// client-key.pem [default: that of --tls-certificates]
    #[arg(long, value_name = "DIR", requires = "pool")]
    etcd_certificates: Option<PathBuf>,
    /// What fails together with this donor, such as its rack: no two copies of a page are put into one domain
    /// [default: its address]
    #[arg(long, value_name = "NAME", requires = "pool", value_parser = parse_domain)]
    domain: Option<String>,
    /// Where others reach the donor [default: where it listens, by the address from which it reaches etcd if
    /// that is 0.0.0.0]
    #[arg(long, value_name = "ADDR:PORT", requires = "pool", value_parser = parse_address)]
    advertise: Option<SocketAddr>,
    /// Tell metrics to Prometheus there: ADDR:PORT, :PORT (of this machine alone) or unix:PATH
    #[arg(long, value_name = "WHERE")]
    metrics: Option<Place>,
    #[command(flatten)]
    log: LogArgs,
    /// Print lines as JSON, those of --log too
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum DonorCommand {
    /// Say how the donors on this machine stand: memory, clients, exports, counts
    #[command(after_help = "Example:\n  spillway donor status --json | jq '.[0].memory'")]
    Status {
        /// Print a JSON array, with an object for each donor
        #[arg(long)]
        json: bool,
    },
    /// Drop an export that was opened by name, with all it holds
    #[command(after_help = "Example:\n  spillway donor drop nbd://localhost:10809/disk")]
    Drop {
        /// Which, as nbd://HOST:PORT/EXPORT, nbds: or nbd+unix:///EXPORT?socket=PATH
        #[arg(value_name = "URI")]
        uri: StoreSpec,
    },
    /// Make certificates: a CA of your own, a donor's and a client's, each with its key
    #[command(after_help = certificates::MAKE)]
    Certificates {
        /// Directory to make them in
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Name or IP address by which clients reach the donor; several for several donors
        #[arg(long, value_name = "NAME", required = true)]
        host: Vec<String>,
        /// The client's name, by which the donor knows it
        #[arg(long, value_name = "NAME", default_value = "client")]
        client: String,
        /// Days that they are valid
        #[arg(long, value_name = "DAYS", default_value_t = 1825,
              value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
    },
    /// Take certificates back: make the CA's list of those that it has revoked, ca-crl.pem, or renew it
    #[command(after_help = certificates::REVOKE)]
    Revoke {
        /// Directory with the CA's certificate and key, where the list is made
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Whose, if a certificate for that name is in the directory, or the certificate's file; none to
        /// renew the list
        #[arg(value_name = "NAME|FILE")]
        certificate: Vec<String>,
        /// Days that the list holds: once it has expired nobody is let in
        #[arg(long, value_name = "DAYS", default_value_t = 1825,
              value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
    },
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let advice = "write ADDR:PORT, such as 127.0.0.1:10809";
    let mut addresses = text.to_socket_addrs().map_err(|error| format!("{error}: {advice}"))?;
    addresses.next().ok_or_else(|| format!("that name has no address: {advice}"))
}

fn parse_shm_name(text: &str) -> Result<String, String> {
    // The rules are those of the store's URI.
    match format!("shm:{}", text.replace('%', "%25")).parse::<StoreSpec>() {
        Ok(StoreSpec::Shm { name, .. }) if name == text => Ok(name),
        Ok(_) => Err("write letters, digits, '-' and '_'".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_domain(text: &str) -> Result<String, String> {
    let is_plain = (1..=64).contains(&text.len()) && text.chars().all(|letter| !letter.is_control());
    is_plain
        .then(|| text.to_owned())
        .ok_or_else(|| "write a name of 1 to 64 bytes, such as rack-1".to_owned())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    const LONGEST_S: f64 = 1e9;
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=LONGEST_S).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write a number of seconds, such as 30".to_owned())
}

fn parse_connections(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=100_000).contains(number));
    number.ok_or_else(|| "write a number from 1 to 100000".to_owned())
}

/// The line that says that the donor is ready, as `--json` prints it.
#[derive(Serialize)]
struct Ready {
    listening_on: Vec<String>,
    memory_bytes: u64,
}

/// The last line, as `--json` prints it.
#[derive(Serialize)]
struct Ended {
    connections: u64,
    failed_connections: u64,
    refused_connections: u64,
    stored_bytes: u64,
}

/// Lends memory until it is told to end.
pub fn run(args: DonorArgs) -> ExitCode {
    let outcome = match &args.command {
        Some(DonorCommand::Drop { uri }) => {
            spillway_store::nbd::drop_export(uri).map_err(|error| error.to_string())
        }
        Some(DonorCommand::Status { json }) => status(*json),
        Some(DonorCommand::Certificates { directory, host, client, days }) => {
            certificates::make(directory, host, client, *days)
        }
        Some(DonorCommand::Revoke { directory, certificate, days }) => {
            certificates::revoke(directory, certificate, *days)
        }
        None => return lend(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::exit::complain(error);
            ExitCode::FAILURE
        }
    }
}

/// Serves until the end, which is an event where it comes to nothing.
fn lend(args: &DonorArgs) -> ExitCode {
    if let Err(error) = args.log.begin(args.json) {
        crate::exit::complain(format!("donor: {error}"));
        return ExitCode::FAILURE;
    }
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            told::cannot_start(&error);
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &DonorArgs) -> Result<(), String> {
    let memory = args.memory.unwrap_or_default();
    let limits = Limits::of(args.max_connections);
    let connections_per_client = args.max_connections_per_client.unwrap_or(limits.connections_per_client);
    let tls = args.tls_certificates.as_deref().map(ServerSide::load).transpose();
    let tls = tls.map_err(|error| DonorError::Certificates(error).to_string())?;
    let key = tls.as_ref().map(ServerSide::key);
    let shown = args.etcd_certificates.as_ref().or(args.tls_certificates.as_ref());
    let pool =
        args.pool.as_ref().map(|pool| registering::shown(pool, shown.map(PathBuf::as_path))).transpose()?;
    let config = Config {
        memory,
        per_run: args.per_run,
        per_client: args.per_client,
        listen: args.listen.clone(),
        tls,
        plain: args.plain,
        unix: args.unix.clone(),
        shm: args.shm.clone(),
        grace: args.grace,
        drain: args.drain,
        limits: Limits { connections_per_client, ..limits },
        force: args.force,
        keep_free: args.keep_free,
        protect: true,
    };
    // Before the ready line, so that whoever waits for it may stop the donor.
    let (stop, hung_up) = signals()
        .map_err(|error| format!("signals: {error}; free file descriptors, and start the donor again"))?;
    let metrics = args.metrics.as_ref().map(Endpoint::bind).transpose();
    let metrics = metrics.map_err(|error| format!("--metrics {error}"))?;
    let donor = Donor::bind(&config).map_err(|error| error.to_string())?;
    let _teller = begin_to_tell(&donor, metrics);
    let listening_on: Vec<String> = donor.places().map(ToString::to_string).collect();
    let text = format!("listening on {}; lending up to {memory}", listening_on.join(" and "));
    print(args.json, &text, &Ready { listening_on, memory_bytes: memory.bytes() });
    let domain = args.domain.as_deref();
    let wishes = Wishes { advertise: args.advertise, domain, per_run: args.per_run, key };
    let registrar = pool.as_ref().map(|pool| registering::register(&wishes, pool, &donor)).transpose()?;
    let summary = donor.serve(stop.as_fd(), &hung_up).map_err(|error| error.to_string())?;
    drop(registrar);
    let Summary { connections, failed_connections, refused_connections, stored_bytes } = summary;
    let text = format!(
        "ended: {connections} connections, of which {failed_connections} failed; {refused_connections} \
         refused; {} were stored",
        Size::from_bytes(stored_bytes)
    );
    print(args.json, &text, &Ended { connections, failed_connections, refused_connections, stored_bytes });
    Ok(())
}

/// Prints what was asked for.
fn report(text: &str) -> Result<(), String> {
    crate::tier::print(text).map(|_| ()).map_err(|(_, reason)| reason)
}

/// It lends all the same where nobody can look at it.
fn begin_to_tell(donor: &Donor, metrics: Option<Endpoint>) -> Option<Teller> {
    let unseen = |reason: &dyn std::fmt::Display| {
        let reason = reason.to_string();
        told::unseen(&format!("donor: it cannot be asked how it stands: {reason}"), &reason);
    };
    if let Some(endpoint) = &metrics {
        let url = endpoint.url("/metrics");
        told::metrics_told(&format!("donor: metrics are told at {url}"), &url);
    }
    let subject = Box::new(DonorSubject(donor.status()));
    match Teller::start(Telling { of: Of::Donor, subject, metrics }) {
        Ok((teller, failure)) => {
            failure.iter().for_each(|failure| unseen(failure));
            Some(teller)
        }
        Err(error) => {
            unseen(&error);
            None
        }
    }
}

/// Said where there is none.
const NO_DONOR: &str = "no donor of yours runs here: start one (spillway donor --memory SIZE --listen \
    ADDR:PORT), or ask as its user";

/// Prints how the donors of this machine stand.
fn status(json: bool) -> Result<(), String> {
    let (mut statuses, mut failures) = (Vec::new(), Vec::new());
    for seen in reader::look().into_iter().filter(is_of_donor) {
        let because = |reason: &dyn std::fmt::Display| format!("donor at {}: {reason}", seen.socket);
        match &seen.answer {
            Ok(snapshot) => match donor_of(snapshot) {
                Some(status) => statuses.push(status),
                None => failures.push(because(&ReadError::Refused(snapshot.spillway_version.clone()))),
            },
            Err(error) => failures.push(because(error)),
        }
    }
    match (statuses.is_empty(), failures.is_empty()) {
        (true, true) => return Err(NO_DONOR.to_owned()),
        (true, false) => return Err(failures.join("; ")),
        _ => failures.iter().for_each(crate::exit::complain),
    }
    let text = if json {
        serde_json::to_string(&statuses).map_err(|error| error.to_string())? + "\n"
    } else {
        let text: Vec<String> = statuses.iter().map(ToString::to_string).collect();
        // Another user's donor says what it likes, and a terminal obeys some of it.
        let text: String = plain_lines(&text.join("\n")).collect();
        for_terminal(&text)
    };
    report(&text).map_err(|reason| format!("donor status: {reason}"))
}

/// What does not answer is known by the name of its socket.
fn is_of_donor(seen: &reader::Seen) -> bool {
    match &seen.answer {
        Ok(snapshot) => matches!(snapshot.body, Body::Donor { .. }),
        Err(_) => Of::of_socket(&seen.socket) == Some(Of::Donor),
    }
}

/// A socket that has a byte for each SIGTERM and SIGINT, and what is set by SIGHUP.
fn signals() -> io::Result<(UnixStream, Arc<AtomicBool>)> {
    let stop = crate::stop::on(&[SIGTERM, SIGINT])?;
    let hung_up = Arc::default();
    signal_hook::flag::register(SIGHUP, Arc::clone(&hung_up))?;
    Ok((stop, hung_up))
}

/// Prints one line at once.
fn print(json: bool, text: &str, value: &impl Serialize) {
    let mut out = io::stdout().lock();
    let line = match serde_json::to_string(value) {
        Ok(line) if json => line,
        _ => text.to_owned(),
    };
    // The donor serves on when nobody reads its lines.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
