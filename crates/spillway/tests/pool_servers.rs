//! Pools with listed donors that are NBD servers of other kinds: nbdkit and qemu-nbd, which only store, lose
//! what they held without a word, and may be used by others.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fault_common::{Hold, SOON, Scene};
use pool_common::{certificates, donor, refused, says};
use rustix::process::Signal;
use support::child::{PATIENCE, Running, free_port, until};
use support::tools::tool;
use support::watch::child_of;

/// A server at an address of its own, so that it counts as a host of its own. Killed without a word.
struct Server {
    process: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(program: &str, package: &str, arguments: &[&str], address: String) -> Self {
        let mut command = Command::new(tool(program, package));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { process: command.spawn().unwrap(), address };
        until(PATIENCE, "a server", || TcpStream::connect(&server.address).ok());
        server
    }

    fn nbdkit(number: usize, port: u16, of: &[&str]) -> Self {
        let (host, text) = (format!("127.0.0.{number}"), port.to_string());
        let listen = ["--foreground", "--ipaddr", &host, "--port", &text];
        Self::start("nbdkit", "nbdkit", &[&listen[..], of].concat(), format!("{host}:{port}"))
    }

    /// So much memory, which is empty at first.
    fn memory(number: usize, port: u16) -> Self {
        Self::nbdkit(number, port, &["memory", "64M"])
    }

    fn image(number: usize, port: u16, image: &Path) -> Self {
        let (bind, text) = (format!("--bind=127.0.0.{number}"), port.to_string());
        let options = ["--format=raw", "--shared=16", "--persistent", "--port", &text, &bind];
        let arguments = [&options[..], &[image.to_str().unwrap()]].concat();
        Self::start("qemu-nbd", "qemu-utils", &arguments, format!("127.0.0.{number}:{port}"))
    }
}

fn pool_of(servers: &[&Server], query: &str) -> String {
    let addresses: Vec<&str> = servers.iter().map(|server| &server.address[..]).collect();
    format!("pool:{}{query}", addresses.join(","))
}

/// Kills a server, and starts one that is empty in its place.
fn restart(server: &mut Server, number: usize, port: u16) {
    let _ = server.process.kill();
    let _ = server.process.wait();
    *server = Server::memory(number, port);
}

/// One of so many servers is restarted, and once all is `whole` another one dies.
fn outlives_a_restart_and_another(servers: usize, query: &str, whole: &str) {
    let (port, scene) = (free_port(), Scene::new());
    let mut first = Server::memory(2, port);
    let mut others: Vec<Server> =
        (0..servers - 1).map(|other| Server::memory(3 + other, free_port())).collect();
    let all: Vec<&Server> = std::iter::once(&first).chain(&others).collect();
    let mut hold = Hold::start(&scene, 24, &[pool_of(&all, query)]);
    hold.goes_on(1);
    restart(&mut first, 2, port);
    hold.goes_on(2);
    says(&hold.running, &format!("pool: donor {} has lost what it held", first.address));
    says(&hold.running, whole);
    drop(others.pop());
    hold.goes_on(3);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn a_server_that_comes_back_empty_is_filled_again() {
    outlives_a_restart_and_another(2, "?copies=2", "all pages are on 2 donors again");
}

#[test]
fn coded_pages_outlive_a_server_that_comes_back_empty_and_then_another() {
    outlives_a_restart_and_another(3, "?data=2&parity=1", "all pages have 3 parts again");
}

#[test]
fn a_server_that_comes_back_with_what_it_held_is_used_again() {
    let (port, scene) = (free_port(), Scene::new());
    let work = tempfile::tempdir().unwrap();
    let image = work.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut first = Server::image(2, port, &image);
    let second = Server::memory(3, free_port());
    let mut hold = Hold::start(&scene, 24, &[pool_of(&[&first, &second], "?copies=2&timeout=0.5")]);
    hold.goes_on(1);
    let _ = first.process.kill();
    let _ = first.process.wait();
    hold.goes_on(2);
    says(&hold.running, &format!("pool: donor {} is away", first.address));
    first = Server::image(2, port, &image);
    says(&hold.running, &format!("pool: donor {} answers again", first.address));
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("lost what it held"), "{complaint}");
}

#[test]
fn servers_of_several_kinds_are_one_pool_and_free_after_it() {
    let scene = Scene::new();
    let work = tempfile::tempdir().unwrap();
    let image = work.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let servers = [Server::memory(2, free_port()), Server::image(3, free_port(), &image)];
    let ours = donor(2, "64M", 0, &[]);
    let uri = format!("{},{}", pool_of(&[&servers[0], &servers[1]], ""), ours.tcp());
    let mut hold = Hold::start(&scene, 24, &[&uri]);
    hold.goes_on(2);
    assert_eq!(hold.ends_whole().complaint(), "");
    // Nothing of the first run keeps another from it.
    let [memory, _image] = servers;
    let mut hold = Hold::start(&scene, 24, &[&uri]);
    drop(memory);
    hold.goes_on(3);
    says(&hold.running, "all pages are on 2 donors again");
    hold.ends_whole();
}

#[test]
fn a_server_of_another_run_is_refused_until_that_ends() {
    let scene = Scene::new();
    let servers = [2, 3].map(|number| Server::memory(number, free_port()));
    let uri = pool_of(&[&servers[0], &servers[1]], "?copies=2");
    let hold = Hold::start(&scene, 24, &[&uri]);
    let reasons = ["another run keeps its pages there (process ", "?claim=take", &servers[0].address];
    refused(&uri, &reasons);
    // One that names a part of it only, and is no pool.
    let own = format!("nbd://{}/?size=16M", servers[1].address);
    let mut other = Running::start(scene.run("8M", &[&own], "/bin/echo").arg("started"));
    let finished = other.finish(SOON);
    assert!(finished.complaint().contains("another run keeps its pages there"), "{}", finished.complaint());
    hold.ends_whole();
    assert_eq!(Hold::start(&scene, 24, &[&uri]).ends_whole().complaint(), "");
}

#[test]
fn a_server_that_another_run_takes_is_not_used_any_more() {
    let scene = Scene::new();
    let servers = [2, 3, 4].map(|number| Server::memory(number, free_port()));
    let [first, second, third] = &servers;
    let mut hold = Hold::start(&scene, 24, &[pool_of(&[first, second, third], "?copies=2")]);
    hold.goes_on(1);
    let taken = format!("nbd://{}/?claim=take", first.address);
    let mut taker = Running::start(scene.run("8M", &[&taken], "/bin/sleep").arg("60"));
    let name = format!("pool: donor {}", first.address);
    says(&hold.running, &format!("{name} is not used: "));
    says(&hold.running, "another run keeps its pages there");
    says(&hold.running, "all pages are on 2 donors again");
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
    taker.signal(Signal::TERM);
    taker.finish(SOON);
}

#[test]
fn a_server_that_shows_each_connection_another_export_is_refused() {
    let port = free_port();
    let disk = ["tmpdisk", "64M", "command=truncate -s 64M $disk"];
    let (odd, even) = (Server::nbdkit(2, port, &disk), Server::memory(3, free_port()));
    let uri = pool_of(&[&odd, &even], "?copies=2");
    refused(&uri, &["what is written by one connection is not read by another", &odd.address]);
    refused(&pool_of(&[&odd, &even], "?claim=none"), &["'none' is none of a pool's"]);
}

#[test]
fn servers_by_tls_are_donors_too() {
    let (scene, ports) = (Scene::new(), [free_port(), free_port()]);
    let work = certificates([2, 3].map(|number| format!("127.0.0.{number}")).into_iter());
    let directory = work.path().join("tls");
    let shown = format!("--tls-certificates={}", directory.display());
    let start = |number: usize| {
        let of = ["--tls=require", "--tls-verify-peer", &shown, "memory", "64M"];
        Server::nbdkit(number, ports[number - 2], &of)
    };
    let (mut first, second) = (start(2), start(3));
    let query = format!("?copies=2&tls-certificates={}", directory.display());
    let mut hold = Hold::start(&scene, 24, &[pool_of(&[&first, &second], &query)]);
    hold.goes_on(1);
    drop(std::mem::replace(&mut first, second));
    says(&hold.running, "pool: donor 127.0.0.2");
    let _again = start(2);
    says(&hold.running, "has lost what it held");
    says(&hold.running, "all pages are on 2 donors again");
    drop(first);
    hold.goes_on(3);
    hold.ends_whole();
}

/// A run that is killed leaves its claims, and the next one finds out that nobody has them any more.
#[test]
fn the_servers_of_a_killed_run_are_taken_over() {
    let scene = Scene::new();
    let servers = [2, 3].map(|number| Server::memory(number, free_port()));
    let uri = pool_of(&[&servers[0], &servers[1]], "?copies=2");
    let mut idle = Running::start(scene.run("8M", &[&uri], "/bin/sleep").arg("60"));
    until(PATIENCE, "the program", || (child_of(idle.pid()).as_raw_nonzero().get() > 0).then_some(()));
    idle.signal(Signal::KILL);
    idle.finish(SOON);
    Hold::start(&scene, 24, &[&uri]).ends_whole();
}
